// The time of a program by regime.

#include <algorithm>
#include <map>
#include <tuple>

#include "lorry/profile/program_view.h"

namespace lorry::profile {
namespace {

/// On the CPU, times of call_ns() below which a call that takes longer than its work does so for its overhead. (A
/// product of 16 x 16 takes about 1 us in the library that makes it.)
constexpr double kShort = 40;
/// What an elementary function takes at most for an element where vectors compute it, in nanoseconds.
constexpr double kElementNs = 0.25;
/// A step of an optimizer that runs as one kernel takes less than this many times its ceiling.
constexpr double kOneKernel = 2;

/// Divides the time of one piece of work: what its calls cost goes to overhead, the rest to the ceiling that is closer.
void add_work(RegimeTimes& to, double ns, Least least, double overhead, bool is_heavy) {
  overhead = std::clamp(overhead, 0.0, ns);
  to[Regime::overhead] += overhead;
  to[least.compute > least.memory || is_heavy ? Regime::compute : Regime::memory] += ns - overhead;
}

/// Calls of the CPU beside others of the same operator and sizes. One that takes far longer than most of them did not
/// work for longer: another program had its processor.
class Peers {
 public:
  explicit Peers(const ProgramView& p) {
    for (const int32_t i : p.calls) times_[key(p.span(i))].push_back(p.self_ns[static_cast<size_t>(i)]);
    for (auto& [key, times] : times_) {
      const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
      std::ranges::nth_element(times, middle);
      times = {times.size() >= kLeastPeers ? kOutlier * *middle : INT64_MAX};
    }
  }
  /// The most that the work of a call takes.
  int64_t most_ns(const SpanRecord& x) const { return times_.at(key(x))[0]; }

 private:
  static constexpr size_t kLeastPeers = 8;
  static constexpr int64_t kOutlier = 10;
  static std::tuple<Op, int32_t, int32_t> key(const SpanRecord& x) { return {x.op, x.operands, x.name}; }

  std::map<std::tuple<Op, int32_t, int32_t>, std::vector<int64_t>> times_;
};

class Regimes {
 public:
  Regimes(const ProgramView& program, Diagnosis& to) : p_(program), to_(to), phases_(p_.r.spans.size()) {
    for (size_t i = 0; i < p_.r.spans.size(); ++i) phases_[i] = phase_of(i);
  }

  void find() {
    if (p_.on_gpu) {
      add_device();
      add_idle();
    } else {
      add_calls();
    }
    add_host_times();
    for (auto& [name, phase] : by_name_)
      if (phase.host_ns > 0 || phase.device_ns > 0) to_.phases.push_back(phase);
    std::ranges::stable_sort(to_.phases, std::greater<>(), [](const Phase& x) { return x.times.total(); });
    to_.regime = to_.times.largest();
  }

 private:
  /// The phase of a span: that of the span around it. A range that the user named is one; a module's forward, a
  /// backward and an optimizer's step have their own names.
  std::string phase_of(size_t i) const {
    const SpanRecord& x = p_.r.spans[i];
    if (x.parent != kNone) return phases_[static_cast<size_t>(x.parent)];
    if (x.kind == SpanKind::scope && !x.is_module) return p_.r.name_of(x);
    if (x.kind == SpanKind::backward) return "backward";
    if (x.op == Op::optimizer_step || x.op == Op::clip_norm) return "optimizer";
    if (x.kind == SpanKind::replay) return "replay";
    return x.kind == SpanKind::scope ? "forward" : "other calls";
  }
  Phase& phase(const std::string& name) {
    Phase& found = by_name_[name];
    found.name = name;
    return found;
  }
  void add(const std::string& phase_name, const RegimeTimes& times) {
    Phase& to = phase(phase_name);
    for (size_t i = 0; i < kRegimes; ++i) to.times.ns[i] += times.ns[i], to_.times.ns[i] += times.ns[i];
  }
  static bool is_pointwise(const SpanRecord& x) {
    return x.kind == SpanKind::call && row(x.op).kind == OpKind::pointwise;
  }

  void add_kernel(RegimeTimes& times, double ns, Least least, bool pointwise) const {
    add_work(times, ns, least, p_.kernel_ns() - least.most(),
             pointwise && ProgramView::is_heavy(ns, least, p_.kernel_ns()));
  }
  /// A call of the CPU takes `ns` itself.
  void add_call(RegimeTimes& times, const SpanRecord& x, double ns) const {
    const Least least = p_.least(x);
    const bool pointwise = is_pointwise(x);
    const double arithmetic = pointwise ? kElementNs * static_cast<double>(x.flops) : 0;
    double overhead = 2 * p_.call_ns() - least.most();
    if (ns < kShort * p_.call_ns()) overhead = std::max(overhead, ns - std::max(least.most(), arithmetic));
    if (x.op == Op::optimizer_step) overhead = ns - kOneKernel * least.most();
    add_work(times, ns, least, overhead, pointwise && ProgramView::is_heavy(ns, least, 2 * p_.call_ns()));
  }

