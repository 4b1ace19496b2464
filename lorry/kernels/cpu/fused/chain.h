#pragma once

#include <vector>

#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/fused/threaded.h"
#include "lorry/kernels/cpu/fused/walk.h"

namespace lorry::kernels::cpu {

/// Whether a call with elements is f32 throughout and over runs of memory, so that run_chain takes it.
bool is_chain(const FusedCall& call, const Walk& walk);
void run_chain(const FusedCall& call, const Walk& walk);

/// The steps of such a call as threaded code, for one thread: its slots are its own. The call's addresses may change
/// between runs, but not which outputs are inputs.
class Chain {
 public:
  static constexpr int64_t kWidest = 64;  ///< elements of four of the widest registers

  Chain(const FusedCall& call, const Walk& walk);
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  /// The parts into which a call is divided, and the computation of some.
  static int64_t tasks(const Walk& walk);
  void run(int64_t begin, int64_t end);

 private:
  struct alignas(64) Slot {
    float elements[kWidest];
  };
  /// Where a value lies: in a slot, or in the memory of an operand (the inputs, then the outputs), which moves from row
  /// to row.
  struct Place {
    float* slot = nullptr;
    size_t operand = 0;
  };
  /// Operand `at` of a step, to be set for each row.
  struct Moving {
    size_t step;
    int at;
    size_t operand;
  };

  void run_row(const Cursor& cursor, int64_t n);
  void run_end(const Cursor& cursor, int64_t done, int64_t n);
  float* slot(size_t r) { return slots_[r].elements; }
  Place output(size_t o) const { return {nullptr, call_.inputs.size() + o}; }
  bool is_one_value(size_t input) const {
    const int layout = walk_.of_input[input];
    return layout >= 0 && walk_.iteration.strides[layout][0] == 0;
  }
  float* address(size_t operand, const Cursor& cursor) const;
  bool is_stored_at_once(size_t o) const;
  size_t output_of(size_t r) const;
  void put(ThreadedStep& step, int at, const Place& place);
  void move(void (*function)(), const Place& place);
  Place place(size_t r);
  void add(size_t s);
  bool is_read_from_memory(size_t s, int16_t r) const;

  const FusedCall& call_;
  const Walk& walk_;
  const ThreadedFunctions& table_;
  std::vector<Slot> slots_;       ///< of each register
  std::vector<Slot> ends_;        ///< of each operand
  std::vector<size_t> repeated_;  ///< inputs that are one value in a row
  std::vector<ThreadedStep> code_;
  std::vector<Moving> moving_;
  int16_t travelling_ = -1;
};

}  // namespace lorry::kernels::cpu
