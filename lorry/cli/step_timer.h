#pragma once

// Measures the duration of a training step from recent steps.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace lorry::cli {

/// The duration of a step: the mean of the last 32 without the longest tenth. A pause in one step does not change it; a
/// machine that becomes slower is noticed after a few steps.
class StepTimer {
 public:
  /// Adds a step that took `seconds`. The first two are not typical, because memory is still being allocated.
  void add_step(double seconds);
  /// Whether there has been a typical step.
  bool typical() const { return taken_ > kUntypical; }
  /// Whether there have been several typical steps, with a total of at least `seconds`.
  bool known(double seconds) const { return taken_ >= kUntypical + 3 && typical_seconds_ >= seconds; }
  /// Seconds per typical step, or per step if none was typical. Throws ValueError before the first step.
  double seconds_per_step() const;

 private:
  static constexpr int64_t kUntypical = 2;
  int64_t taken_ = 0;
  double typical_seconds_ = 0;
  std::deque<double> recent_;
};

/// "about 12 minutes", "about 3 hours" or "about 2 days"; none below a minute.
std::optional<std::string> approximate_time_text(double seconds);

}  // namespace lorry::cli