  void add_device() {
    for (const DeviceRecord& x : p_.r.device) {
      if (x.device != p_.device.index) continue;
      const auto ns = static_cast<double>(x.duration());
      RegimeTimes times;
      const std::string name = x.span != kNone ? phases_[static_cast<size_t>(x.span)] : "other work";
      if (x.copy == CopyKind::to_device || x.copy == CopyKind::to_host) {
        times[Regime::waiting] += ns;
      } else if (x.work != DeviceWork::kernel) {
        add_kernel(times, ns, p_.least(x.work == DeviceWork::copy ? 2 * x.bytes : x.bytes, 0, kF32), false);
      } else if (x.span != kNone) {
        const SpanRecord& span = p_.span(x.span);
        const PartRecord part = p_.r.origin_of(x);
        const double share = x.replayed != kNone  ? 1.0 / static_cast<double>(std::max<int64_t>(part.nodes, 1))
                             : span.device_ns > 0 ? ns / static_cast<double>(span.device_ns)
                                                  : 1.0;
        Least least = p_.least(part.bytes, part.flops, part.dtype);
        least.memory *= share, least.compute *= share, least.streamed *= share;
        add_kernel(times, ns, least, is_pointwise(span));
      } else {
        add_kernel(times, ns, {}, false);
      }
      phase(name).device_ns += x.duration();
      add(name, times);
    }
  }

  /// What the host did while the GPU was idle: it slept or waited, or it was busy. What recording took is no time of
  /// the program.
  void add_idle() {
    std::vector<Interval> waits;
    for (const WaitRecord& x : p_.r.waits)
      if (x.thread == 0) waits.push_back({x.begin, x.end});
    // In a copy between host and device the host moves bytes, or waits for the link.
    for (const int32_t i : p_.calls)
      if (p_.link_copy(p_.span(i))) waits.push_back({p_.span(i).begin, p_.span(i).end});
    const Intervals waiting(std::move(waits));
    for (const Interval& idle : p_.busy.gaps({0, p_.r.duration})) {
      double asleep = static_cast<double>(waiting.within(idle));
      auto gap = std::ranges::upper_bound(p_.gaps, idle.begin, {}, &GapRecord::end);
      for (; gap != p_.gaps.end() && gap->begin < idle.end; ++gap) {
        const Interval common{std::max(gap->begin, idle.begin), std::min(gap->end, idle.end)};
        const double share = static_cast<double>(common.length()) / static_cast<double>(gap->end - gap->begin);
        const auto counted = static_cast<double>(waiting.within(common));  // a wait outside calls
        asleep += std::max(0.0, share * static_cast<double>(gap->asleep) - counted);
      }
      RegimeTimes times;
      times[Regime::waiting] = std::min(asleep, static_cast<double>(idle.length()));
      times[Regime::overhead] =
          std::max(0.0, static_cast<double>(idle.length()) - times[Regime::waiting] - p_.recording_ns(idle));
      add(phase_at(idle.begin + idle.length() / 2), times);
    }
  }
  /// The phase of the main thread at a moment.
  std::string phase_at(int64_t moment) const {
    const auto at = std::ranges::upper_bound(p_.calls, moment, {}, [&](int32_t i) { return p_.span(i).begin; });
    return at == p_.calls.begin() ? "before the first call" : phases_[static_cast<size_t>(*(at - 1))];
  }

  void add_calls() {
    const Peers peers(p_);
    int64_t in_calls = 0;
    for (const int32_t i : p_.calls) {
      const SpanRecord& x = p_.span(i);
      RegimeTimes times;
      const int64_t whole = p_.self_ns[static_cast<size_t>(i)], ns = std::min(whole, peers.most_ns(x));
      times[Regime::overhead] += static_cast<double>(whole - ns);
      if (x.kind == SpanKind::replay || (x.bytes == 0 && x.flops == 0 && x.kind == SpanKind::call))
        times[Regime::overhead] += static_cast<double>(ns);
      else
        add_call(times, x, static_cast<double>(ns));
      add(phases_[static_cast<size_t>(i)], times);
      in_calls += whole;
    }
    to_.busy_ns = in_calls;
    int64_t asleep = 0;
    for (const GapRecord& gap : p_.gaps) {
      RegimeTimes times;
      times[Regime::waiting] = static_cast<double>(gap.asleep);
      asleep += gap.asleep;
      add(phase_at(gap.begin), times);
    }
    RegimeTimes outside;
    outside[Regime::overhead] =
        std::max(0.0, static_cast<double>(p_.r.duration - in_calls - asleep) - p_.recording_ns({0, p_.r.duration + 1}));
    add("between calls", outside);
  }

  void add_host_times() {
    if (p_.on_gpu) to_.busy_ns = p_.busy.length();
    for (size_t i = 0; i < p_.r.spans.size(); ++i) {
      const SpanRecord& x = p_.r.spans[i];
      if (x.parent == kNone && x.thread == 0) phase(phases_[i]).host_ns += x.duration();
    }
    if (const auto between = by_name_.find("between calls"); between != by_name_.end())
      between->second.host_ns = static_cast<int64_t>(between->second.times.total());
  }

  const ProgramView& p_;
  Diagnosis& to_;
  std::vector<std::string> phases_;  ///< by span
  std::map<std::string, Phase> by_name_;
};

}  // namespace

const char* name(Regime regime) {
  constexpr const char* kNames[] = {"overhead", "memory", "compute", "waiting"};
  return kNames[static_cast<int>(regime)];
}

Regime RegimeTimes::largest() const { return static_cast<Regime>(std::ranges::max_element(ns) - ns.begin()); }

void find_regimes(const ProgramView& program, Diagnosis& to) { Regimes(program, to).find(); }

}  // namespace lorry::profile
