#pragma once

// Chooses the fastest of several ways to run a program, by timing its first runs.

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

namespace lorry::compiler {

class Tuner {
 public:
  /// ways: how many there are, at least 1. With 1, nothing is timed.
  explicit Tuner(size_t ways) : seconds_(ways), done_(ways == 1) {}

  /// The first way until all have been timed, then the one that took the least time.
  size_t best() const { return best_.load(std::memory_order_acquire); }
  bool done() const { return done_.load(std::memory_order_acquire); }
  /// The way that the next run should take and report; none if another run is being timed, or all have been.
  std::optional<size_t> begin();
  /// Ends what begin() began. Without a time, the way is tried again.
  void end(std::optional<double> seconds);
  /// The least time of each way, 0 if it was not timed.
  std::vector<double> seconds() const;

 private:
  /// Each way runs once to warm up, and then this often.
  static constexpr size_t kRuns = 3;

  mutable std::mutex mutex_;
  std::vector<double> seconds_;
  size_t run_ = 0;  ///< the number of runs so far: the ways take turns
  bool running_ = false;
  std::atomic<size_t> best_{0};
  std::atomic<bool> done_;
};

}  // namespace lorry::compiler
