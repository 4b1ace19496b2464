#include "lorry/optim/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

#include "lorry/autograd/grad_mode.h"
#include "lorry/trace/recorder.h"

namespace lorry::optim {
namespace {

using Kind = Schedule::Kind;

constexpr std::array<std::string_view, 9> kKinds = {
    "constant", "linear", "cosine", "cosine_restarts", "one_cycle", "step", "multi_step", "exponential", "polynomial"};

bool ends(Kind kind) {
  return kind == Kind::linear || kind == Kind::cosine || kind == Kind::one_cycle || kind == Kind::polynomial;
}

/// 1 at 0, 0 at 1, along half a cosine.
double half_cosine(double x) { return 0.5 * (1 + std::cos(std::numbers::pi * x)); }

/// How far the current period of cosine_restarts is gone.
double restarts(int64_t t, int64_t period, int64_t factor) {
  if (factor == 1) {
    t %= period;
  } else {
    while (t >= period) {
      t -= period;
      if (__builtin_mul_overflow(period, factor, &period)) period = std::numeric_limits<int64_t>::max();
    }
  }
  return static_cast<double>(t) / static_cast<double>(period);
}

/// The first phase ends on the step before pct_start of them are done, and the last on the last step: hence the ones.
double one_cycle(const Schedule& s, double t, double top) {
  struct Phase {
    double end, from, to;
  };
  const double total = static_cast<double>(s.steps - s.warmup), first = top / s.div_factor,
               last = first / s.final_div_factor;
  const double rise = s.pct_start * total - 1;
  const Phase two[] = {{rise, first, top}, {total - 1, top, last}};
  const Phase three[] = {{rise, first, top}, {2 * rise, top, first}, {total - 1, first, last}};
  std::span<const Phase> phases = two;
  if (s.three_phase) phases = three;
  double begin = 0;
  while (phases.size() > 1 && t > phases[0].end) {
    begin = phases[0].end;
    phases = phases.subspan(1);
  }
  const auto [end, from, to] = phases[0];
  const double progress = end > begin ? std::min(1.0, (t - begin) / (end - begin)) : 1;
  return s.anneal == Schedule::Anneal::linear ? from + (to - from) * progress
                                              : to + (from - to) * half_cosine(progress);
}

double after_warmup(const Schedule& s, int64_t t, double base) {
  const auto progress = [&] { return std::min(1.0, static_cast<double>(t) / static_cast<double>(s.steps - s.warmup)); };
  const auto decayed = [&](int64_t times) {
    return std::max(s.min_lr, base * std::pow(s.gamma, static_cast<double>(times)));
  };
  switch (s.kind) {
    case Kind::constant:
      return base;
    case Kind::linear:
      return base + (s.min_lr - base) * progress();
    case Kind::cosine:
      return cosine_decay(base, s.min_lr, progress());
    case Kind::cosine_restarts:
      return cosine_decay(base, s.min_lr, restarts(t, s.t_0, s.t_mult));
    case Kind::one_cycle:
      return one_cycle(s, static_cast<double>(t), base);
    case Kind::step:
      return decayed(t / s.step_size);
    case Kind::multi_step:
      return decayed(std::ranges::upper_bound(s.milestones, t) - s.milestones.begin());
    case Kind::exponential:
      return decayed(t);
    case Kind::polynomial:
      return s.min_lr + (base - s.min_lr) * std::pow(1 - progress(), s.power);
  }
  return base;
}

void require_rate(const char* what, double rate) {
  require<ValueError>(rate >= 0 && std::isfinite(rate),
                      "schedule: {} is out of range; got {}; expected a finite number >= 0", what, rate);
}

void require_numbers_of_kind(const Schedule& s) {
  const auto positive = [](const char* what, int64_t count) {
    require<ValueError>(count >= 1, "schedule: {} is out of range; got {}; expected at least 1", what, count);
  };
  const auto divisor = [](const char* what, double x) {
    require<ValueError>(x >= 1 && std::isfinite(x),
                        "schedule: {} is out of range; got {}; expected a finite number >= 1", what, x);
  };
  const bool decays = s.kind == Kind::step || s.kind == Kind::multi_step || s.kind == Kind::exponential;
  if (decays) require_rate("gamma", s.gamma);
  if (s.kind == Kind::step) positive("step_size", s.step_size);
  if (s.kind == Kind::multi_step)
    require<ValueError>(std::ranges::is_sorted(s.milestones),
                        "schedule: milestones are out of order; got [{}]; expected them ascending",
                        fmt::join(s.milestones, ", "));
  if (s.kind == Kind::polynomial)
    require<ValueError>(s.power > 0 && std::isfinite(s.power),
                        "schedule: power is out of range; got {}; expected a finite number > 0", s.power);
  if (s.kind == Kind::cosine_restarts) positive("t_0", s.t_0), positive("t_mult", s.t_mult);
  if (s.kind != Kind::one_cycle) return;
  const double most = s.three_phase ? 0.5 : 1;  // the second of three phases is as long as the first
  require<ValueError>(s.pct_start >= 0 && s.pct_start <= most,
                      "schedule: pct_start is out of range; got {}; expected 0 to {}", s.pct_start, most);
  divisor("div_factor", s.div_factor);
  divisor("final_div_factor", s.final_div_factor);
  require<ValueError>(s.min_lr == 0,
                      "schedule: one_cycle takes no min_lr; got {}; it ends at lr / (div_factor * final_div_factor)",
                      s.min_lr);
}

/// Throws ValueError for a schedule out of its domain.
void require_valid(const Schedule& s) {
  if (s.lr) {
    require_rate("lr", *s.lr);
    require<ValueError>(s.min_lr >= 0 && s.min_lr <= *s.lr,
                        "schedule: min_lr is out of range; got {}; expected 0 to lr, {}", s.min_lr, *s.lr);
  }
  require_rate("min_lr", s.min_lr);
  require<ValueError>(s.warmup >= 0, "schedule: warmup is out of range; got {}; expected at least 0", s.warmup);
  require<ValueError>(!ends(s.kind) || s.steps > s.warmup,
                      "schedule: steps do not reach past the warm-up; got {} steps with a warm-up of {}", s.steps,
                      s.warmup);
  require_numbers_of_kind(s);
}

/// Reads a state_dict entry by entry; done() refuses what is left.
class StateReader {
 public:
  StateReader(const char* where, SchedulerState state) : where_(where), state_(std::move(state)) {}

