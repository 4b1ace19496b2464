#include "lorry/cli/step_timer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lorry/base/error.h"

namespace lorry::cli {
namespace {

constexpr size_t kRecent = 32;

}  // namespace

void StepTimer::add_step(double seconds) {
  if (++taken_ == kUntypical + 1) recent_.clear();
  if (typical()) typical_seconds_ += seconds;
  recent_.push_back(seconds);
  if (recent_.size() > kRecent) recent_.pop_front();
}

double StepTimer::seconds_per_step() const {
  require<ValueError>(!recent_.empty(), "train: no step has been taken");
  std::vector<double> sorted(recent_.begin(), recent_.end());
  std::ranges::sort(sorted);
  if (sorted.size() > 1) sorted.resize(sorted.size() - std::max<size_t>(1, sorted.size() / 10));
  return std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
}

std::optional<std::string> approximate_time_text(double seconds) {
  constexpr double kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (seconds < kMinute) return std::nullopt;
  const auto text = [&](double unit, const char* name) {
    const double count = std::round(seconds / unit);
    return fmt::format("about {:.0f} {}{}", count, name, count == 1 ? "" : "s");
  };
  // The smaller unit is used up to two of the larger one: 100 minutes are not "2 hours".
  return seconds < 2 * kHour ? text(kMinute, "minute") : seconds < 2 * kDay ? text(kHour, "hour") : text(kDay, "day");
}

}  // namespace lorry::cli
