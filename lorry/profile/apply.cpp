#include "lorry/profile/apply.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/base/units.h"
#include "lorry/compile/compile.h"
#include "lorry/device/device.h"
#include "lorry/profile/benchmark.h"
#include "lorry/profile/recorded_calls.h"
#include "lorry/profile/session.h"
#include "lorry/replay/graph.h"

namespace lorry::profile {
namespace {

using Kind = Finding::Kind;

void require_valid(const ApplyOptions& options) {
  const auto positive = [](const char* name, auto value) {
    if (!(value > 0)) raise_as<ValueError>("apply", "{} is not positive; got {}", name, value);
  };
  positive("warm_up", options.warm_up), positive("steps", options.steps), positive("seconds", options.seconds);
}

/// Makes the step at least `warm_up` times, and for a tenth of `seconds`: a processor and a GPU take a while to reach
/// their clocks. Returns how many steps take as long, and at least `steps`.
int64_t warm_up(const std::function<void()>& step, const ApplyOptions& options) {
  constexpr int64_t kAhead = 16;  // steps after which the device is waited for
  const double begin = detail::steady_seconds(), wanted = 0.1 * options.seconds;
  double taken = 0;
  int64_t made = 0;
  while (made < options.warm_up || taken < wanted) {
    step();
    if (++made % kAhead == 0) device::synchronize(options.device);
    taken = detail::steady_seconds() - begin;
  }
  device::synchronize(options.device);
  taken = detail::steady_seconds() - begin;
  return std::max(options.steps, static_cast<int64_t>(wanted / taken * static_cast<double>(made)));
}

/// Recorded steps and what is wrong with them.
struct Diagnosed {
  Recording recording;
  Diagnosis diagnosis;
  int64_t steps;

