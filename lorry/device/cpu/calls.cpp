#include "lorry/device/cpu/calls.h"

#include <cstddef>
#include <cstring>

#include "lorry/base/call_stack.h"
#include "lorry/base/modes.h"
#include "lorry/base/scope.h"

namespace lorry::cpu {
namespace {

class HostWrite final : public Call {
 public:
  HostWrite(void* to, int64_t bytes)
      : to_(to), bytes_(static_cast<const std::byte*>(to), static_cast<const std::byte*>(to) + bytes) {}
  void run() const override { std::memcpy(to_, bytes_.data(), bytes_.size()); }
  void addresses(AddressVisitor& visitor) const override { visitor(to_); }

 private:
  void* to_;
  std::vector<std::byte> bytes_;
};

constinit std::atomic<uint64_t> g_spans{1};

}  // namespace

void Calls::add_host_writes() {
  for (const auto& [data, bytes] : std::exchange(host_writes_, {}))
    add(std::make_unique<HostWrite>(data, bytes), bytes);
}

void Calls::append(std::unique_ptr<Call> call) {
  call->operator_name = t_operator;
  call->origin.path = Scope::path(), call->origin.frames = call_stack();
  calls_.push_back(std::move(call));
}

void Calls::note_cost(const SpanCost& cost) noexcept {
  const auto calls = static_cast<int64_t>(calls_.size() - costed_);
  for (; costed_ < calls_.size(); ++costed_)
    calls_[costed_]->origin.cost = {cost.bytes / calls, cost.flops / calls, cost.dtype};
}

void Calls::run() const {
  const char* const before = t_operator;
  struct Restore {
    const char* before;
    ~Restore() { t_operator = before; }
  } restore{before};
  if (lorry::detail::t_spans_heard) [[unlikely]]
    return run_profiled();
  for (const auto& call : calls_) {
    t_operator = call->operator_name;
    call->run();
  }
}

void Calls::run_profiled() const {
  uint64_t first = first_span_.load(std::memory_order_relaxed);
  if (first == 0) {
    const uint64_t fresh = g_spans.fetch_add(calls_.size() + 1, std::memory_order_relaxed);
    if (first_span_.compare_exchange_strong(first, fresh)) first = fresh;
  }
  const auto describe = [](const void* call, SpanDescription& to) {
    const auto& replayed = *static_cast<const Call*>(call);
    if (replayed.operator_name != nullptr) to.name = replayed.operator_name;
    to.path = replayed.origin.path, to.frames = replayed.origin.frames, to.cost = replayed.origin.cost;
  };
  for (size_t i = 0; i < calls_.size(); ++i) {
    t_operator = calls_[i]->operator_name;
    const Span span({SpanKind::replayed, first + i, calls_[i].get(), describe});
    calls_[i]->run();
  }
}

}  // namespace lorry::cpu
