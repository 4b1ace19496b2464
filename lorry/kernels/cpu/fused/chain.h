#pragma once

#include <vector>

#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/fused/addresses.h"
#include "lorry/kernels/cpu/fused/threaded.h"

namespace lorry::kernels::cpu {

/// Threaded code for calls that compute in f32 throughout and whose operands are contiguous in runs.
class Chain {
 public:
  /// Whether a call is of this kind. It must have elements.
  static bool fits(const MapCall& call, const Walk& walk);

  /// The call and the walk must outlive this object.
  Chain(const MapCall& call, const Walk& walk);
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  /// The number of tasks of a run; and running some of them on the calling thread.
  int64_t tasks() const;
  void run(const Addresses& at, int64_t begin, int64_t end) const;
  int64_t elements_a_task() const;

 private:
  /// the elements of kThreadedVectors of the widest registers
  static constexpr int64_t kWidest = kThreadedVectors * 16;
  static constexpr int64_t kShortest = 64;  ///< shorter rows are not run as threaded code
  struct alignas(64) Slot {
    float elements[kWidest];
  };
  /// Where a value is: in a slot, or in the memory of an operand (inputs, then outputs), whose address changes from row
  /// to row.
  struct Location {
    enum Kind : uint8_t { slot, operand } kind;
    size_t index;
  };
  /// An operand of a step whose address is set once per run or per row.
  struct Address {
    size_t step;
    int at;
    size_t index;
  };
  /// A thread's own memory during a run.
  struct State {
    const Addresses& at;
    ThreadedStep* code;
    Slot* slots;  ///< one per register
    Slot* ends;   ///< one per operand
  };

  void run_row(const State& state, const Cursor& cursor, int64_t n) const;
  void run_end(const State& state, const Cursor& cursor, int64_t done, int64_t n) const;
  float* address(const Addresses& at, size_t operand, const Cursor& cursor) const;

  void store(size_t output);
  bool is_one_value(size_t input) const;
  size_t output_of(size_t r) const;
  void put(ThreadedStep& step, int at, const Location& place);
  void move(void (*function)(), const Location& place);
  Location place(size_t r) const;
  void add(size_t s);
  bool is_read_from_memory(size_t s, int16_t r) const;

  const MapCall& call_;
  const Walk& walk_;
  const ThreadedFunctions& table_;
  const bool past_cache_;           ///< whether outputs are too large to stay in the cache until they are read
  std::vector<ThreadedStep> code_;  ///< the steps, with addresses not filled in
  std::vector<Address> in_slots_, moving_;
  std::vector<size_t> numbers_, repeated_;  ///< inputs that are numbers; inputs that are one value per row
  int16_t travelling_ = -1;
};

/// FusedKernels::may_be_chain.
bool may_be_chain(std::span<const FusedStep> steps, std::span<const DType> inputs);

}  // namespace lorry::kernels::cpu