  bool has(const std::string& name) const { return state_.contains(name); }
  double number(const std::string& name) {
    const auto entry = state_.extract(name);
    require<FormatError>(!entry.empty(), "{}: the state has no '{}'", where_, name);
    return entry.mapped();
  }
  int64_t count(const std::string& name) {
    const double x = number(name);
    require<FormatError>(x >= 0 && x < 0x1p53 && x == std::floor(x), "{}: '{}' is no count; got {}", where_, name, x);
    return static_cast<int64_t>(x);
  }
  double rate(const std::string& name) {
    const double x = number(name);
    require<FormatError>(x >= 0 && std::isfinite(x), "{}: '{}' is no learning rate; got {}", where_, name, x);
    return x;
  }
  std::vector<double> rates(const std::string& prefix, int groups) {
    std::vector<double> rates;
    for (int g = 0; g < groups; ++g) rates.push_back(rate(prefix + std::to_string(g)));
    return rates;
  }
  void done() const {
    require<FormatError>(state_.empty(), "{}: the state has an unexpected '{}'", where_,
                         state_.empty() ? "" : state_.begin()->first);
  }

 private:
  const char* where_;
  SchedulerState state_;
};

/// As PyTorch's schedulers do: a rate that lies in a tensor is written there.
void set_rate(Optimizer& optimizer, int group, double rate) {
  const Tensor tensor = optimizer.setting_tensor(group, "lr");
  if (!tensor.defined()) return optimizer.set_lr(group, rate);
  const NoGrad quiet;
  tensor.fill_(rate);
}

void require_group(const char* where, int group, size_t groups) {
  require<IndexError>(group >= 0 && static_cast<size_t>(group) < groups, "{}: there is no group {}; got {} groups",
                      where, group, groups);
}

}  // namespace

double Schedule::at(int64_t step, double base) const {
  require_valid(*this);
  require<ValueError>(step >= 0, "schedule: the step is out of range; got {}; expected at least 0", step);
  require_rate("lr", base);
  if (step >= warmup) return after_warmup(*this, step - warmup, base);
  const double first = kind == Kind::one_cycle ? base / div_factor : base;
  return first * static_cast<double>(step + 1) / static_cast<double>(warmup);
}

double Schedule::at(int64_t step) const {
  require<ValueError>(lr.has_value(), "schedule: it has no lr of its own; give at() a group's");
  return at(step, *lr);
}

double cosine_decay(double lr, double min_lr, double done) { return min_lr + (lr - min_lr) * half_cosine(done); }

Schedule::Kind parse_schedule(std::string_view text) {
  const auto found = std::ranges::find(kKinds, text);
  require<ValueError>(found != kKinds.end(), "schedule: unknown name; got '{}'; expected one of {}", text,
                      fmt::join(kKinds, ", "));
  return static_cast<Kind>(found - kKinds.begin());
}

std::string_view name(Schedule::Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

LRScheduler::LRScheduler(Optimizer& optimizer, const Schedule& schedule, int64_t steps_done)
    : optimizer_(optimizer), schedule_(schedule) {
  require_valid(schedule);
  seek(steps_done);
}

void LRScheduler::step() {
  trace::host_callback(
      "LRScheduler::step", [this] { seek(steps_done_ + 1); }, true);
}

void LRScheduler::seek(int64_t steps_done) {
  require<ValueError>(steps_done >= 0, "schedule: steps done are out of range; got {}; expected at least 0",
                      steps_done);
  for (int g = static_cast<int>(bases_.size()); g < optimizer_.groups(); ++g) {
    const double base = base_of(g);
    require<ValueError>(base >= schedule_.min_lr,
                        "schedule: min_lr is out of range; got {}; expected 0 to the lr of group {}, {}",
                        schedule_.min_lr, g, base);
    bases_.push_back(base);
  }
  steps_done_ = steps_done;
  for (int g = 0; g < optimizer_.groups(); ++g) set_rate(optimizer_, g, lr(g));
}

/// Of a group that was added since the last step too.
double LRScheduler::base_of(int group) const {
  return static_cast<size_t>(group) < bases_.size() ? bases_[group] : schedule_.lr.value_or(optimizer_.lr(group));
}

double LRScheduler::lr(int group) const {
  require_group("schedule", group, bases_.size());
  return schedule_.at(steps_done_, bases_[group]);
}

SchedulerState LRScheduler::state_dict() const {
  SchedulerState state{{"steps_done", static_cast<double>(steps_done_)}};
  for (int g = 0; g < optimizer_.groups(); ++g) state["base_lr." + std::to_string(g)] = base_of(g);
  return state;
}

void LRScheduler::load_state_dict(const SchedulerState& state) {
  StateReader reader("schedule", state);
  const int64_t steps_done = reader.count("steps_done");
  std::vector<double> bases = reader.rates("base_lr.", optimizer_.groups());
  reader.done();
  bases_ = std::move(bases);
  seek(steps_done);
}

ReduceOnPlateau::ReduceOnPlateau(Optimizer& optimizer, const PlateauOptions& options)
    : optimizer_(optimizer), options_(options), best_(nothing_yet()) {
  const PlateauOptions& o = options;
  const auto positive = [](const char* what, double x) {
    require<ValueError>(x >= 0 && std::isfinite(x),
                        "reduce_on_plateau: {} is out of range; got {}; expected a finite number >= 0", what, x);
  };
  const auto count = [](const char* what, int64_t x) {
    require<ValueError>(x >= 0, "reduce_on_plateau: {} is out of range; got {}; expected at least 0", what, x);
  };
  require<ValueError>(o.factor >= 0 && o.factor < 1,
                      "reduce_on_plateau: factor is out of range; got {}; expected 0 <= factor < 1", o.factor);
  positive("threshold", o.threshold), positive("min_lr", o.min_lr), positive("eps", o.eps);
  count("patience", o.patience), count("cooldown", o.cooldown), count("warmup", o.warmup);
  set_rates();
}

void ReduceOnPlateau::step(double metric) {
  const PlateauOptions& o = options_;
  const double sign = o.mode == PlateauOptions::Mode::min ? 1 : -1;
  const double limit = o.threshold_mode == PlateauOptions::Threshold::rel ? best_ * (1 - sign * o.threshold)
                                                                          : best_ - sign * o.threshold;
  if (sign * metric < sign * limit) {
    best_ = metric;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= o.patience) return;
  bad_ = 0;
  cooldown_ = o.cooldown;
  for (double& rate : rates_) {
    const double reduced = std::max(rate * o.factor, o.min_lr);
    if (rate - reduced > o.eps) rate = reduced;
  }
  set_rates();
}

void ReduceOnPlateau::warm_up() {
  trace::host_callback("ReduceOnPlateau::warm_up", [this] {
    if (warmed_up_ >= options_.warmup) return;
    ++warmed_up_;
    set_rates();
  });
}

double ReduceOnPlateau::lr(int group) const {
  require_group("reduce_on_plateau", group, rates_.size());
  return Schedule{.warmup = options_.warmup}.at(warmed_up_, rates_[group]);
}

double ReduceOnPlateau::rate_of(int group) const {
  return static_cast<size_t>(group) < rates_.size() ? rates_[group] : optimizer_.lr(group);
}

void ReduceOnPlateau::set_rates() {
  for (int g = static_cast<int>(rates_.size()); g < optimizer_.groups(); ++g) rates_.push_back(rate_of(g));
  for (int g = 0; g < optimizer_.groups(); ++g) set_rate(optimizer_, g, lr(g));
}

SchedulerState ReduceOnPlateau::state_dict() const {
  SchedulerState state{{"bad", static_cast<double>(bad_)},
                       {"cooldown", static_cast<double>(cooldown_)},
                       {"warmed_up", static_cast<double>(warmed_up_)}};
  if (std::isfinite(best_)) state["best"] = best_;
  for (int g = 0; g < optimizer_.groups(); ++g) state["lr." + std::to_string(g)] = rate_of(g);
  return state;
}

void ReduceOnPlateau::load_state_dict(const SchedulerState& state) {
  StateReader reader("reduce_on_plateau", state);
  const int64_t bad = reader.count("bad"), cooldown = reader.count("cooldown"), warmed_up = reader.count("warmed_up");
  const double best = reader.has("best") ? reader.number("best") : nothing_yet();
  std::vector<double> rates = reader.rates("lr.", optimizer_.groups());
  reader.done();
  bad_ = bad, cooldown_ = cooldown, warmed_up_ = warmed_up, best_ = best, rates_ = std::move(rates);
  set_rates();
}

}  // namespace lorry::optim
