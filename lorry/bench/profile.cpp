// What profiling costs: what a session adds to a call, and how long a recording takes to become a trace or a diagnosis.

#include <unistd.h>

#include <filesystem>
#include <memory>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/suites.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/ceilings.h"
#include "lorry/profile/chrome_trace.h"
#include "lorry/profile/diagnose.h"
#include "lorry/profile/session.h"

namespace lorry::bench {
namespace {

class ProfileCases {
 public:
  explicit ProfileCases(const Filter& filter) : filter_(filter) {}

  /// make() makes what call(made) needs, before the clock starts.
  template <class Make, class F>
  void add(const char* name, Make&& make, F&& call, profile::BenchmarkOptions options = {}) {
    if (!filter_(name)) return;
    options.max_inputs = 1, options.device = default_device();
    rows_.push_back({.suite = "profile", .name = name, .time = profile::benchmark(make, call, options)});
  }
  Result& last() { return rows_.back(); }
  bool has(const char* name) const { return !rows_.empty() && rows_.back().name == name; }
  std::vector<Result> rows() const { return rows_; }

 private:
  const Filter& filter_;
  std::vector<Result> rows_;
};

void add_calls(const Tensor& x, const Tensor& y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x.add_(y);
}

/// A thousand calls without a session, and under some.
void add_sessions(ProfileCases& suite, const Tensor& x, const Tensor& y) {
  const auto calls = [&](auto&) { add_calls(x, y, 1000); };
  const auto under = [&](const profile::SessionOptions& options) {
    auto session = std::make_unique<profile::Session>(options);
    add_calls(x, y, 1000);  // these take the memory that the others are recorded in
    return session;
  };
  suite.add(
      "1000 times add_ 64", [] { return 0; }, calls);
  suite.add(
      "1000 times add_ 64, lines recorded", [&] { return under({.operands = false, .memory = false}); }, calls);
  suite.add(
      "1000 times add_ 64, everything recorded", [&] { return under({}); }, calls);
}

/// The trace of a million calls, and their diagnosis.
void add_exports(ProfileCases& suite, const Tensor& x, const Tensor& y) {
  constexpr const char* kTrace = "write the trace of a million calls";
  constexpr const char* kDiagnosis = "diagnose a million calls";
  const auto recording = [&] {
    profile::Session session;
    add_calls(x, y, 1'000'000);
    return session.stop();
  };
  const profile::BenchmarkOptions few{.warmup_s = 0, .total_s = 0, .min_samples = 3};
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("lorry_bench_" + std::to_string(getpid()) + ".json");
  suite.add(
      kTrace, recording, [&](const profile::Recording& r) { profile::write_chrome_trace(r, file.string()); }, few);
  if (suite.has(kTrace)) suite.last().bytes = static_cast<int64_t>(std::filesystem::file_size(file));
  std::error_code gone;
  std::filesystem::remove(file, gone);
  profile::ceilings(default_device());  // measured now, not inside the first diagnosis
  suite.add(
      kDiagnosis, recording, [](const profile::Recording& r) { profile::do_not_optimize(profile::diagnose(r)); }, few);
}

}  // namespace

std::vector<Result> profile_suite(const Filter& filter) {
  require<ValueError>(!profile::Session::any_is_recording(),
                      "bench: the suite profile records sessions, and another one is recording; run it without "
                      "`lorry profile`");
  const NoGrad no_grad;
  const Tensor x = ones({64}), y = ones({64});
  ProfileCases suite(filter);
  add_sessions(suite, x, y);
  add_exports(suite, x, y);
  return suite.rows();
}

}  // namespace lorry::bench
