#pragma once

#include <vector>

#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/fused/addresses.h"
#include "lorry/kernels/cpu/fused/threaded.h"

namespace lorry::kernels::cpu {

/// The steps of a call that is f32 throughout and over runs of memory, as threaded code.
class Chain {
 public:
  /// Whether a call with elements is such a one.
  static bool fits(const MapCall& call, const Walk& walk);

  /// The call and the walk live as long as this.
  Chain(const MapCall& call, const Walk& walk);
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  /// The parts into which a run is divided, and the computation of some on the calling thread.
  int64_t tasks() const;
  void run(const Addresses& at, int64_t begin, int64_t end) const;
  int64_t elements_a_task() const;

 private:
  static constexpr int64_t kWidest = kThreadedVectors * 16;  ///< elements of as many of the widest registers
  static constexpr int64_t kShortest = 64;                   ///< rows worth it
  struct alignas(64) Slot {
    float elements[kWidest];
  };
  /// Where a value lies: in a slot, or in the memory of an operand (the inputs, then the outputs), which moves from row
  /// to row.
  struct Location {
    enum Kind : uint8_t { slot, operand } kind;
    size_t index;
  };
  /// Operand `at` of a step, to be set for each run or for each row.
  struct Address {
    size_t step;
    int at;
    size_t index;
  };
  /// What one thread writes while it runs.
  struct State {
    const Addresses& at;
    ThreadedStep* code;
    Slot* slots;  ///< of each register
    Slot* ends;   ///< of each operand
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
  const bool past_cache_;           ///< outputs would not stay in the cache until somebody reads them
  std::vector<ThreadedStep> code_;  ///< without addresses
  std::vector<Address> in_slots_, moving_;
  std::vector<size_t> numbers_, repeated_;  ///< inputs that are numbers, and such that are one value in a row
  int16_t travelling_ = -1;
};

}  // namespace lorry::kernels::cpu
