#include "lorry/cli/time_plan.h"

#include <algorithm>
#include <cmath>

#include "lorry/base/error.h"
#include "lorry/cli/run_settings.h"

namespace lorry::cli {
namespace {

constexpr double kOverhead = 0.1;       // share of the time for validations and checkpoints
constexpr double kEnd = kOverhead / 2;  // share of the time for those at the end of the run
constexpr int64_t kTenths = 10;         // there is a validation after each but the last
constexpr int64_t kFewValidations = 3;  // a run should have this many before its end, with fewer batches if necessary
constexpr double kValidationOfStep =
    // an estimate: the time of a validation batch relative to a training batch, which has a backward
    0.5;
constexpr int64_t kFirstGuess = 1000;  // assumed steps of a run, until a step has been timed

// At first, a plan is made each time half of the elapsed time has passed again; later, after a tenth of the time, or of
// the progress, that was left at the last plan. So the number of plans grows with the logarithm of the time, and the
// last plans are one step apart.
constexpr double kPlanAfterTime = 0.5, kPlanAfterLeft = 0.1;

/// Seconds to draw the curve and to exit.
double closing_s(double seconds) { return std::min(0.25, seconds / 40); }

/// The share of warm-up for a run of unknown length: like usual_warmup, without its upper bound.
double usual_warmup_share(int64_t steps) {
  return std::clamp(static_cast<double>(kEnoughWarmup) / static_cast<double>(std::max<int64_t>(steps, 1)), 0.1,
                    1.0 / 3);
}

PlannedPart first_guess(std::optional<int64_t> warmup) {
  return {0, 0, kFirstGuess, warmup ? static_cast<double>(*warmup) / kFirstGuess : usual_warmup_share(kFirstGuess)};
}

double seconds_of(const io::Settings& state, const std::string& name) {
  const auto value = io::setting<double>(state, name);
  require<FormatError>(value >= 0 && std::isfinite(value),
                       "checkpoint: '{}' is out of range; got {}; expected a finite number >= 0", name, value);
  return value;
}

}  // namespace

TimePlan::TimePlan(double seconds, const TimePlanOptions& options)
    : seconds_(seconds),
      options_(options),
      steps_(first_guess(options.warmup)),
      left_then_(seconds),
      checkpoint_s_(options.checkpoint_s) {}

TimePlan::TimePlan(const LearningRatePlan& steps, const io::Settings& state, int64_t taken,
                   const TimePlanOptions& options)
    : seconds_(seconds_of(state, "max_seconds")),
      options_(options),
      steps_(steps),
      taken_(taken),
      planned_(true),
      planned_at_(seconds_of(state, "elapsed_s")),
      overhead_(seconds_of(state, "overhead_s")),
      checkpoint_s_(seconds_of(state, "checkpoint_s")) {
  require<FormatError>(steps_.parts().back().step <= taken,
                       "checkpoint: the run was last planned at step {}, but only step {} has been taken",
                       steps_.parts().back().step, taken);
  if (state.contains("warmup_steps")) options_.warmup = io::setting<int64_t>(state, "warmup_steps");
  if (state.contains("validation_batch_s")) validation_batch_s_ = seconds_of(state, "validation_batch_s");
  left_then_ = seconds_ - planned_at_;
  tenths_ = static_cast<int64_t>(static_cast<double>(kTenths) * fraction(planned_at_));
}

bool TimePlan::step_taken(double now, double seconds) {
  ++taken_;
  stepping_ += seconds;
  step_timer_.add_step(seconds);
  note_what_is_due(now);
  if (!time_to_plan(now)) return false;
  plan(now);
  return true;
}

void TimePlan::note_what_is_due(double now) {
  const auto tenths = static_cast<int64_t>(static_cast<double>(kTenths) * fraction(now));
  const bool next = tenths > tenths_;
  tenths_ = std::max(tenths_, tenths);
  const bool validation = options_.eval_every > 0 ? taken_ % options_.eval_every == 0 : next;
  validation_due_ |= validation;
  checkpoint_due_ |= options_.checkpoint_every > 0 ? taken_ % options_.checkpoint_every == 0 : validation;
}

bool TimePlan::time_to_plan(double now) const {
  if (!timed_) return step_timer_.typical() || now + end_s() >= seconds_;
  const double since = now - planned_at_, then = steps_.parts().back().progress;
  return since >= kPlanAfterLeft * left_then_ || since >= kPlanAfterTime * stepping_ ||
         steps_.progress(taken_) - then >= kPlanAfterLeft * (1 - then);
}

double TimePlan::warmup_of(const PlannedPart& part) const {
  const double before = steps_.parts().back().warmup;
  if (part.progress >= before) return before;  // the run is over
  if (!options_.warmup) return std::max(part.progress, usual_warmup_share(part.steps));
  const int64_t left = std::max<int64_t>(part.steps - part.step, 1);
  const double missing = static_cast<double>(*options_.warmup - part.step) / static_cast<double>(left);
  return part.progress + std::max(0.0, missing) * (1 - part.progress);
}

void TimePlan::plan(double now) {
  const double time = seconds_ - now - end_s();
  const double to_come = std::clamp(overhead_to_come(), 0.0, std::max(0.0, time));
  const double seconds = std::max(step_timer_.seconds_per_step(), 1e-9);
  const double steps = std::floor(std::max(0.0, time - to_come) / seconds);
  PlannedPart part{taken_, steps_.progress(taken_), taken_ + static_cast<int64_t>(std::min(steps, 0x1p40)), 0};
  // Lost time counts as progress; but the warm-up is not skipped, and a rate that has fallen does not rise again.
  if (part.progress >= steps_.parts().back().warmup) part.progress = std::max(part.progress, fraction(now));
  part.warmup = warmup_of(part);
  steps_.add(part);
  planned_ = true;
  timed_ = true;
  planned_at_ = now;
  left_then_ = std::max(0.0, time);
}

double TimePlan::fraction(double now) const {
  const double end = seconds_ - end_s();
  return end > 0 ? std::clamp(now / end, 0.0, 1.0) : 1;
}

double TimePlan::left(double now) const { return std::max(0.0, seconds_ - now); }

double TimePlan::validation_batch_s() const {
  if (validation_batch_s_) return *validation_batch_s_;
  if (stepping_ == 0) return 0;
  return kValidationOfStep * step_timer_.seconds_per_step() / static_cast<double>(options_.batches_per_step);
}

int64_t TimePlan::last_validation() const {
  const double room = kEnd * seconds_ - checkpoint_s_ - closing_s(seconds_), batch = validation_batch_s();
  const auto all = static_cast<double>(options_.validation_batches);
  return static_cast<int64_t>(batch > 0 ? std::clamp(std::floor(room / batch), 1.0, all) : all);
}

double TimePlan::end_s() const {
  return static_cast<double>(last_validation()) * validation_batch_s() + checkpoint_s_ + closing_s(seconds_);
}

double TimePlan::allowance() const { return std::max(0.0, kOverhead * seconds_ - end_s()); }

double TimePlan::affordable(double now) const { return allowance() * fraction(now) - overhead_; }

int64_t TimePlan::quick_validation() const {
  const int64_t wanted = std::min(kInterimValidationBatches, options_.validation_batches);
  const double batch = validation_batch_s();
  if (batch <= 0) return wanted;
  const double room = std::floor(allowance() / kFewValidations / batch);
  return static_cast<int64_t>(std::clamp(room, 1.0, static_cast<double>(wanted)));
}

int64_t TimePlan::validation_due(double now) const {
  const int64_t batches = quick_validation();
  double cost = static_cast<double>(batches) * validation_batch_s();
  // Wait until there is time for both, unless that would be late in the run.
  if (checkpoint_due_ && cost + checkpoint_s_ <= allowance() / 2) cost += checkpoint_s_;
  return validation_due_ && cost <= affordable(now) ? batches : 0;
}

bool TimePlan::checkpoint_due(double now) const {
  return checkpoint_due_ && !validation_due_ && checkpoint_s_ <= affordable(now);
}

double TimePlan::overhead_to_come() const {
  const auto steps_left = static_cast<double>(steps_.steps() - taken_);
  const auto times = [&](int64_t every) {
    return every > 0 ? steps_left / static_cast<double>(every) : static_cast<double>(kTenths - 1 - tenths_);
  };
  const double validation = static_cast<double>(quick_validation()) * validation_batch_s();
  const int64_t checkpoint_every = options_.checkpoint_every > 0 ? options_.checkpoint_every : options_.eval_every;
  const double wanted = times(options_.eval_every) * validation + times(checkpoint_every) * checkpoint_s_;
  return std::min(wanted, allowance() - overhead_);
}

void TimePlan::probed(double seconds) {
  overhead_ += seconds;
  validation_batch_s_ = seconds;
}

void TimePlan::validated(double seconds, int64_t batches) {
  overhead_ += seconds;
  validation_batch_s_ = seconds / static_cast<double>(std::max<int64_t>(batches, 1));
  validation_due_ = false;
}

void TimePlan::saved(double seconds) {
  overhead_ += seconds;
  checkpoint_s_ = seconds;
  checkpoint_due_ = false;
}

io::Settings TimePlan::state(double now) const {
  io::Settings state = {
      {"max_seconds", seconds_}, {"elapsed_s", now}, {"overhead_s", overhead_}, {"checkpoint_s", checkpoint_s_}};
  if (options_.warmup) state["warmup_steps"] = *options_.warmup;
  if (validation_batch_s_) state["validation_batch_s"] = *validation_batch_s_;
  return state;
}

}  // namespace lorry::cli
