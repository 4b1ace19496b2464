#pragma once

// Training for a given time. After a step the time that is left and the time of a step give the number of steps to
// come; the learning rate follows them (step_plan.h), so that its decay is complete when the time is over, whatever the
// machine did meanwhile. Validation and checkpoints take at most a tenth of the time; what ends the run is set aside
// from the beginning. There is no clock in here: every call is told the time, in seconds since the run began.

#include <cstdint>
#include <optional>

#include "lorry/cli/step_plan.h"
#include "lorry/cli/step_timer.h"
#include "lorry/io/checkpoint.h"

namespace lorry::cli {

/// Batches of a validation before the end: enough to see how the loss goes.
inline constexpr int64_t kQuickValidation = 8;

/// What a run asks of its plan.
struct TimePlanOptions {
  std::optional<int64_t> warmup = {};  ///< steps; unset: a tenth of the run, but 30 steps where a third of it is enough
  int64_t eval_every = 0;              ///< steps between validations; 0: nine before the end, evenly in time
  int64_t checkpoint_every = 0;        ///< steps between checkpoints; 0: as often as validations
  int64_t batches_per_step = 1;        ///< of training
  int64_t validation_batches = 1;      ///< of the last validation, if there is time for all
  double checkpoint_s = 0;             ///< how long one takes, until one was written: a guess
};

class TimePlan {
 public:
  /// A run of `seconds` from its beginning.
  TimePlan(double seconds, const TimePlanOptions& options);
  /// A run that goes on after `taken` steps, from the plan that it had and what state() gave. Throws FormatError.
  TimePlan(const StepPlan& steps, const io::Settings& state, int64_t taken, const TimePlanOptions& options);

  const StepPlan& steps() const { return steps_; }
  /// False while the number of steps is a guess.
  bool planned() const { return planned_; }

  /// A step that took `seconds` ended at `now`. True when the number of steps was planned anew.
  bool step_taken(double now, double seconds);
  /// True when the run has no step left.
  bool over() const { return taken_ >= steps_.steps(); }

  /// True while it has to be told how long a batch of validation takes.
  bool needs_probe() const { return timed_ && !validation_batch_s_; }
  void probed(double seconds);
  /// The batches of the validation that is due at `now`; 0: none is due, or none can be afforded yet.
  int64_t validation_due(double now) const;
  /// The batches of the validation that ends the run; at least 1.
  int64_t last_validation() const;
  void validated(double seconds, int64_t batches);
  /// True when a checkpoint is due at `now`, after the validation that is, and can be afforded.
  bool checkpoint_due(double now) const;
  void saved(double seconds);

  /// Seconds until the end, at least 0.
  double left(double now) const;
  /// Seconds that validations and checkpoints have taken.
  double overhead() const { return overhead_; }
  /// What a checkpoint keeps beside steps().
  io::Settings state(double now) const;

 private:
  double fraction(double now) const;
  /// Seconds that the end of the run takes: the last validation, the checkpoint and the curve.
  double end_s() const;
  double validation_batch_s() const;
  /// Seconds of all validations and checkpoints before the end.
  double allowance() const;
  /// The part of it that may be spent by now, and has not been.
  double affordable(double now) const;
  int64_t quick_validation() const;
  /// Seconds of validations and checkpoints that will yet come before the end.
  double overhead_to_come() const;
  void note_what_is_due(double now);
  bool time_to_plan(double now) const;
  double warmup_of(const PlannedPart& part) const;
  void plan(double now);

  double seconds_;
  TimePlanOptions options_;
  StepPlan steps_;
  StepTimer step_timer_;
  int64_t taken_ = 0;
  bool planned_ = false;                   ///< in this process or before
  bool timed_ = false;                     ///< planned by steps of this process
  double planned_at_ = 0, left_then_ = 0;  ///< of the last planning
  double stepping_ = 0;                    ///< seconds of steps since the process began
  double overhead_ = 0;
  std::optional<double> validation_batch_s_;
  double checkpoint_s_;
  int64_t tenths_ = 0;  ///< of the time, over
  bool validation_due_ = false, checkpoint_due_ = false;
};

}  // namespace lorry::cli
