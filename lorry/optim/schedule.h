#pragma once

// Learning rates as functions of the step, and the object that hands them to an optimizer.

#include <cstdint>
#include <string_view>

#include "lorry/optim/optimizer.h"

namespace lorry::optim {

/// A linear warm-up to `lr` over `warmup` steps, then constant, or falling to `min_lr` at step `steps` along a line or half a
/// cosine (Loshchilov, Hutter 2017, eq. 5, without restarts).
struct Schedule {
  enum class Kind { constant, linear, cosine };
  Kind kind = Kind::constant;
  double lr = 1e-3, min_lr = 0;
  int64_t warmup = 0, steps = 0;

  /// The rate of a step, counted from 0; after `steps` it stays at min_lr.
  double at(int64_t step) const;
};

/// The kind called "constant", "linear" or "cosine". Throws ValueError.
Schedule::Kind parse_schedule(std::string_view text);
std::string_view name(Schedule::Kind kind);

/// Sets every group's rate for the coming step. Its whole state is the number of steps done.
class LRScheduler {
 public:
  /// Throws ValueError for a schedule out of its domain: rates >= 0 and finite, min_lr <= lr, 0 <= warmup, and warmup < steps
  /// unless the schedule is constant.
  LRScheduler(Optimizer& optimizer, const Schedule& schedule, int64_t steps_done = 0);

  /// After optimizer.step(): moves on to the next rate.
  void step() { seek(steps_done_ + 1); }
  /// Continues from a checkpoint.
  void seek(int64_t steps_done);
  int64_t steps_done() const { return steps_done_; }
  double lr() const { return schedule_.at(steps_done_); }

 private:
  Optimizer& optimizer_;
  Schedule schedule_;
  int64_t steps_done_ = 0;
};

}  // namespace lorry::optim
