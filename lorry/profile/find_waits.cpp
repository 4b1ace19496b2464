// Waits of the host for a GPU, and the time for which they left it idle.

#include <algorithm>
#include <map>
#include <tuple>

#include "lorry/profile/program_view.h"

namespace lorry::profile {
namespace {

/// A wait that left the GPU idle for less than this share of its time is there for the work before it.
constexpr double kNeeded = 0.1;

/// When the host enqueued work, as nearly as it is known.
int64_t enqueued(const Recording& r, const DeviceRecord& x) {
  if (x.call != kNone) return r.calls[static_cast<size_t>(x.call)].begin;
  return x.span != kNone ? r.spans[static_cast<size_t>(x.span)].begin : x.begin;
}

/// How much longer the GPU was idle than if the host had gone on at once.
int64_t idle_caused(const ProgramView& p, const WaitRecord& wait) {
  const std::vector<Interval>& busy = p.busy.list();
  const auto next = std::ranges::lower_bound(busy, wait.end, {}, &Interval::begin);
  if (next == busy.end()) return 0;  // nothing came after
  const int64_t drained = next == busy.begin() ? 0 : (next - 1)->end;
  if (drained > wait.end) return 0;  // still busy when the host went on
  const int64_t idle = next->begin - drained;
  const int64_t without = std::max<int64_t>(0, wait.begin + (next->begin - wait.end) - drained);
  return std::max<int64_t>(0, idle - without);
}

}  // namespace

void find_waits(const ProgramView& p, Diagnosis& to) {
  std::map<std::tuple<int32_t, int32_t, int32_t>, WaitReport> places;
  std::map<int32_t, int64_t> last_end;  // by thread
  std::vector<int64_t> launches;        // by time; a copy to the host is part of a read
  for (const DeviceRecord& x : p.r.device)
    if (x.copy != CopyKind::to_host) launches.push_back(enqueued(p.r, x));
  std::ranges::sort(launches);
  for (const WaitRecord& x : p.r.waits) {
    WaitReport& report = places[{x.name, x.text, x.line != 0 ? x.line : -x.path}];
    report.name = p.r.names[static_cast<size_t>(x.name)], report.text = p.r.names[static_cast<size_t>(x.text)];
    report.path = p.r.paths[static_cast<size_t>(x.path)], report.line = p.r.lines[static_cast<size_t>(x.line)];
    ++report.count;
    report.waited_ns += x.duration();
    report.idle_caused_ns += idle_caused(p, x);
    const auto last = last_end.find(x.thread);
    if (last != last_end.end()) {
      const auto next = std::ranges::lower_bound(launches, last->second);
      const bool launched = next != launches.end() && *next < x.begin;
      if (p.on_gpu && !launched) ++report.could_join;
    }
    last_end[x.thread] = x.end;
  }
  for (auto& [key, report] : places) {
    report.is_needed = static_cast<double>(report.idle_caused_ns) < kNeeded * static_cast<double>(report.waited_ns);
    to.waits.push_back(report);
  }
  std::ranges::stable_sort(to.waits, std::greater<>(), &WaitReport::idle_caused_ns);
}

}  // namespace lorry::profile
