#include "lorry/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lorry::optim {

namespace {
constexpr std::string_view kKinds[] = {"constant", "linear", "cosine"};
}

double Schedule::at(int64_t step) const {
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (kind == Kind::constant) return lr;
  const double progress = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(steps - warmup));
  if (kind == Kind::linear) return lr + (min_lr - lr) * progress;
  return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

Schedule::Kind parse_schedule(std::string_view text) {
  for (const auto kind : {Schedule::Kind::constant, Schedule::Kind::linear, Schedule::Kind::cosine})
    if (name(kind) == text) return kind;
  raise<ValueError>("schedule: unknown name; got '{}'; expected constant, linear or cosine", text);
}

std::string_view name(Schedule::Kind kind) { return kKinds[static_cast<int>(kind)]; }

LRScheduler::LRScheduler(Optimizer& optimizer, const Schedule& schedule, int64_t steps_done) : optimizer_(optimizer), schedule_(schedule) {
  const Schedule& s = schedule;
  require<ValueError>(s.lr >= 0 && std::isfinite(s.lr), "schedule: lr is out of range; got {}; expected a finite number >= 0", s.lr);
  require<ValueError>(s.min_lr >= 0 && s.min_lr <= s.lr, "schedule: min_lr is out of range; got {}; expected 0 to lr, {}", s.min_lr, s.lr);
  require<ValueError>(s.warmup >= 0, "schedule: warmup is out of range; got {}; expected at least 0", s.warmup);
  require<ValueError>(s.kind == Schedule::Kind::constant || s.steps > s.warmup,
                      "schedule: steps do not reach past the warm-up; got {} steps with a warm-up of {}", s.steps, s.warmup);
  seek(steps_done);
}

void LRScheduler::seek(int64_t steps_done) {
  require<ValueError>(steps_done >= 0, "schedule: steps done are out of range; got {}; expected at least 0", steps_done);
  steps_done_ = steps_done;
  optimizer_.set_lr(lr());
}

}  // namespace lorry::optim
