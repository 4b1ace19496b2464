#pragma once

// The learning rates of a run that is limited by time. Its number of steps is planned repeatedly while it runs (see
// time_plan.h). A rate depends on the step and on all plans so far, so the plans are saved in checkpoints: a resumed
// run has the same rates as an uninterrupted one.

#include <cstdint>
#include <string>
#include <vector>

namespace lorry::cli {

/// One plan. From `step` on, the progress of the run grows linearly from `progress` to 1 at the end of `steps` steps.
struct PlannedPart {
  int64_t step = 0;     ///< the first step of this plan, from 0
  double progress = 0;  ///< progress before that step, 0 to 1
  int64_t steps = 0;    ///< steps of the whole run; at least `step`
  double warmup = 0;    ///< the progress at which the warm-up ends

  friend bool operator==(const PlannedPart&, const PlannedPart&) = default;
};

class LearningRatePlan {
 public:
  /// Throws ValueError unless the part is the beginning of the run: step 0, progress 0.
  explicit LearningRatePlan(const PlannedPart& first);
  /// Parses the result of text(). Throws FormatError.
  static LearningRatePlan parse(const std::string& text);
  /// One line per part: its step, progress, steps and warm-up, exactly.
  std::string text() const;

  /// Adds a plan that applies from part.step on. Throws ValueError if that is before the last part, or if the progress
  /// would fall.
  void add(const PlannedPart& part);
  const std::vector<PlannedPart>& parts() const { return parts_; }
  /// The steps of the whole run, in the latest plan.
  int64_t steps() const { return parts_.back().steps; }
  /// The progress of the run before a step, 0 to 1.
  double progress(int64_t step) const;
  /// The steps of the warm-up: the planned steps that begin before its end.
  int64_t warmup_steps() const;
  /// The rate of a step, from 0: rises to `lr` in the warm-up, then falls to `least` along half a cosine.
  double rate(int64_t step, double lr, double least) const;

 private:
  const PlannedPart& part_of(int64_t step) const;

  std::vector<PlannedPart> parts_;  ///< by step, ascending
};

}  // namespace lorry::cli
