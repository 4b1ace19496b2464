#include "lorry/cli/time_budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace lorry::cli {
namespace {

constexpr int64_t kUntypical = 2;
/// The share of the remaining time that is planned for: machines that are shared slow down.
constexpr double kPlanned = 0.95;

}  // namespace

void Pace::add_step(double seconds) {
  if (++taken_ <= kUntypical) {
    untypical_ += seconds;
    return;
  }
  ++timed_;
  spent_ += seconds;
}

double Pace::seconds_a_step() const {
  // A run that is interrupted at once has only untypical steps to go by.
  return timed_ > 0 ? spent_ / static_cast<double>(timed_) : untypical_ / static_cast<double>(taken_);
}

std::optional<std::string> long_time_text(double seconds) {
  constexpr double kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (seconds < kMinute) return std::nullopt;
  const auto text = [&](double unit, const char* name) {
    const double count = std::round(seconds / unit);
    return fmt::format("about {:.0f} {}{}", count, name, count == 1 ? "" : "s");
  };
  // The smaller unit serves up to two of the next: 100 minutes are not 2 hours.
  return seconds < 2 * kHour ? text(kMinute, "minute") : seconds < 2 * kDay ? text(kHour, "hour") : text(kDay, "day");
}

int64_t TimeBudget::decide(double elapsed, double reserved) const {
  const double left = kPlanned * (seconds_ - elapsed - reserved);
  const int64_t taken = pace_.taken();
  if (taken == 0 || left <= 0) return std::max<int64_t>(taken, 1);
  return taken + static_cast<int64_t>(std::floor(left / pace_.seconds_a_step()));
}

}  // namespace lorry::cli
