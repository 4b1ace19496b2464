#pragma once

// How many steps fit into a time. The first steps of a run, which the schedule's warm-up makes independent of its length, are
// timed; then the number is decided once and kept with the checkpoint, so that the run can be resumed and repeated exactly.

#include <cstdint>

namespace lorry::cli {

class TimeBudget {
 public:
  explicit TimeBudget(double seconds) : seconds_(seconds) {}

  /// A step has been taken in `seconds`. The first two are not typical: memory is still being found.
  void add_step(double seconds);
  /// True once enough was seen: a few steps, and a twentieth of the time.
  bool ready() const { return timed_ >= 3 && spent_ >= seconds_ / 20; }
  /// The steps of the whole run: those taken, and those that fit into the time that is left. `elapsed` counts from the start
  /// of the run; `reserved` is kept for validation and checkpoints.
  int64_t decide(double elapsed, double reserved) const;

 private:
  double seconds_;
  int64_t taken_ = 0, timed_ = 0;
  double spent_ = 0, untypical_ = 0;
};

}  // namespace lorry::cli
