// Copies between the host and a GPU, by size, direction and kind of host memory. On a CPU there is no link: there it
// measures copies within the host's memory by size, which is what a transfer on the host's side costs.

#include <fmt/core.h>

#include "lorry/autograd/grad_mode.h"
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

class TransferCases {
 public:
  explicit TransferCases(const Filter& filter) : filter_(filter) {}

  /// A call that transfers `size` bytes, and so moves `bytes`. ceiling: bytes per second; 0: none.
  template <class F>
  void add(const char* way, int64_t size, int64_t bytes, double ceiling, F&& call) {
    const std::string name = fmt::format("{}, {}", way, size_text(size));
    if (!filter_(name)) return;
    Result row{.suite = "transfers",
               .name = name,
               .time = profile::benchmark(call, {.total_s = 0.5, .device = default_device()}),
               .dtype = "u8",
               .bytes = bytes};
    if (ceiling > 0) row.ratio_to_ceiling = 1e9 * row.gb_per_s() / ceiling;
    rows_.push_back(row);
  }
  std::vector<Result> rows() const { return rows_; }

 private:
  const Filter& filter_;
  std::vector<Result> rows_;
};

/// Short ones stay in the caches, so no rate of memory is a ceiling.
void add_within_host(TransferCases& suite) {
  for (const int64_t bytes : kTransferSizes) {
    const Tensor from = full({bytes}, 1, {.dtype = kU8}), to = full({bytes}, 2, {.dtype = kU8});
    suite.add("host to host", bytes, 2 * bytes, 0, [&] { to.copy_(from); });
  }
}

/// Transfers that are waited for, as item() or to(kCPU) are, and those that are only enqueued ("non_blocking"), where
/// the host's share of the time is submit_us.
void add_link(TransferCases& suite, const profile::Ceilings& ceilings) {
  const Device gpu = default_device();
  const Stream stream = current_stream(gpu);
  const double up = ceilings.link_to_device_bytes_per_s, down = ceilings.link_to_host_bytes_per_s;
  for (const int64_t bytes : kTransferSizes) {
    const Tensor pageable = full({bytes}, 1, {.dtype = kU8, .device = kCPU}), pinned = pageable.pin_memory(),
                 there = full({bytes}, 2, {.dtype = kU8, .device = gpu});
    suite.add("pageable to the GPU", bytes, bytes, up, [&] { profile::do_not_optimize(pageable.to(gpu)); });
    suite.add("pinned to the GPU", bytes, bytes, up, [&] { profile::do_not_optimize(pinned.to(gpu)); });
    suite.add("pinned to the GPU, non_blocking", bytes, bytes, up,
              [&] { profile::do_not_optimize(pinned.to(gpu, true)); });
    suite.add("to pageable memory", bytes, bytes, down, [&] { profile::do_not_optimize(there.to(kCPU)); });
    // Enqueued alone, copies that have not ended would hold ever more pinned memory: each is waited for.
    suite.add("to pinned memory", bytes, bytes, down, [&] {
      profile::do_not_optimize(there.to(kCPU, true));
      stream.synchronize();
    });
  }
  // Both ways at once, on two streams: a full-duplex link takes as long as for one.
  const int64_t bytes = kTransferSizes[4];
  const Tensor one = full({bytes}, 1, {.dtype = kU8, .device = kCPU}).pin_memory(),
               other = full({bytes}, 1, {.dtype = kU8, .device = kCPU}).pin_memory(),
               here = full({bytes}, 2, {.dtype = kU8, .device = gpu}),
               there = full({bytes}, 2, {.dtype = kU8, .device = gpu});
  const OwnedStream back(gpu);
  device::synchronize(gpu);
  suite.add("both ways at once, pinned", bytes, 2 * bytes, up + down, [&] {
    device::copy(here.data_ptr(), gpu, one.data_ptr(), kCPU, bytes, stream);
    device::copy(other.data_ptr(), kCPU, there.data_ptr(), gpu, bytes, back);
  });
  device::synchronize(gpu);
}

}  // namespace

std::vector<Result> transfers_suite(const Filter& filter) {
  const NoGrad no_grad;
  TransferCases suite(filter);
  if (default_device().is_cpu())
    add_within_host(suite);
  else
    add_link(suite, profile::ceilings(default_device()));
  return suite.rows();
}

}  // namespace lorry::bench