  /// What the cures of a kind are to gain, in microseconds a step.
  double gain_us(Kind kind) const {
    double sum = 0;
    for (const Finding& x : diagnosis.findings)
      if (x.kind == kind && x.can_apply) sum += x.gain_ns;
    return sum / 1000 / static_cast<double>(steps);
  }
};

Diagnosed record(const std::function<void()>& step, int64_t steps, const ApplyOptions& options) {
  Session session({.memory = false});
  for (int64_t i = 0; i < steps; ++i) step();
  Recording recording = session.stop();
  Diagnosis diagnosis = diagnose(recording, options.diagnose);
  return {std::move(recording), std::move(diagnosis), steps};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Measures cures of diagnosed steps.
///
/// The speed of a host changes within seconds, by half as much again on a shared machine. So a cure is measured in
/// rounds, and in each of them the step is also diagnosed again: what is predicted and what is achieved are of the same
/// moments. The results are medians of the rounds.
class Trials {
 public:
  Trials(const Diagnosed& first, const std::function<void()>& step, const ApplyOptions& options)
      : first_(first),
        options_(options),
        ceilings_({first.diagnosis.ceilings}),
        program_(first.recording, ceilings_),
        step_(step) {}

  /// A cure of the whole step: against all findings of its kind. None if there are none.
  void add(const Cure& cure, std::vector<TriedCure>& to) const {
    TriedCure tried{.kind = cure.kind, .cure = cure.name};
    double largest = -1;
    for (const Finding& x : first_.diagnosis.findings) {
      if (x.kind != cure.kind || !x.can_apply) continue;
      ++tried.findings;
      if (x.gain_ns > largest) largest = x.gain_ns, tried.what = x.what, tried.path = x.path, tried.line = x.line;
    }
    if (tried.findings == 0 && !options_.everything) return;
    const auto gain_us = [&](int64_t round) {
      if (tried.findings == 0) return 0.0;
      return round == 0 ? first_.gain_us(cure.kind) : record(step_, first_.steps, options_).gain_us(cure.kind);
    };
    measure(tried, [&] { return Measured{step_, cure.make(), 1}; }, gain_us);
    to.push_back(std::move(tried));
  }
  /// A cure of the calls that one finding is about.
  void add(const Finding& x, const char* cure, std::optional<CallPair> (*calls)(const ProgramView&, const Finding&),
           std::vector<TriedCure>& to) const {
    TriedCure tried{.kind = x.kind, .what = x.what, .cure = cure, .path = x.path, .line = x.line, .findings = 1};
    const double steps = static_cast<double>(first_.steps);
    const auto make = [&] {
      std::optional<CallPair> pair = calls(program_, x);
      if (!pair) raise_as<ValueError>("apply", "the recorded calls cannot be made again from what was recorded");
      const double times = static_cast<double>(x.count) / static_cast<double>(pair->count) / steps;
      return Measured{std::move(pair->now), std::move(pair->then), times};
    };
    measure(tried, make, [&](int64_t) { return x.gain_ns / 1000 / steps; });
    to.push_back(std::move(tried));
  }

 private:
  static constexpr int64_t kRounds = 5;

  struct Measured {
    std::function<void()> now, then;
    double times;  ///< how often a step has them
  };
  /// make() returns a Measured; gain_us(round) what a round predicts.
  template <class Make, class Gain>
  void measure(TriedCure& tried, const Make& make, const Gain& gain_us) const {
    try {
      const auto [now, then, times] = make();
      for (int64_t i = 0; i < options_.warm_up; ++i) then();
      const double seconds = options_.seconds / kRounds;
      std::vector<double> predicted, achieved, now_us, then_us, low, high;
      for (int64_t round = 0; round < kRounds; ++round) {
        predicted.push_back(gain_us(round));
        const PairResult r = benchmark_pair(
            now, then, {.warmup_s = 0.1 * seconds, .total_s = seconds, .device = options_.device});
        now_us.push_back(times * r.first.median_us), then_us.push_back(times * r.second.median_us);
        achieved.push_back(-times * r.difference_us);
        low.push_back(-times * r.difference_high_us), high.push_back(-times * r.difference_low_us);
      }
      tried.predicted_us = median(predicted), tried.achieved_us = median(achieved);
      tried.now_us = median(now_us), tried.then_us = median(then_us);
      tried.low_us = *std::ranges::min_element(low), tried.high_us = *std::ranges::max_element(high);
    } catch (const std::exception& error) {
      tried.failed = error.what();
    }
  }

  const Diagnosed& first_;
  const ApplyOptions& options_;
  const std::vector<Ceilings> ceilings_;
  const ProgramView program_;
  const std::function<void()>& step_;
};

}  // namespace

Trial apply(const std::function<void()>& step, const std::vector<Cure>& cures, const ApplyOptions& options) {
  require_valid(options);
  const Diagnosed first = record(step, warm_up(step, options), options);
  Trial trial{.diagnosis = first.diagnosis, .steps = first.steps};
  if (!trial.diagnosis.is_complete()) return trial;
  const Trials trials(first, step, options);
  for (const Cure& cure : cures) trials.add(cure, trial.cures);
  for (const Finding& x : trial.diagnosis.findings) {
    if (!x.can_apply) continue;
    if (x.kind == Kind::foreach) trials.add(x, "one foreach call for each operator", loop_and_list, trial.cures);
    if (x.kind == Kind::pageable) trials.add(x, "pinned memory, non_blocking", pageable_and_pinned, trial.cures);
  }
  return trial;
}

Trial apply(const std::function<std::vector<Tensor>()>& function, const ApplyOptions& options) {
  const auto compiled = [&]() -> std::function<void()> {
    return [same = lorry::compile(function, {.wait = true, .epilogues = false})] { do_not_optimize(same()); };
  };
  const auto captured = [&]() -> std::function<void()> {
    const auto graph = std::make_shared<replay::Graph>(function, replay::CaptureOptions{.device = options.device});
    return [graph] { graph->replay(); };
  };
  return apply([&] { do_not_optimize(function()); },
               {{.kind = Kind::fuse, .name = "lorry::compile", .make = compiled},
                {.kind = Kind::graph, .name = "replay::Graph", .make = captured}},
               options);
}

std::string to_string(const Trial& trial) {
  if (!trial.diagnosis.is_complete()) {
    std::string text = "no cure was tried, because the recording is incomplete:\n";
    for (const std::string& why : trial.diagnosis.incomplete) text += "  " + why + "\n";
    return text;
  }
  if (trial.cures.empty()) return "nothing was found that Lorry can cure itself\n";
  size_t width = 16;
  for (const TriedCure& x : trial.cures) width = std::max(width, x.cure.size());
  std::string text = fmt::format("{:<{}} {:<10} {:>10} {:>10} {:>10} {:>10} {:>6}\n", "cure", width, "for", "now",
                                 "then", "predicted", "achieved", "ratio");
  for (const TriedCure& x : trial.cures) {
    text += fmt::format("{:<{}} {:<10}", x.cure, width, name(x.kind));
    if (!x.failed.empty()) {
      text += fmt::format(" not possible: {}\n", x.failed);
      continue;
    }
    text += fmt::format(" {:>10} {:>10} {:>10} {:>10} {:>6}\n", duration_text(x.now_us), duration_text(x.then_us),
                        x.findings > 0 ? duration_text(x.predicted_us) : "-", duration_text(x.achieved_us),
                        x.predicted_us > 0 ? fmt::format("{:.2f}", x.ratio()) : "-");
    if (!x.line.empty() || !x.path.empty()) text += fmt::format("  {} {}\n", x.line, x.path);
  }
  return text + "times and gains are for one step; the ratio is achieved to predicted\n";
}

std::string to_json(const Trial& trial) {
  nlohmann::ordered_json json = {{"steps", trial.steps}, {"incomplete", trial.diagnosis.incomplete}};
  json["cures"] = nlohmann::ordered_json::array();
  for (const TriedCure& x : trial.cures) {
    nlohmann::ordered_json row = {{"kind", name(x.kind)}, {"what", x.what}, {"cure", x.cure},
                                  {"module", x.path},     {"line", x.line}, {"findings", x.findings}};
    if (!x.failed.empty()) {
      row["failed"] = x.failed;
    } else {
      row["now_us"] = x.now_us, row["then_us"] = x.then_us, row["predicted_us"] = x.predicted_us;
      row["achieved_us"] = x.achieved_us, row["low_us"] = x.low_us, row["high_us"] = x.high_us;
      row["ratio"] = x.ratio();
    }
    json["cures"].push_back(std::move(row));
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lorry::profile
