#include "lorry/parallel/arrivals.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "lorry/base/modes.h"
#include "lorry/device/stream.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/tensor/facts.h"

namespace lorry::parallel {

struct Arrivals::Expected {
  /// Bytes of a storage.
  struct Part {
    uint64_t storage;
    int64_t begin, end;
    Device device;
    Begun begun;
    std::vector<Stream> waiting = {};  ///< streams that wait for it

    bool overlaps(uint64_t other, int64_t from, int64_t to) const {
      return storage == other && begin < to && end > from;
    }
    /// Lets the current stream wait, unless it does.
    void wait() {
      const Stream current = current_stream(device);
      if (std::ranges::find(waiting, current) != waiting.end()) return;
      begun.wait_again();
      waiting.push_back(current);
    }
  };

  void add(Part part) {
    const std::lock_guard lock(mutex);
    std::erase_if(parts, [&](const Part& x) { return x.overlaps(part.storage, part.begin, part.end); });
    parts.push_back(std::move(part));
  }
  void wait(uint64_t storage, int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    for (Part& x : parts)
      if (x.overlaps(storage, begin, end)) x.wait();
  }
  void wait_for_all() {
    const std::lock_guard lock(mutex);
    for (Part& x : parts) x.wait();
  }
  /// Forgets the parts that are there. Returns whether that are all.
  bool are_there() {
    const std::lock_guard lock(mutex);
    std::erase_if(parts, [](const Part& x) { return x.begun.is_done(); });
    return parts.empty();
  }

  std::mutex mutex;
  std::vector<Part> parts;
};

namespace {

/// What this thread's calls wait for, and how many there have been since somebody asked whether it is there.
thread_local std::vector<std::shared_ptr<Arrivals::Expected>> t_expected;
thread_local int t_calls = 0;

void wait_for(const Tensor& x) {
  if (!x.defined() || t_expected.empty()) return;
  const lorry::detail::TensorNode& node = *x.node();
  int64_t last = 0;
  for (int i = 0; i < node.layout.rank; ++i) {
    if (node.layout.sizes[i] == 0) return;
    last += (node.layout.sizes[i] - 1) * node.layout.strides[i];
  }
  const int64_t size = size_of(node.dtype), begin = node.offset * size;
  for (const auto& expected : t_expected) expected->wait(node.storage->id(), begin, begin + (last + 1) * size);
}

void before(const door::CallView& call, void*&) {
  for (const door::Input& input : call.inputs)
    if (input.tensor() != nullptr) wait_for(*input.tensor());
  for (const Tensor& output : call.outputs) wait_for(output);
  constexpr int kOften = 16;  // asking a GPU takes a microsecond
  if (++t_calls % kOften != 0) return;
  std::erase_if(t_expected, [](const auto& x) { return x->are_there(); });
  if (t_expected.empty()) door::stop_listening(kAwaitMode);
}
void await_all() {
  for (const auto& x : t_expected) x->wait_for_all();
}
void fact(const FactView& fact) {
  if ((fact.fact == Fact::host_read || fact.fact == Fact::address) && fact.tensor != nullptr) wait_for(*fact.tensor);
}

constexpr door::Listener kListener{.bit = kAwaitMode, .before = before, .fact = fact, .await_all = await_all};

}  // namespace

Arrivals::Arrivals() : expected_(std::make_shared<Expected>()) {}

Arrivals::~Arrivals() {
  try {
    wait();
  } catch (...) {  // a rank has failed: the next call of the group says so
  }
}

void Arrivals::expect(const Tensor& part, Begun begun) {
  [[maybe_unused]] static const bool added = [] {
    door::add_listener(kListener);
    return true;
  }();
  const int64_t size = size_of(part.dtype()), begin = part.node()->offset * size;
  expected_->add({part.storage().id(), begin, begin + part.numel() * size, part.device(), std::move(begun)});
  if (std::ranges::find(t_expected, expected_) == t_expected.end()) t_expected.push_back(expected_);
  t_modes |= kAwaitMode;
}

void Arrivals::wait() { expected_->wait_for_all(); }

}  // namespace lorry::parallel
