#pragma once

// How long a training step takes, from the steps of late.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace lorry::cli {

/// The time of a step: the mean of the last 32 without the longest tenth. A pause in one step does not change it, and a
/// machine that slows down for good is seen after a few steps.
class StepTimer {
 public:
  /// A step has been taken in `seconds`. The first two are not typical: memory is still being found.
  void add_step(double seconds);
  /// True once there was a typical step.
  bool typical() const { return taken_ > kUntypical; }
  /// True once typical steps have taken `seconds`, and are a few.
  bool known(double seconds) const { return taken_ >= kUntypical + 3 && typical_seconds_ >= seconds; }
  /// Seconds, of a typical step where there was one. Throws ValueError before the first step.
  double seconds_per_step() const;

 private:
  static constexpr int64_t kUntypical = 2;
  int64_t taken_ = 0;
  double typical_seconds_ = 0;
  std::deque<double> recent_;
};

/// "about 12 minutes", "about 3 hours" or "about 2 days"; nothing under a minute.
std::optional<std::string> approximate_time_text(double seconds);

}  // namespace lorry::cli
