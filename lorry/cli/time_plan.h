#pragma once

// Training for a given time. After a step, the number of remaining steps is estimated from the remaining time and the
// time per step. The learning rate follows it (learning_rate_plan.h), so that its decay is complete when the time is
// over, even if the machine's speed changes. Validation and checkpoints take at most a tenth of the time; time for the
// end of the run is reserved from the beginning. This code reads no clock: callers pass the time, in seconds since the
// run began.

#include <cstdint>
#include <optional>

#include "lorry/cli/learning_rate_plan.h"
#include "lorry/cli/step_timer.h"
#include "lorry/io/checkpoint.h"

namespace lorry::cli {

/// Batches of a validation before the end of the run: enough to show the trend of the loss.
inline constexpr int64_t kInterimValidationBatches = 8;

/// Options of a plan.
struct TimePlanOptions {
  /// in steps; unset: a tenth of the run, but 30 steps if a third of the run is enough for that
  std::optional<int64_t> warmup = {};
  int64_t eval_every = 0;          ///< steps between validations; 0: nine before the end, evenly in time
  int64_t checkpoint_every = 0;    ///< steps between checkpoints; 0: as often as validations
  int64_t batches_per_step = 1;    ///< of training
  int64_t validation_batches = 1;  ///< of the last validation, if there is time for all
  double checkpoint_s = 0;         ///< estimated time of a checkpoint, used until one has been written
};

class TimePlan {
 public:
  /// A new run of `seconds`.
  TimePlan(double seconds, const TimePlanOptions& options);
  /// A run resumed after `taken` steps, with its plan and the result of state(). Throws FormatError.
  TimePlan(const LearningRatePlan& steps, const io::Settings& state, int64_t taken, const TimePlanOptions& options);

  const LearningRatePlan& steps() const { return steps_; }
  /// Whether the number of steps has been planned; before that it is a guess.
  bool planned() const { return planned_; }

  /// Notes that a step of `seconds` ended at `now`. Returns whether the number of steps was planned again.
  bool step_taken(double now, double seconds);
  /// Whether no steps remain.
  bool over() const { return taken_ >= steps_.steps(); }

  /// Whether the duration of a validation batch still has to be measured.
  bool needs_probe() const { return timed_ && !validation_batch_s_; }
  void probed(double seconds);
  /// The batches of the validation that is due at `now`; 0 if none is due or there is no time for one yet.
  int64_t validation_due(double now) const;
  /// The batches of the final validation; at least 1.
  int64_t last_validation() const;
  void validated(double seconds, int64_t batches);
  /// Whether a checkpoint is due at `now`, after a due validation, and there is time for it.
  bool checkpoint_due(double now) const;
  void saved(double seconds);

  /// Seconds until the end, at least 0.
  double left(double now) const;
  /// Seconds spent on validations and checkpoints.
  double overhead() const { return overhead_; }
  /// The state that a checkpoint saves in addition to steps().
  io::Settings state(double now) const;

 private:
  double fraction(double now) const;
  /// Seconds that the end of the run takes: the final validation, the checkpoint and the curve.
  double end_s() const;
  double validation_batch_s() const;
  /// Total seconds allowed for validations and checkpoints before the end.
  double allowance() const;
  /// The part of the allowance that may be spent by now and has not been spent.
  double affordable(double now) const;
  int64_t quick_validation() const;
  /// Estimated seconds of further validations and checkpoints before the end.
  double overhead_to_come() const;
  void note_what_is_due(double now);
  bool time_to_plan(double now) const;
  double warmup_of(const PlannedPart& part) const;
  void plan(double now);

  double seconds_;
  TimePlanOptions options_;
  LearningRatePlan steps_;
  StepTimer step_timer_;
  int64_t taken_ = 0;
  bool planned_ = false;                   ///< by this process or an earlier one
  bool timed_ = false;                     ///< planned with steps of this process
  double planned_at_ = 0, left_then_ = 0;  ///< at the last planning
  double stepping_ = 0;                    ///< seconds of steps in this process
  double overhead_ = 0;
  std::optional<double> validation_batch_s_;
  double checkpoint_s_;
  int64_t tenths_ = 0;  ///< tenths of the time that are over
  bool validation_due_ = false, checkpoint_due_ = false;
};

}  // namespace lorry::cli
