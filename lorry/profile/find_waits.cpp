// Waits of the host for a GPU, and the time for which they left it idle.

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "lorry/profile/queue.h"

namespace lorry::profile {
namespace {

/// A wait that left the GPU idle for less than this share of its time is there for the work before it.
constexpr double kNeeded = 0.1;

/// How much longer the GPU was idle because of each wait: what it would have done without them, with a host that
/// enqueues earlier by all of its waits so far.
class WithoutWaits {
 public:
  explicit WithoutWaits(const ProgramView& p) : p_(p), caused_(p.r.waits.size()) {
    for (size_t i = 0; i < p.r.waits.size(); ++i) note(i);
    Queue queue(p);
    for (const DeviceRecord& x : p.r.device) {
      if (x.device != p.device.index) continue;
      const auto thread = threads_.find(thread_of(p.r, x));
      if (thread == threads_.end()) {
        queue.add(x);
        continue;
      }
      Waits& waits = thread->second;
      waits.enqueued = std::max(waits.enqueued, enqueued(p.r, x));  // another stream may have let earlier work wait
      const auto [earlier, wait] = waits_before(waits);
      const double was = queue.earlier_ns();
      queue.add(x, earlier);
      if (wait != nullptr) *wait += queue.earlier_ns() - was;
    }
  }
  double caused_ns(size_t i) const { return std::max(0.0, caused_[i]); }

 private:
  /// The waits of a thread: when each was over, and how long all until then took.
  struct Waits {
    std::vector<int64_t> ends;
    std::vector<double> sums;
    std::vector<size_t> numbers;
    int64_t enqueued = 0;  ///< when the thread enqueued its last work so far
  };
  void note(size_t i) {
    const WaitRecord& x = p_.r.waits[i];
    Waits& to = threads_[x.thread];
    const double before = to.sums.empty() ? 0 : to.sums.back();
    to.ends.push_back(x.end), to.sums.push_back(before + static_cast<double>(x.duration())), to.numbers.push_back(i);
  }
  /// How long the waits before the thread enqueued its last work took, and what the last of them caused; null: there
  /// was none.
  std::pair<double, double*> waits_before(const Waits& waits) {
    const auto after = std::ranges::upper_bound(waits.ends, waits.enqueued);
    if (after == waits.ends.begin()) return {0, nullptr};
    const auto i = static_cast<size_t>(after - waits.ends.begin()) - 1;
    return {waits.sums[i], &caused_[waits.numbers[i]]};
  }

  const ProgramView& p_;
  std::map<int32_t, Waits> threads_;
  std::vector<double> caused_;
};

/// What a call that launches one kernel takes the host and, of a GPU that has nothing else to do, the kernel.
double small_call_ns(const ProgramView& p) {
  std::vector<double> times;
  for (const int32_t i : p.calls)
    if (const SpanRecord& x = p.span(i); x.kind == SpanKind::call && x.launches == 1 && !p.link_copy(x))
      times.push_back(p.call_host_ns(x));
  if (times.empty()) return p.call_ns() + p.kernel_ns();
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle + p.kernel_ns();
}

/// What a wait for work that was waited for already took the host, with the call that waited: a read enqueues a copy
/// first. One that took longer waited for other work too.
double host_ns(const ProgramView& p, const WaitRecord& wait) {
  const bool in_call = wait.thread == 0 && wait.span != kNone && p.span(wait.span).is_work();
  const double tracing = wait.thread == 0 ? p.tracing_ns({wait.begin, wait.end}) : 0;
  const double taken = in_call ? p.call_host_ns(p.span(wait.span)) : static_cast<double>(wait.duration()) - tracing;
  return p.here != nullptr ? std::min(taken, 3e9 * p.here->wait_s) : taken;
}

/// The waits of a thread so far.
struct ThreadWaits {
  int64_t end = -1;     ///< of the last one; -1: there was none
  bool is_run = false;  ///< the last one could join the one before it
};

}  // namespace

void find_waits(const ProgramView& p, Diagnosis& to) {
  std::map<std::tuple<int32_t, int32_t, int32_t>, WaitReport> places;
  std::map<int32_t, ThreadWaits> threads;
  std::vector<int64_t> launches;  // by time; a copy to the host is part of a read
  for (const DeviceRecord& x : p.r.device)
    if (x.copy != CopyKind::to_host) launches.push_back(enqueued(p.r, x));
  std::ranges::sort(launches);
  const double gather_ns = p.on_gpu && p.r.waits.size() > 1 ? small_call_ns(p) : 0;
  const WithoutWaits without(p);
  for (size_t i = 0; i < p.r.waits.size(); ++i) {
    const WaitRecord& x = p.r.waits[i];
    WaitReport& report = places[{x.name, x.text, x.line != 0 ? x.line : -x.path}];
    report.name = p.r.names[static_cast<size_t>(x.name)], report.text = p.r.names[static_cast<size_t>(x.text)];
    report.path = p.r.paths[static_cast<size_t>(x.path)], report.line = p.r.lines[static_cast<size_t>(x.line)];
    ++report.count;
    report.waited_ns += x.duration();
    report.idle_caused_ns += std::llround(without.caused_ns(i));
    ThreadWaits& last = threads[x.thread];
    const auto next = std::ranges::lower_bound(launches, last.end);
    const bool launched = next != launches.end() && *next < x.begin;
    const bool joins = p.on_gpu && last.end >= 0 && !launched;
    if (joins) {
      ++report.could_join;
      report.joining_saves_ns += host_ns(p, x);
      if (!last.is_run) report.joining_saves_ns -= gather_ns;  // the values of a run are first brought together
    }
    last = {x.end, joins};
  }
  for (auto& [key, report] : places) {
    report.is_needed = static_cast<double>(report.idle_caused_ns) < kNeeded * static_cast<double>(report.waited_ns);
    to.waits.push_back(report);
  }
  std::ranges::stable_sort(to.waits, std::greater<>(), &WaitReport::idle_caused_ns);
}

}  // namespace lorry::profile
