// The planted culprits (culprits.h), recorded and diagnosed. Prints a line for each program: its regime, waits and
// findings, and what was expected. With LORRY_CULPRITS_JSON=FILE the programs are timed too, and the figures are
// written to that file, predicted beside achieved. LORRY_CULPRITS_ONLY=TEXT runs those that have TEXT in their names.

#include "tests/profile/culprits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "lorry/device/device.h"
#include "lorry/profile/session.h"
#include "tests/support/on_cuda.h"

namespace lorry::test {
namespace {

using profile::Diagnosis;
using profile::Finding;
using Json = nlohmann::ordered_json;

bool contains(const std::vector<Finding::Kind>& list, Finding::Kind kind) {
  return std::ranges::find(list, kind) != list.end();
}

/// Nanoseconds of `repeats` runs, with the work of the device. Recorded: under a session, as diagnosed idle times are.
double time_ns(const std::function<void()>& run, int repeats, Device device, bool is_recorded) {
  std::optional<profile::Session> session;
  if (is_recorded) session.emplace(profile::SessionOptions{.memory = false});
  device::synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) run();
  device::synchronize(device);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

/// Values of several rounds. Their middle half says how far they are apart.
class Samples {
 public:
  void add(double value) { values_.insert(std::ranges::upper_bound(values_, value), value); }
  double median() const { return at(0.5); }
  double quarter() const { return at(0.25); }
  double three_quarters() const { return at(0.75); }

