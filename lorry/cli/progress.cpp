#include "lorry/cli/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lorry::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);  // faster than this is not seen
constexpr auto kPlainLine = std::chrono::seconds(10);
constexpr int kBar = 24;

int columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

Progress::Progress(std::string label, int64_t done, int64_t total, bool quiet)
    : label_(std::move(label)), first_(done), total_(total), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), last_(start_) {}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', stderr);
}

void Progress::update(int64_t done, std::string_view detail) {
  if (quiet_) return;
  const auto now = Clock::now();
  const bool last = total_ > 0 && done >= total_;
  if (!last && now - last_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLine))) return;
  last_ = now;
  draw(done, detail, now);
}

void Progress::draw(int64_t done, std::string_view detail, Clock::time_point now) {
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  std::string line = label_;
  if (total_ > 0) {
    const double share = static_cast<double>(done) / static_cast<double>(total_);
    const double left = done > first_ ? elapsed * static_cast<double>(total_ - done) / static_cast<double>(done - first_) : 0;
    if (terminal_) {
      const int full = std::clamp(static_cast<int>(share * kBar), 0, kBar);
      line += fmt::format(" [{:=<{}}{:<{}}]", "", full, full < kBar ? ">" : "", kBar - full);
    }
    line += fmt::format(" {:3.0f} %  {}/{}  {}  {} left", 100 * share, done, total_, detail, clock_text(left));
  } else {
    line += fmt::format(" {}  {}", done, detail);
  }
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", line.c_str());
    return;
  }
  // A line wider than the terminal would wrap, and then no longer be overwritten.
  line.resize(std::min(line.size(), static_cast<size_t>(columns() - 1)));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
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
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

}  // namespace lorry::cli
