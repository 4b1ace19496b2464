#pragma once

// Progress on standard error: a bar that redraws itself on a terminal, a plain line every ten seconds elsewhere,
// nothing when quiet.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lorry::cli {

/// What a line of progress tells.
struct ProgressFacts {
  std::string_view label;
  int64_t done = 0, total = 0;      ///< a total of 0 is not known
  std::string_view figure;          ///< what matters most: the loss
  std::string_view extra = {};      ///< what may be left out: the speed
  std::optional<double> left = {};  ///< seconds; unset: not known
};

/// The line of at most `columns` characters that tells most; a bar is drawn where there is room. Where it is narrow the
/// bar goes first, then the words, then whole figures, the loss last: a figure is never cut.
std::string progress_line(const ProgressFacts& facts, int columns, bool bar = true);

class Progress {
 public:
  /// Counts from `done` to `total` units. A total of 0 is not known yet; set_total gives it later.
  Progress(std::string label, int64_t done, int64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_total(int64_t total) { total_ = total; }
  /// `figure`, `extra` and `left` as in ProgressFacts; without `left`, the units so far tell it.
  void update(int64_t done, std::string_view figure, std::string_view extra = {}, std::optional<double> left = {});
  /// A line that stays, above the bar.
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
