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

/// Measures cures of a diagnosed recording.
class Trials {
 public:
  Trials(const Recording& recording, const Trial& trial, const std::function<void()>& step, const ApplyOptions& options)
      : options_(options),
        steps_(static_cast<double>(trial.steps)),
        findings_(trial.diagnosis.findings),
        ceilings_({trial.diagnosis.ceilings}),
        program_(recording, ceilings_),
        step_(step) {}

  /// A cure of the whole step: against all findings of its kind. None if there are none.
  void add(const Cure& cure, std::vector<TriedCure>& to) const {
    TriedCure tried{.kind = cure.kind, .cure = cure.name};
    double largest = -1, recorded_us = 0;
    for (const Finding& x : findings_) {
      if (x.kind != cure.kind || !x.can_apply) continue;
      ++tried.findings;
      recorded_us += x.time_ns / 1000 / steps_, tried.predicted_us += x.gain_ns / 1000 / steps_;
      if (x.gain_ns > largest) largest = x.gain_ns, tried.what = x.what, tried.path = x.path, tried.line = x.line;
    }
    if (tried.findings == 0 && !options_.everything) return;
    measure(tried, [&] { return Measured{step_, cure.make(), 1}; });
    // What a graph gains is a difference of two times, of which that of the whole step is measured now: no need to rely
    // on what recording is thought to have taken, or on a host that is as fast as it was then.
    if (cure.kind == Kind::graph && tried.findings > 0 && tried.failed.empty())
      tried.predicted_us = std::max(0.0, tried.predicted_us + tried.now_us - recorded_us);
    to.push_back(std::move(tried));
  }
  /// A cure of the calls that one finding is about.
  void add(const Finding& x, const char* cure, std::optional<CallPair> (*calls)(const ProgramView&, const Finding&),
           std::vector<TriedCure>& to) const {
    TriedCure tried{.kind = x.kind, .what = x.what, .cure = cure, .path = x.path, .line = x.line, .findings = 1};
    tried.predicted_us = x.gain_ns / 1000 / steps_;
    measure(tried, [&] {
      std::optional<CallPair> pair = calls(program_, x);
      if (!pair) raise_as<ValueError>("apply", "the recorded calls cannot be made again from what was recorded");
      const double times = static_cast<double>(x.count) / static_cast<double>(pair->count) / steps_;
      return Measured{std::move(pair->now), std::move(pair->then), times};
    });
    to.push_back(std::move(tried));
  }

 private:
  struct Measured {
    std::function<void()> now, then;
    double times;  ///< how often a step has them
  };
  /// make() returns a Measured.
  template <class Make>
  void measure(TriedCure& tried, const Make& make) const {
    try {
      const auto [now, then, times] = make();
      for (int64_t i = 0; i < options_.warm_up; ++i) then();
      const PairResult r = benchmark_pair(
          now, then, {.warmup_s = 0.1 * options_.seconds, .total_s = options_.seconds, .device = options_.device});
      tried.now_us = times * r.first.median_us, tried.then_us = times * r.second.median_us;
      tried.achieved_us = -times * r.difference_us;
      tried.low_us = -times * r.difference_high_us, tried.high_us = -times * r.difference_low_us;
    } catch (const std::exception& error) {
      tried.failed = error.what();
    }
  }

  const ApplyOptions& options_;
  const double steps_;
  const std::vector<Finding>& findings_;
  const std::vector<Ceilings> ceilings_;
  const ProgramView program_;
  const std::function<void()>& step_;
};

/// Makes the step at least `warm_up` times, and for a tenth of `seconds`: a processor and a GPU take a while to reach
/// their clocks. Returns how many steps to record: as many as take as long, and at least `steps`.
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

}  // namespace

Trial apply(const std::function<void()>& step, const std::vector<Cure>& cures, const ApplyOptions& options) {
  require_valid(options);
  const int64_t steps = warm_up(step, options);
  Session session({.memory = false});
  for (int64_t i = 0; i < steps; ++i) step();
  const Recording recording = session.stop();
  Trial trial{.diagnosis = diagnose(recording, options.diagnose), .steps = steps};
  if (!trial.diagnosis.is_complete()) return trial;
  const Trials trials(recording, trial, step, options);
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
