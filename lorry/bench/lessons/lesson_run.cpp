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
/// Calls that only read can be faster than a copy of as many bytes; by this factor they are not.
constexpr double kCached = 2;

constexpr std::string_view kMemory = "memory", kArithmetic = "arithmetic", kCalls = "calls";

/// 1: the second way is faster. -1: the first is. 0: the medians and the least times do not agree on either.
int faster(const profile::BenchmarkResult& first, const profile::BenchmarkResult& second) {
  const auto compare = [](double a, double b) {
    return a > b * (1 + kLeastDifference) ? 1 : b > a * (1 + kLeastDifference) ? -1 : 0;
  };
  const int by_median = compare(first.median_us, second.median_us);
  return by_median == compare(first.min_us, second.min_us) ? by_median : 0;
}

/// A count in three digits: "12", "4.10 k".
std::string count_text(double count) {
  std::string text = quantity(count, "");
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

/// "copied first: 201 MB of memory traffic take 13.4 ms at the rate of a copy; it takes 1.31 times that."
std::string reason(const Way& way, const Ceilings& ceilings) {
  const std::optional<Bound> least = bound(way.work, ceilings);
  if (!least) return "";
  const bool by_memory = least->what == kMemory;
  std::string work;
  if (by_memory)
    work = fmt::format("{} of memory traffic, {} at the rate of a copy", quantity(way.work.bytes, "B"),
                       duration_text(least->us));
  else if (least->what == kArithmetic)
    work = fmt::format("{} in {}, {} at the rate of a large product", quantity(way.work.flops, "FLOP"), way.work.dtype,
                       duration_text(least->us));
  else
    work =
        fmt::format("{}, {} at the price of the smallest",
                    way.work.calls == 1 ? "one call" : count_text(way.work.calls) + " calls", duration_text(least->us));
  const double times = way.time.median_us / least->us;
  if (by_memory && times < 1 / kCached)
    return fmt::format("{}: {}; it takes {} times that, as is possible where data is in a cache.", way.name, work,
                       ratio_text(times));
  return fmt::format("{}: {}; it takes {} times that.", way.name, work, ratio_text(times));
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
  const auto consider = [&](std::string_view what, double us) {
    if (us > 0 && std::isfinite(us) && (!most || us > most->us)) most = {what, us};
  };
  if (ceilings.call_us > 0) consider(kCalls, work.calls * ceilings.call_us);
  if (ceilings.copy_bytes > 0) consider(kMemory, work.bytes / ceilings.copy_bytes);
  if (const auto rate = ceilings.flops.find(work.dtype); rate != ceilings.flops.end() && rate->second > 0)
    consider(kArithmetic, work.flops / rate->second);
  return most;
}

std::string text_of(const Figure& figure) {
  const auto value = [&] {
    if (figure.unit == "us") return duration_text(figure.value);
    if (!figure.unit.empty()) return quantity(figure.value, figure.unit);
    const bool small = figure.value != 0 && std::abs(figure.value) < 1;
    return small ? fmt::format("{:.2g}", figure.value) : count_text(figure.value);
  };
  return fmt::format("{}: {}", figure.name, value());
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
  const double ratio = all.ratio();
  const int difference = faster(first.time, second.time);
  const std::string& text = difference > 0 ? conclusion.faster : difference < 0 ? conclusion.slower : conclusion.same;
  if (difference == 0)
    all.verdict = fmt::format("\"{}\" and \"{}\" do not differ clearly (ratio {}). {}", first.name, second.name,
                              ratio_text(ratio), text);
  else if (conclusion.clocks)
    all.verdict =
        fmt::format("\"{}\" says {}, \"{}\" {}: {} times as much. {}", first.name, duration_text(first.time.median_us),
                    second.name, duration_text(second.time.median_us), ratio_text(ratio), text);
  else if (difference > 0)
    all.verdict =
        fmt::format("\"{}\" is {} times as fast as \"{}\". {}", second.name, ratio_text(ratio), first.name, text);
  else
    all.verdict = fmt::format("Here \"{}\" is {} times as fast as \"{}\". {}", first.name, ratio_text(1 / ratio),
                              second.name, text);
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
