#pragma once

// Progress on standard error: on a terminal a bar that is redrawn, elsewhere a plain line every ten seconds, with
// --quiet nothing.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lorry::cli {

/// The contents of a line of progress.
struct ProgressFacts {
  std::string_view label;
  int64_t done = 0, total = 0;      ///< total 0: unknown
  std::string_view figure;          ///< the most important figure: the loss
  std::string_view extra = {};      ///< a figure that may be left out: the speed
  std::optional<double> left = {};  ///< seconds left; unset: unknown
};

/// The longest line that fits `columns` characters. If there is little room, the bar is left out first, then words,
/// then whole figures, the loss last; a figure is never cut.
std::string progress_line(const ProgressFacts& facts, int columns, bool bar = true);

class Progress {
 public:
  /// Counts from `done` to `total` units. A total of 0 is unknown until set_total sets it.
  Progress(std::string label, int64_t done, int64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_total(int64_t total) { total_ = total; }
  /// `figure`, `extra` and `left` as in ProgressFacts; without `left`, it is estimated from the units so far.
  void update(int64_t done, std::string_view figure, std::string_view extra = {}, std::optional<double> left = {});
  /// Prints a permanent line above the bar.
  void say(std::string_view line);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const ProgressFacts& facts);
  void clear();

  std::string label_;
  int64_t first_, total_;
  bool quiet_, terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_;
};

/// "1:07", or "2:05:09" from an hour on.
std::string hms_text(double seconds);

}  // namespace lorry::cli
