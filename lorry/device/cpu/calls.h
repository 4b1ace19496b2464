#pragma once

// Calls of kernels on the CPU, recorded with their arguments while they are made, to be made again: what a device graph
// is on a GPU. Making them again costs no checks, no shapes and no allocations.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lorry/base/span.h"
#include "lorry/device/addresses.h"

namespace lorry::cpu {

/// A recorded call. It owns copies of its arguments, but not the memory that addresses in them point to.
class Call {
 public:
  virtual ~Call() = default;
  virtual void run() const = 0;
  /// Shows the visitor every address among the arguments, where the call keeps it: overwritten, the call uses the new
  /// one.
  virtual void addresses(AddressVisitor& visitor) const = 0;

  const char* operator_name = nullptr;  ///< of the operator that made it (base/modes.h)
  SpanPart origin;                      ///< where it was made, and what it costs, for a profiler; without a name
};

class Calls {
 public:
  /// owned: the bytes of other memory that the call owns
  template <class C>
  void add(std::unique_ptr<C> call, int64_t owned = 0) {
    bytes_ += static_cast<int64_t>(sizeof(C)) + owned;
    append(std::move(call));
  }
  /// The host may write this memory, which belongs to what is recorded, before the next call: what it holds then is
  /// written there in each run.
  void note_host_write(void* data, int64_t bytes) { host_writes_.emplace_back(data, bytes); }
  /// The calls since the last such note were made by an operator of this cost.
  void note_cost(const SpanCost& cost) noexcept;
  /// Must be called before a call is made that will be added.
  void before_call() {
    if (!host_writes_.empty()) [[unlikely]]
      add_host_writes();
  }
  /// Makes all calls again, in order.
  void run() const;
  size_t size() const { return calls_.size(); }
  /// Memory of the recorded calls, without lists of tensors among their arguments.
  int64_t bytes() const { return bytes_; }
  void addresses(AddressVisitor& visitor) const {
    for (const auto& call : calls_) call->addresses(visitor);
  }

 private:
  void append(std::unique_ptr<Call> call);
  void run_profiled() const;
  void add_host_writes();

  std::vector<std::unique_ptr<Call>> calls_;
  int64_t bytes_ = 0;
  size_t costed_ = 0;                            ///< calls whose cost was noted
  mutable std::atomic<uint64_t> first_span_{0};  ///< the id of the first call's span; 0: none was given yet
  std::vector<std::pair<void*, int64_t>> host_writes_;
};

namespace detail {
inline constinit thread_local Calls* t_recorded = nullptr;
}

/// The calls that this thread's calls are being recorded into; null if they are not.
inline Calls* recorded_calls() { return detail::t_recorded; }

/// Records this thread's kernel calls on the CPU, for a scope; null records none.
class [[nodiscard]] RecordCalls {
 public:
  explicit RecordCalls(Calls* calls) : before_(std::exchange(detail::t_recorded, calls)) {}
  ~RecordCalls() { detail::t_recorded = before_; }
  RecordCalls(const RecordCalls&) = delete;
  RecordCalls& operator=(const RecordCalls&) = delete;

 private:
  Calls* const before_;
};

}  // namespace lorry::cpu
