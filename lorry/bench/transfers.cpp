// Copies between the host and a GPU, by size, direction and kind of host memory. On a CPU there is no link: there it
// measures copies within the host's memory by size, which is what a transfer on the host's side costs.

#include <fmt/core.h>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/memory_cases.h"
#include "lorry/bench/suites.h"
#include "lorry/device/device.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/ceilings.h"

namespace lorry::bench {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr int64_t kTransferSizes[] = {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 128 * kMiB};

std::string size_text(int64_t bytes) {
  return bytes >= kMiB ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} KiB", bytes / kKiB);
}

std::string case_name(const char* way, int64_t size) { return fmt::format("{}, {}", way, size_text(size)); }

/// Short ones stay in the caches, so no rate of memory is a ceiling.
void add_within_host(MemoryCases& suite) {
  for (const int64_t bytes : kTransferSizes) {
    const std::string name = case_name("host to host", bytes);
    if (!suite.has_any({name})) continue;
    const Tensor from = full({bytes}, 1, {.dtype = kU8}), to = full({bytes}, 2, {.dtype = kU8});
    suite.add_transfer(name, kU8, 2 * bytes, 0, [&] { to.copy_(from); });
  }
}

/// What the cases of one size copy.
struct LinkTensors {
  Device gpu;
  Stream stream;
  Tensor pageable, pinned, there;

  LinkTensors(Device gpu, int64_t bytes)
      : gpu(gpu),
        stream(current_stream(gpu)),
        pageable(full({bytes}, 1, {.dtype = kU8, .device = kCPU})),
        pinned(pageable.pin_memory()),
        there(full({bytes}, 2, {.dtype = kU8, .device = gpu})) {}
};

/// A way to copy over the link, with its direction.
struct LinkWay {
  const char* name;
  bool to_gpu;
  void (*copy)(const LinkTensors& t);
};
/// Transfers that are waited for, as item() or to(kCPU) are, and those that are only enqueued ("non_blocking"), where
/// the host's share of the time is submit_us.
constexpr LinkWay kLinkWays[] = {
    {"pageable to the GPU", true, [](const LinkTensors& t) { profile::do_not_optimize(t.pageable.to(t.gpu)); }},
    {"pinned to the GPU", true, [](const LinkTensors& t) { profile::do_not_optimize(t.pinned.to(t.gpu)); }},
    {"pinned to the GPU, non_blocking", true,
     [](const LinkTensors& t) { profile::do_not_optimize(t.pinned.to(t.gpu, true)); }},
    {"to pageable memory", false, [](const LinkTensors& t) { profile::do_not_optimize(t.there.to(kCPU)); }},
    // Enqueued alone, copies that have not ended would hold ever more pinned memory: each is waited for.
    {"to pinned memory", false, [](const LinkTensors& t) {
       profile::do_not_optimize(t.there.to(kCPU, true));
       t.stream.synchronize();
     }}};

/// Both ways at once, on two streams: a full-duplex link takes as long as for one.
void add_both_ways(MemoryCases& suite, Device gpu, double ceiling) {
  const int64_t bytes = kTransferSizes[4];
  const std::string name = case_name("both ways at once, pinned", bytes);
  if (!suite.has_any({name})) return;
  const LinkTensors up(gpu, bytes), down(gpu, bytes);
  const OwnedStream back(gpu);
  device::synchronize(gpu);
  suite.add_transfer(name, kU8, 2 * bytes, ceiling, [&] {
    device::copy(up.there.data_ptr(), gpu, up.pinned.data_ptr(), kCPU, bytes, up.stream);
    device::copy(down.pinned.data_ptr(), kCPU, down.there.data_ptr(), gpu, bytes, back);
  });
  device::synchronize(gpu);
}

void add_link(MemoryCases& suite, const profile::Ceilings& ceilings) {
  const Device gpu = default_device();
  const double up = ceilings.link_to_device_bytes_per_s, down = ceilings.link_to_host_bytes_per_s;
  for (const int64_t bytes : kTransferSizes) {
    std::vector<std::string> names;
    for (const LinkWay& way : kLinkWays) names.push_back(case_name(way.name, bytes));
    if (!suite.has_any(names)) continue;
    const LinkTensors tensors(gpu, bytes);
    for (const LinkWay& way : kLinkWays)
      suite.add_transfer(case_name(way.name, bytes), kU8, bytes, way.to_gpu ? up : down, [&] { way.copy(tensors); });
  }
  add_both_ways(suite, gpu, up + down);
}

}  // namespace

std::vector<Result> transfers_suite(const Filter& filter) {
  const NoGrad no_grad;
  MemoryCases suite("transfers", filter);
  if (default_device().is_cpu())
    add_within_host(suite);
  else
    add_link(suite, profile::ceilings(default_device()));
  return suite.rows();
}

}  // namespace lorry::bench
