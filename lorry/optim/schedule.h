#pragma once

// Learning rates: a Schedule is a function of the step, LRScheduler hands it to an optimizer, and ReduceOnPlateau
// follows a metric instead. Rates reach the device through Optimizer::set_lr; nothing here waits for it.
//
//   LRScheduler scheduler(optimizer, {.kind = Schedule::Kind::cosine, .warmup = 100, .steps = 2000});
//   for (...) { ...; optimizer.step(); scheduler.step(); }
//
// Names and meanings are those of PyTorch's lr_scheduler. A schedule is computed from the step alone, so that a run can
// be resumed, or sent anywhere with seek(), and has the same rates to the bit.

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lorry/optim/optimizer.h"

namespace lorry::optim {

/// A linear warm-up over `warmup` steps, then one of the kinds. Each scales a base rate, the rate of a group as it was
/// made, or `lr` for all groups. `steps` counts the whole run, its warm-up too; all other counts begin after the
/// warm-up. After `steps` the last rate stays.
struct Schedule {
  enum class Kind {
    constant,
    linear,  ///< falls to min_lr at step `steps` along a line
    cosine,  ///< and along half a cosine: Loshchilov, Hutter 2017, eq. 5
    /// that of t_0 steps, again and again, each t_mult times as long as the one before: their section 3
    cosine_restarts,
    /// rises from base / div_factor to the base in the first pct_start of `steps`, then falls to the first rate divided
    /// by final_div_factor; with three_phase it falls to the first rate as fast as it rose: Smith, Topin 2018
    one_cycle,
    step,         ///< times gamma every step_size steps
    multi_step,   ///< times gamma at each of the milestones
    exponential,  ///< times gamma every step
    polynomial,   ///< min_lr + (base - min_lr) * (1 - t / steps)^power
  };
  enum class Anneal { cosine, linear };

  Kind kind = Kind::constant;
  std::optional<double> lr = {};  ///< the base rate of every group; none: each group's own
  double min_lr = 0;              ///< the least rate after the warm-up, except in one_cycle, which has one of its own
  int64_t warmup = 0, steps = 0;

  double gamma = 0.1;
  int64_t step_size = 1;
  std::vector<int64_t> milestones = {};  ///< ascending
  double power = 1;
  int64_t t_0 = 1, t_mult = 1;
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;
  bool three_phase = false;
  Anneal anneal = Anneal::cosine;  ///< of one_cycle

  /// The rate of a step, counted from 0, of a group with this base rate. Throws ValueError for a schedule out of its
  /// domain (see LRScheduler).
  double at(int64_t step, double base) const;
  /// The same for the base rate `lr`. Throws ValueError when there is none, too.
  double at(int64_t step) const;
};

/// From lr to min_lr along half a cosine, as `done` goes from 0 to 1: Loshchilov, Hutter 2017, eq. 5.
double cosine_decay(double lr, double min_lr, double done);

/// The kind called "constant", "linear", "cosine", "cosine_restarts", ...: the enumerator's own name. Throws
/// ValueError.
Schedule::Kind parse_schedule(std::string_view text);
/// The name of a kind, as parse_schedule takes it.
std::string_view name(Schedule::Kind kind);

/// What a scheduler needs to go on: named numbers, ready for the `schedule` of an io::TrainingState.
using SchedulerState = std::map<std::string, double>;

/// Sets every group's rate for the next step. Groups added later join at their own rate.
class LRScheduler {
 public:
  /// Throws ValueError for a schedule out of its domain: finite rates >= 0, min_lr <= every base rate, 0 <= warmup,
  /// warmup < steps for the kinds that end, and for each kind's numbers what makes sense of them.
  LRScheduler(Optimizer& optimizer, const Schedule& schedule, int64_t steps_done = 0);

  /// After optimizer.step(): moves on to the next rate. Inside a compiled function it does so in every call.
  void step();
  /// Continues from a checkpoint of an optimizer made with the same rates; load_state_dict() brings the rates along.
  void seek(int64_t steps_done);
  int64_t steps_done() const { return steps_done_; }
  /// Throws IndexError.
  double lr(int group = 0) const;

  /// "steps_done" and "base_lr.<group>".
  SchedulerState state_dict() const;
  /// Throws FormatError for a missing or unexpected entry and for a number out of its domain; nothing is changed then.
  void load_state_dict(const SchedulerState& state);

 private:
  double base_of(int group) const;

  Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> bases_;  ///< of the groups
  int64_t steps_done_ = 0;
};

/// PyTorch's defaults.
struct PlateauOptions {
  enum class Mode { min, max };
  enum class Threshold { rel, abs };
  Mode mode = Mode::min;    ///< whether a smaller metric is a better one, or a larger
  double factor = 0.1;      ///< what rates are multiplied by
  int64_t patience = 10;    ///< metrics in a row that may be no better
  double threshold = 1e-4;  ///< better means: by more than this, as a part of the best or as it is
  Threshold threshold_mode = Threshold::rel;
  int64_t cooldown = 0;  ///< metrics after a reduction of which the bad ones do not count
  double min_lr = 0;
  double eps = 1e-8;   ///< a rate that would fall by no more than this stays
  int64_t warmup = 0;  ///< optimizer steps
};

/// Reduces the rates when a metric has stopped improving. Each group begins at the rate that it has; to change one
/// later, make another.
class ReduceOnPlateau {
 public:
  /// Throws ValueError for options out of their domain: 0 <= factor < 1, counts >= 0, finite numbers, min_lr and eps >=
  /// 0.
  explicit ReduceOnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});

  /// A new value of the metric, usually after a validation. A NaN is no improvement.
  void step(double metric);
  /// After optimizer.step(), as long as a warm-up lasts or longer.
  void warm_up();
  /// Throws IndexError.
  double lr(int group = 0) const;

  /// "bad", "cooldown", "warmed_up", "lr.<group>" and, once there is one, "best".
  SchedulerState state_dict() const;
  /// Throws FormatError as LRScheduler's does.
  void load_state_dict(const SchedulerState& state);

 private:
  double nothing_yet() const { return options_.mode == PlateauOptions::Mode::min ? kInfinity : -kInfinity; }
  double rate_of(int group) const;
  void set_rates();

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Optimizer& optimizer_;
  PlateauOptions options_;
  std::vector<double> rates_;  ///< of the groups, when warm
  double best_;
  int64_t bad_ = 0, cooldown_ = 0, warmed_up_ = 0;
};

}  // namespace lorry::optim
