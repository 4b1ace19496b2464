#pragma once

// How many steps fit into a time. The first steps of a run, which the schedule's warm-up makes independent of its length, are
// timed; then the number is decided once and kept with the checkpoint, so that the run can be resumed and repeated exactly.

#include <cstdint>
#include <optional>
#include <string>

namespace lorry::cli {

/// How long a step takes, from the first of a run.
class Pace {
 public:
  /// A step has been taken in `seconds`. The first two are not typical: memory is still being found.
  void add_step(double seconds);
  int64_t taken() const { return taken_; }
  /// True once typical steps have taken `seconds`, and are a few.
  bool known(double seconds) const { return timed_ >= 3 && spent_ >= seconds; }
  /// Of a typical step, where there was one; after the first step.
  double seconds_a_step() const;

 private:
  int64_t taken_ = 0, timed_ = 0;
  double spent_ = 0, untypical_ = 0;
};

/// "about 12 minutes", "about 3 hours" or "about 2 days"; nothing under a minute.
std::optional<std::string> long_time_text(double seconds);

class TimeBudget {
 public:
  explicit TimeBudget(double seconds) : seconds_(seconds) {}

  /// A step has been taken in `seconds`.
  void add_step(double seconds) { pace_.add_step(seconds); }
  /// True once enough was seen: a few steps, and a twentieth of the time.
  bool ready() const { return pace_.known(seconds_ / 20); }
  /// The steps of the whole run: those taken, and those that fit into the time that is left. `elapsed` counts from the start
  /// of the run; `reserved` is kept for validation and checkpoints.
  int64_t decide(double elapsed, double reserved) const;

 private:
  double seconds_;
  Pace pace_;
};

}  // namespace lorry::cli
