#include "lorry/cli/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "lorry/cli/output.h"

namespace lorry::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);  // faster changes are not visible
constexpr auto kPlainLine = std::chrono::seconds(10);
constexpr int kBar = 24;

/// What is left out of a line; each level also leaves out that of the levels before it.
enum Brevity { kEverything, kNoBar, kNoLabel, kNoExtra, kNoWords, kNoShare, kNoCount, kNoTime, kNothing };

std::string line_of(const ProgressFacts& f, Brevity brevity) {
  std::string line;
  const auto add = [&](std::string_view part) {
    if (part.empty()) return;
    if (!line.empty()) line += "  ";
    line += part;
  };
  if (brevity < kNoLabel) line += f.label;
  if (f.total > 0) {
    // Rounded down, so that 100 % appears only at the end.
    const int share = static_cast<int>(100.0 * static_cast<double>(f.done) / static_cast<double>(f.total));
    if (brevity < kNoBar) {
      const int full = std::clamp(share * kBar / 100, 0, kBar);
      line += fmt::format(" [{:=<{}}{:<{}}]", "", full, full < kBar ? ">" : "", kBar - full);
    }
    if (brevity < kNoShare) line += fmt::format("{}{:{}} %", line.empty() ? "" : " ", share, line.empty() ? 0 : 3);
    if (brevity < kNoCount) add(fmt::format("{}/{}", f.done, f.total));
  } else if (brevity < kNoCount) {
    line += fmt::format("{}{}", line.empty() ? "" : " ", f.done);
  }
  if (brevity < kNothing) add(f.figure);
  if (brevity < kNoExtra) add(f.extra);
  if (f.left && brevity < kNoTime) add(hms_text(*f.left) + (brevity < kNoWords ? " left" : ""));
  return line;
}

}  // namespace

std::string progress_line(const ProgressFacts& facts, int columns, bool bar) {
  std::string line;
  for (int brevity = bar ? kEverything : kNoBar; brevity <= kNothing; ++brevity) {
    line = line_of(facts, static_cast<Brevity>(brevity));
    if (line.size() <= static_cast<size_t>(std::max(columns, 0))) break;
  }
  return line;
}

std::string hms_text(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

Progress::Progress(std::string label, int64_t done, int64_t total, bool quiet)
    : label_(std::move(label)),
      first_(done),
      total_(total),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) != 0),
      last_(start_) {}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', stderr);
}

void Progress::update(int64_t done, std::string_view figure, std::string_view extra, std::optional<double> left) {
  if (quiet_) return;
  const auto now = Clock::now();
  const bool last = total_ > 0 && done >= total_;
  if (!last && now - last_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLine))) return;
  last_ = now;
  ProgressFacts facts{label_, done, total_, figure, extra, left};
  if (!left && total_ > 0 && done > first_) {
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    facts.left = elapsed * static_cast<double>(total_ - done) / static_cast<double>(done - first_);
  }
  draw(facts);
}

void Progress::draw(const ProgressFacts& facts) {
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", progress_line(facts, std::numeric_limits<int>::max(), /*bar=*/false).c_str());
    return;
  }
  // A line as wide as the terminal would wrap and could not be overwritten.
  const int columns = terminal_columns(stderr).value_or(80) - 1;
  std::fprintf(stderr, "\r\033[K%s", progress_line(facts, columns).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::say(std::string_view line) {
  if (quiet_) return;
  clear();
  const std::string text = folded(line, terminal_columns(stderr).value_or(std::numeric_limits<int>::max()), 2);
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace lorry::cli