 private:
  double at(double share) const {
    return values_[static_cast<size_t>(share * static_cast<double>(values_.size() - 1) + 0.5)];
  }
  std::vector<double> values_;
};

/// A program beside its cured form, in nanoseconds.
struct Comparison {
  Samples predicted, run, cured, achieved;
};

struct Verdict {
  Diagnosis diagnosis;
  bool right_regime = false;
  std::vector<std::string> missed, false_alarms;
  int reports = 0;  ///< findings, and waits that are to blame
  double predicted_ns = 0;
  std::optional<Comparison> comparison = {};
  size_t spans = 0;
};

void judge_findings(const Culprit& culprit, Verdict& to) {
  for (const Finding::Kind kind : culprit.findings)
    if (std::ranges::find(to.diagnosis.findings, kind, &Finding::kind) == to.diagnosis.findings.end())
      to.missed.emplace_back(profile::name(kind));
  for (const Finding& x : to.diagnosis.findings) {
    ++to.reports;
    if (!contains(culprit.findings, x.kind) && !contains(culprit.tolerated, x.kind))
      to.false_alarms.push_back(fmt::format("{}: {}", profile::name(x.kind), x.what));
  }
}

void judge_waits(const Culprit& culprit, Verdict& to) {
  for (const PlantedWait& planted : culprit.waits) {
    int64_t count = 0, joinable = 0;
    bool is_needed = false;
    for (const profile::WaitReport& x : to.diagnosis.waits)
      if (x.name == planted.name) count += x.count, joinable += x.could_join, is_needed |= x.is_needed;
    const bool joins = planted.joinable < 0 || joinable == culprit.repeats * planted.joinable;
    const bool found =
        count == culprit.repeats * planted.count && joins && is_needed == planted.is_needed.value_or(is_needed);
    if (!found)
      to.missed.push_back(fmt::format("{} x {}, {} joinable, {}; found {}, {}, {}", culprit.repeats * planted.count,
                                      planted.name, culprit.repeats * planted.joinable,
                                      planted.is_needed.value_or(is_needed) ? "needed" : "to blame", count, joinable,
                                      is_needed ? "needed" : "to blame"));
  }
  for (const profile::WaitReport& x : to.diagnosis.waits) {
    to.reports += !x.is_needed;
    const bool planted = std::ranges::find(culprit.waits, x.name, &PlantedWait::name) != culprit.waits.end();
    if (!planted && !x.is_needed && x.idle_caused_ns > to.diagnosis.duration_ns / 50)
      to.false_alarms.push_back(fmt::format("wait of {}", x.name));
  }
}

double predicted_ns(const Culprit& culprit, const Diagnosis& d) {
  double ns = 0;
  if (culprit.compares_idle)
    for (const profile::WaitReport& x : d.waits) ns += static_cast<double>(x.idle_caused_ns);
  else if (!culprit.findings.empty())
    for (const Finding& x : d.findings)
      if (x.kind == culprit.findings[0]) ns += x.gain_ns;
  return ns;
}

Verdict judge(const Culprit& culprit, const Program& program, const profile::Ceilings& here) {
  profile::Session session({.memory = false});
  for (int i = 0; i < culprit.repeats; ++i) program.run();
  Verdict verdict;
  const profile::Recording recording = session.stop();
  verdict.diagnosis = profile::diagnose(recording, {.ceilings = {here}});
  verdict.spans = recording.spans.size();
  verdict.right_regime = verdict.diagnosis.is_complete() && verdict.diagnosis.regime == culprit.regime;
  judge_findings(culprit, verdict);
  judge_waits(culprit, verdict);
  verdict.predicted_ns = predicted_ns(culprit, verdict.diagnosis);
  device::synchronize(here.device);
  return verdict;
}

/// In each round the program is diagnosed and timed, and its cured form is timed, one right after the other: what else
/// happens on the machine happens to all of them.
Comparison compare(const Culprit& culprit, const Program& program, const profile::Ceilings& here) {
  constexpr int kRounds = 15;
  Comparison made;
  for (int i = 0; i < 3; ++i) program.cured();
  for (int i = 0; i < kRounds; ++i) {
    made.predicted.add(judge(culprit, program, here).predicted_ns);
    const double run = time_ns(program.run, culprit.repeats, here.device, culprit.compares_idle);
    const double cured = time_ns(program.cured, culprit.repeats, here.device, culprit.compares_idle);
    made.run.add(run), made.cured.add(cured), made.achieved.add(run - cured);
  }
  return made;
}

std::string line_of(const Culprit& culprit, const Verdict& v) {
  const Diagnosis& d = v.diagnosis;
  std::string text = fmt::format("{:<32}", culprit.name);
  if (!d.is_complete()) return text + fmt::format(" incomplete: {}", fmt::join(d.incomplete, "; "));
  const double whole = d.times.total();
  text += fmt::format(" {:<8} {:3.0f} % of {:8.0f} us (planted {})", profile::name(d.regime),
                      100 * d.times[d.regime] / whole, static_cast<double>(d.duration_ns) / 1e3,
                      profile::name(culprit.regime));
  for (const profile::WaitReport& x : d.waits)
    text += fmt::format("; {} x {}{}: idle {:.0f} us", x.count, x.name, x.is_needed ? " (needed)" : "",
                        static_cast<double>(x.idle_caused_ns) / 1e3);
  for (const Finding& x : d.findings) text += fmt::format("; {} {:.0f} us", profile::name(x.kind), x.gain_ns / 1e3);
  if (const auto& c = v.comparison)
    text +=
        fmt::format("; predicted {:.0f} ({:.0f} to {:.0f}) us, achieved {:.0f} ({:.0f} to {:.0f}) of {:.0f} us: {:.2f}",
                    c->predicted.median() / 1e3, c->predicted.quarter() / 1e3, c->predicted.three_quarters() / 1e3,
                    c->achieved.median() / 1e3, c->achieved.quarter() / 1e3, c->achieved.three_quarters() / 1e3,
                    c->run.median() / 1e3, c->achieved.median() / c->predicted.median());
  if (!v.missed.empty()) text += fmt::format("; MISSED {}", fmt::join(v.missed, " | "));
  if (!v.false_alarms.empty()) text += fmt::format("; FALSE {}", fmt::join(v.false_alarms, " | "));
  return text;
}

Json json_of(const Culprit& culprit, const Verdict& v) {
  Json json = {{"name", culprit.name},
               {"expected_regime", profile::name(culprit.regime)},
               {"right_regime", v.right_regime},
               {"missed", v.missed},
               {"false_alarms", v.false_alarms},
               {"reports", v.reports},
               {"compares", culprit.compares_idle ? "idle" : "gain"},
               {"spans", v.spans},
               {"diagnosis", Json::parse(profile::to_json(v.diagnosis))}};
  const auto add = [&](const char* name, const Samples& x) {
    json[name] = {{"median", x.median()}, {"quarter", x.quarter()}, {"three_quarters", x.three_quarters()}};
  };
  if (const auto& c = v.comparison) {
    add("predicted_ns", c->predicted), add("achieved_ns", c->achieved);
    add("run_ns", c->run), add("cured_ns", c->cured);
  }
  return json;
}

void expect_right_diagnoses(const std::vector<Culprit>& culprits, Device device) {
  const char* const file = std::getenv("LORRY_CULPRITS_JSON");
  const char* const only = std::getenv("LORRY_CULPRITS_ONLY");
  // Measured now: another test of this process may have read others from a file of its own.
  const profile::Ceilings here = profile::ceilings(device, {.remeasure = true, .use_files = false});
  Json json = Json::array();
  int reports = 0, false_alarms = 0;
  for (const Culprit& culprit : culprits) {
    if (only != nullptr && std::string(culprit.name).find(only) == std::string::npos) continue;
    SCOPED_TRACE(culprit.name);
    const Program program = culprit.make(device);
    for (int i = 0; i < 2; ++i) program.run();
    Verdict verdict = judge(culprit, program, here);
    // Another program may have taken the processor meanwhile.
    if (!verdict.right_regime || !verdict.missed.empty() || !verdict.false_alarms.empty())
      verdict = judge(culprit, program, here);
    if (file != nullptr && program.cured) verdict.comparison = compare(culprit, program, here);
    fmt::print("{}\n", line_of(culprit, verdict));
    EXPECT_TRUE(verdict.right_regime) << profile::to_string(verdict.diagnosis);
    EXPECT_TRUE(verdict.missed.empty()) << profile::to_string(verdict.diagnosis);
    reports += verdict.reports, false_alarms += static_cast<int>(verdict.false_alarms.size());
    json.push_back(json_of(culprit, verdict));
  }
  EXPECT_LE(20 * false_alarms, reports) << "more than 5 % of what is reported is wrong";
  if (file != nullptr) std::ofstream(file) << json.dump(2) << "\n";
}

// What takes the time is known of the library as it is used: optimised, and without instrumentation.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kIsTimed = true;
#else
constexpr bool kIsTimed = false;
#endif

TEST(Culprits, of_the_cpu_are_found) {
  if (!kIsTimed) GTEST_SKIP() << "built without optimisation, or with a sanitizer";
  expect_right_diagnoses(culprits_on_cpu(), kCPU);
}

TEST(Culprits, of_a_gpu_are_found) {
  LORRY_SKIP_WITHOUT_CUDA();
  if (!kIsTimed) GTEST_SKIP() << "built without optimisation, or with a sanitizer";
  expect_right_diagnoses(culprits_on_gpu(), kGPU);
}

}  // namespace
}  // namespace lorry::test
