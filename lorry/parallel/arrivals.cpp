#include "lorry/parallel/arrivals.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "lorry/base/modes.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/tensor/facts.h"

namespace lorry::parallel {

struct Arrivals::Expected {
  /// Bytes of a storage.
  struct Part {
    uint64_t storage;
    int64_t begin, end;
    Begun begun;
  };

  void add(Part part) {
    const std::lock_guard lock(mutex);
    parts.push_back(std::move(part));
  }
  /// Waits for the parts of these bytes.
  void wait(uint64_t storage, int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    std::erase_if(parts, [&](Part& x) {
      if (x.storage != storage || x.begin >= end || x.end <= begin) return false;
      x.begun.wait();
      return true;
    });
  }
  void wait_for_all() {
    const std::lock_guard lock(mutex);
    for (Part& x : parts) x.begun.wait();
    parts.clear();
  }
  bool is_empty() {
    const std::lock_guard lock(mutex);
    return parts.empty();
  }

  std::mutex mutex;
  std::vector<Part> parts;
};

namespace {

/// What this thread's calls wait for.
thread_local std::vector<std::shared_ptr<Arrivals::Expected>> t_expected;

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
  std::erase_if(t_expected, [](const auto& x) { return x->is_empty(); });
  if (t_expected.empty()) door::stop_listening(kAwaitMode);
}
void fact(const FactView& fact) {
  if ((fact.fact == Fact::host_read || fact.fact == Fact::address) && fact.tensor != nullptr) wait_for(*fact.tensor);
}

constexpr door::Listener kListener{.bit = kAwaitMode, .before = before, .fact = fact};

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
  expected_->add({part.storage().id(), begin, begin + part.numel() * size, std::move(begun)});
  if (std::ranges::find(t_expected, expected_) == t_expected.end()) t_expected.push_back(expected_);
  t_modes |= kAwaitMode;
}

void Arrivals::wait() { expected_->wait_for_all(); }

}  // namespace lorry::parallel
