#pragma once

// Progress on standard error: a bar that redraws itself on a terminal, a plain line every ten seconds elsewhere, nothing
// when quiet.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace lorry::cli {

class Progress {
 public:
  /// Counts from `done` to `total` units. A total of 0 is not known yet; set_total gives it later.
  Progress(std::string label, int64_t done, int64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_total(int64_t total) { total_ = total; }
  /// `detail` follows the bar: the loss, the speed.
  void update(int64_t done, std::string_view detail);
  /// A line that stays, above the bar.
  void say(std::string_view line);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(int64_t done, std::string_view detail, Clock::time_point now);
  void clear();

  std::string label_;
  int64_t first_, total_;
  bool quiet_, terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_;
};

/// "1:07", or "2:05:09" from an hour on.
std::string clock_text(double seconds);

}  // namespace lorry::cli
