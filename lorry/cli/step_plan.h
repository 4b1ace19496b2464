#pragma once

// The learning rates of a run whose length is a time. Its number of steps is planned while it runs, again and again
// (see time_plan.h). A rate follows from the step and the plans so far, so the plans are kept with the checkpoint: a
// run that is resumed has the rates that it would have had.

#include <cstdint>
#include <string>
#include <vector>

namespace lorry::cli {

/// One planning. From `step` on, the progress of the run grows evenly from `progress` to 1 at the end of `steps` steps.
struct PlannedPart {
  int64_t step = 0;     ///< the first that it holds for, counted from 0
  double progress = 0;  ///< before that step, 0 to 1
  int64_t steps = 0;    ///< of the whole run; at least `step`
  double warmup = 0;    ///< the progress at which the warm-up ends

  friend bool operator==(const PlannedPart&, const PlannedPart&) = default;
};

class StepPlan {
 public:
  /// Throws ValueError unless the part is the run's beginning: step 0, progress 0.
  explicit StepPlan(const PlannedPart& first);
  /// What text() gave. Throws FormatError.
  static StepPlan parse(const std::string& text);
  /// A part a line: its step, progress, steps and warm-up, exactly.
  std::string text() const;

  /// Plans anew from part.step on. Throws ValueError where that lies before the last part, or the progress falls.
  void add(const PlannedPart& part);
  const std::vector<PlannedPart>& parts() const { return parts_; }
  /// The steps of the whole run, as planned last.
  int64_t steps() const { return parts_.back().steps; }
  /// How much of the run is over before a step, 0 to 1.
  double progress(int64_t step) const;
  /// The steps of the warm-up: of what has been planned, those that begin before its end.
  int64_t warmup_steps() const;
  /// The rate of a step, counted from 0: rises to `lr` in the warm-up, then falls to `least` along half a cosine.
  double rate(int64_t step, double lr, double least) const;

 private:
  const PlannedPart& part_of(int64_t step) const;

  std::vector<PlannedPart> parts_;  ///< by step, ascending
};

}  // namespace lorry::cli
