#include "lorry/bench/lessons/lesson_run.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "lorry/base/events.h"
#include "lorry/bench/lessons/source.h"
#include "lorry/device/launches.h"

namespace lorry::bench::lessons {
namespace {

/// Differences below this share are called none, however steady the samples.
constexpr double kLeastDifference = 0.05;

/// "12.6 MB, at least 1.05 ms at the rate of a copy; it takes 1.31 ms"
std::string reason(const Way& way, const Ceilings& ceilings) {
  const std::optional<Bound> least = bound(way.work, ceilings);
  if (!least) return "";
  std::string work;
  if (std::string_view(least->what) == "memory")
    work = fmt::format("{} at the rate of a copy", quantity(way.work.bytes, "B"));
  else if (std::string_view(least->what) == "arithmetic")
    work = fmt::format("{} at the rate of a large {} product", quantity(way.work.flops, "FLOP"), way.work.dtype);
  else
    work = way.work.calls == 1 ? std::string("the smallest call")
                               : fmt::format("{} times the smallest call", quantity(way.work.calls, ""));
  return fmt::format("{}: bound by {}; {} would take {}.", way.name, least->what, work, duration_text(least->us));
}

double page_faults() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_minflt + used.ru_majflt);
}

/// How often call() makes the host wait for a GPU.
double waits_of(const std::function<void()>& call) {
  std::atomic<int> count = 0;
  struct Restore {
    events::Handler before;
    ~Restore() { events::set_handler(std::move(before)); }
  } const restore{events::set_handler([&](const events::Event& event) {
    if (event.kind == events::Kind::synchronisation) ++count;
  })};
  call();
  return static_cast<double>(count);
}

}  // namespace

std::optional<Bound> bound(const Work& work, const Ceilings& ceilings) {
  std::optional<Bound> most;
  const auto consider = [&](const char* what, double us) {
    if (us > 0 && std::isfinite(us) && (!most || us > most->us)) most = {what, us};
  };
  if (ceilings.call_us > 0) consider("calls", work.calls * ceilings.call_us);
  if (ceilings.copy_bytes > 0) consider("memory", work.bytes / ceilings.copy_bytes);
  if (const auto rate = ceilings.flops.find(work.dtype); rate != ceilings.flops.end() && rate->second > 0)
    consider("arithmetic", work.flops / rate->second);
  return most;
}

std::string text_of(const Figure& figure) {
  return fmt::format("{}: {}", figure.name,
                     figure.unit.empty() && std::abs(figure.value) < 1 ? fmt::format("{:.2g}", figure.value)
                                                                       : quantity(figure.value, figure.unit));
}

std::string ratio_text(double ratio) {
  return fmt::format("{:.{}f}", ratio, ratio < 9.995 ? 2 : ratio < 99.95 ? 1 : 0);
}

void LessonRun::compare(const char* key, const std::string& title, const Counting& counting) {
  counting_ = counting;
  lesson_.comparisons.push_back({.title = title.empty() ? key : title, .given = given_of(source_, key)});
}

Way& LessonRun::add(const char* key, const std::string& name, const Work& work, const profile::BenchmarkResult& time) {
  std::vector<Way>& ways = last().ways;
  ways.push_back({.name = name, .code = code_of(source_, key), .time = time, .work = work});
  return ways.back();
}

void LessonRun::count(Way& way, const std::function<void()>& call) const {
  const auto figure = [&](const char* name, double value, const char* unit = "") {
    way.figures.push_back({name, value, unit});
  };
  if (counting_.memory) {
    device::synchronize(device());
    memory::reset_peak(device());
    const int64_t before = memory::stats(device()).allocated;
    call();
    figure("memory beside the operands", static_cast<double>(memory::stats(device()).peak_allocated - before), "B");
  }
  if (counting_.waits) figure("waits for the device", waits_of(call));
  if (counting_.launches && on_gpu()) {
    const device::LaunchCount launches;
    call();
    figure("launches", static_cast<double>(launches.kernels()));
  }
  if (counting_.page_faults) {
    const double before = page_faults();
    call();
    figure("page faults of the host", page_faults() - before);
  }
}

void LessonRun::conclude(const Conclusion& conclusion, std::optional<size_t> good) {
  Comparison& all = last();
  all.good = good.value_or(all.ways.size() - 1);
  const Way &first = all.ways.front(), &second = all.ways[all.good];
  const double ratio = all.ratio(), noise = std::max({kLeastDifference, first.time.spread, second.time.spread});
  if (conclusion.clocks && std::abs(std::log(ratio)) > std::log(1 + noise))
    all.verdict = fmt::format("By \"{}\" it takes {}, {} times what it takes by \"{}\", {}. {}", first.name,
                              duration_text(first.time.median_us), ratio_text(ratio), second.name,
                              duration_text(second.time.median_us), ratio > 1 ? conclusion.faster : conclusion.slower);
  else if (ratio > 1 + noise)
    all.verdict = fmt::format("\"{}\" is {} times as fast as \"{}\". {}", second.name, ratio_text(ratio), first.name,
                              conclusion.faster);
  else if (1 / ratio > 1 + noise)
    all.verdict = fmt::format("Here \"{}\" is {} times as fast as \"{}\". {}", first.name, ratio_text(1 / ratio),
                              second.name, conclusion.slower);
  else
    all.verdict = fmt::format("\"{}\" and \"{}\" take the same time within the noise (ratio {}). {}", first.name,
                              second.name, ratio_text(ratio), conclusion.same);
  for (const Way* way : {&first, &second})
    if (const std::string text = reason(*way, ceilings_); !text.empty()) because(text);
}

void LessonRun::because(const std::string& sentence) {
  std::string& why = last().why;
  if (!why.empty()) why += ' ';
  why += sentence;
}

void LessonRun::needs_gpu(const std::string& what) {
  const std::string reason = device::why_absent(DeviceType::cuda);
  absent(fmt::format("{}: needs a GPU, and {}.", what,
                     reason.empty() ? std::string("these lessons run on the CPU") : reason));
}

}  // namespace lorry::bench::lessons
