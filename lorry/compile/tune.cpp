#include "lorry/compile/tune.h"

#include <algorithm>

namespace lorry::compiler {

std::optional<size_t> Tuner::begin() {
  if (done()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (running_ || done()) return std::nullopt;
  running_ = true;
  return run_ % seconds_.size();
}

void Tuner::end(std::optional<double> seconds) {
  const std::lock_guard lock(mutex_);
  running_ = false;
  if (!seconds) return;
  const size_t ways = seconds_.size(), way = run_ % ways;
  if (run_ >= ways) seconds_[way] = run_ < 2 * ways ? *seconds : std::min(seconds_[way], *seconds);
  if (++run_ < (1 + kRuns) * ways) return;
  best_.store(static_cast<size_t>(std::ranges::min_element(seconds_) - seconds_.begin()), std::memory_order_release);
  done_.store(true, std::memory_order_release);
}

std::vector<double> Tuner::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

}  // namespace lorry::compiler
