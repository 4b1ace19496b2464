#include "lorry/cli/time_budget.h"

#include <algorithm>
#include <cmath>

namespace lorry::cli {
namespace {

constexpr int64_t kUntypical = 2;
/// The share of the remaining time that is planned for: machines that are shared slow down.
constexpr double kPlanned = 0.95;

}  // namespace

void TimeBudget::add_step(double seconds) {
  if (++taken_ <= kUntypical) {
    untypical_ += seconds;
    return;
  }
  ++timed_;
  spent_ += seconds;
}

int64_t TimeBudget::decide(double elapsed, double reserved) const {
  const double left = kPlanned * (seconds_ - elapsed - reserved);
  if (taken_ == 0 || left <= 0) return std::max<int64_t>(taken_, 1);
  // A run that is interrupted at once has only untypical steps to go by.
  const double one = timed_ > 0 ? spent_ / static_cast<double>(timed_) : untypical_ / static_cast<double>(taken_);
  return taken_ + static_cast<int64_t>(std::floor(left / one));
}

}  // namespace lorry::cli
