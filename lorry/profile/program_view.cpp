#include "lorry/profile/program_view.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace lorry::profile {
namespace {

/// A kernel that does nothing takes a GPU about this long: the time of a node in a replayed chain of empty kernels.
constexpr double kLeastKernelNs = 2000;

/// A core moves at least this much within its caches, up to these bytes.
constexpr double kCacheBytesPerS = 50e9;
constexpr int64_t kCacheBytes = int64_t{1} << 20;

Intervals busy_of(const Recording& r, Device device) {
  std::vector<Interval> list;
  for (const DeviceRecord& x : r.device)
    if (x.device == device.index) list.push_back({x.begin, x.end});
  return Intervals(std::move(list));
}

Device busiest(const Recording& r) {
  std::map<int8_t, int64_t> times;
  for (const DeviceRecord& x : r.device) times[x.device] += x.duration();
  const auto most = std::ranges::max_element(times, {}, [](const auto& x) { return x.second; });
  return {DeviceType::cuda, most->first};
}

/// How many of the times, which are sorted, lie in `part`.
double moments_within(const std::vector<int64_t>& times, const Interval& part) {
  const auto first = std::ranges::lower_bound(times, part.begin), last = std::ranges::lower_bound(times, part.end);
  return static_cast<double>(std::max<ptrdiff_t>(last - first, 0));
}

}  // namespace

Intervals::Intervals(std::vector<Interval> list) {
  std::ranges::sort(list, {}, &Interval::begin);
  for (const Interval& x : list) {
    if (x.end <= x.begin) continue;
    if (!list_.empty() && x.begin <= list_.back().end)
      list_.back().end = std::max(list_.back().end, x.end);
    else
      list_.push_back(x);
  }
}

int64_t Intervals::length() const {
  int64_t sum = 0;
  for (const Interval& x : list_) sum += x.length();
  return sum;
}

int64_t Intervals::within(const Interval& part) const {
  int64_t sum = 0;
  auto at = std::ranges::upper_bound(list_, part.begin, {}, &Interval::end);
  for (; at != list_.end() && at->begin < part.end; ++at)
    sum += std::max<int64_t>(0, std::min(at->end, part.end) - std::max(at->begin, part.begin));
  return sum;
}

std::vector<Interval> Intervals::gaps(const Interval& part) const {
  std::vector<Interval> gaps;
  int64_t from = part.begin;
  auto at = std::ranges::upper_bound(list_, part.begin, {}, &Interval::end);
  for (; at != list_.end() && at->begin < part.end; ++at) {
    if (at->begin > from) gaps.push_back({from, at->begin});
    from = std::max(from, at->end);
  }
  if (from < part.end) gaps.push_back({from, part.end});
  return gaps;
}

int64_t bytes_of(const OperandRecord& x) {
  int64_t count = x.is_number ? 0 : size_of(x.dtype);
  for (const int64_t n : x.sizes) count *= n;
  return count;
}

Least least_time(const Ceilings& ceilings, int64_t bytes, int64_t flops, DType dtype) {
  Least least;
  if (ceilings.copy_bytes_per_s > 0) least.streamed = 1e9 * static_cast<double>(bytes) / ceilings.copy_bytes_per_s;
  least.memory = least.streamed;
  if (ceilings.device.is_cpu() && bytes <= kCacheBytes)
    least.memory = std::min(least.memory, 1e9 * static_cast<double>(bytes) / kCacheBytesPerS);
  const auto rate = ceilings.matmul_flops_per_s.find(dtype);
  if (rate != ceilings.matmul_flops_per_s.end() && rate->second > 0)
    least.compute = 1e9 * static_cast<double>(flops) / rate->second;
  return least;
}

ProgramView::ProgramView(const Recording& recording, const std::vector<Ceilings>& known)
    : r(recording), on_gpu(!recording.device.empty()), ceilings_(known) {
  if (on_gpu) device = busiest(r), busy = busy_of(r, device);
  here = ceilings_of(device);
  std::vector<Interval> roots;
  std::vector<bool> has_calls_around(r.spans.size());
  for (size_t i = 0; i < r.spans.size(); ++i) {
    const SpanRecord& x = r.spans[i];
    if (x.thread != 0) continue;
    if (x.is_work()) calls.push_back(static_cast<int32_t>(i));
    if (x.parent == kNone) roots.push_back({x.begin, x.end});
    const auto parent = static_cast<size_t>(x.parent);  // comes first
    has_calls_around[i] = x.parent != kNone && (r.spans[parent].is_work() || has_calls_around[parent]);
    if (on_gpu || !has_calls_around[i]) recorded_.push_back(x.begin);
    if (on_gpu && may_launch(x.kind, x.op)) linked_.push_back(x.begin);
  }
  std::vector<bool> is_noted(r.calls.size());  // a graph is one piece of work to the host
  for (const DeviceRecord& x : r.device) {
    if (x.call == kNone || is_noted[static_cast<size_t>(x.call)]) continue;
    is_noted[static_cast<size_t>(x.call)] = true;
    const RuntimeCall& call = r.calls[static_cast<size_t>(x.call)];
    if (call.thread == 0) launched_.push_back(call.begin);
  }
  std::ranges::sort(launched_);
  for (const WaitRecord& x : r.waits)
    if (on_gpu && x.thread == 0) waited_.push_back(x.begin);
  span_gaps = Intervals(std::move(roots)).gaps({0, r.duration});
  measure_selves();
  std::ranges::copy_if(r.gaps, std::back_inserter(gaps), [](const GapRecord& gap) { return gap.thread == 0; });
  int64_t asleep = 0;
  for (const GapRecord& gap : gaps) asleep += gap.asleep;
  const int64_t cpu = r.threads.empty() ? 0 : r.threads[0].cpu_ns;
  if (cpu > 0 && r.duration > asleep)
    processor_share = std::min(1.0, static_cast<double>(cpu) / static_cast<double>(r.duration - asleep));
}

const Ceilings* ProgramView::ceilings_of(Device of) const {
  const auto at = std::ranges::find(ceilings_, of, &Ceilings::device);
  return at != ceilings_.end() ? &*at : nullptr;
}

std::optional<size_t> ProgramView::written(const SpanRecord& x) const {
  const OperandList* const list = operands(x);
  if (list == nullptr) return std::nullopt;
  const size_t at = x.in_place ? 0 : static_cast<size_t>(list->inputs);
  if (at >= list->operands.size() || list->operands[at].is_number) return std::nullopt;
  return at;
}

int64_t ProgramView::elements_written(const SpanRecord& x) const {
  const std::optional<size_t> at = written(x);
  if (!at) return -1;
  int64_t count = 1;
  for (const int64_t n : operands(x)->operands[*at].sizes) count *= n;
  return count;
}

std::optional<LinkCopy> ProgramView::link_copy(const SpanRecord& x) const {
  const OperandList* const list = operands(x);
  if ((x.op != Op::transfer && x.op != Op::copy) || list == nullptr) return std::nullopt;
  const size_t source = x.op == Op::copy ? 1 : 0;
  const size_t target = x.op == Op::copy ? 0 : static_cast<size_t>(list->inputs);
  if (source >= list->operands.size() || target >= list->operands.size()) return std::nullopt;
  const OperandRecord &from = list->operands[source], &to = list->operands[target];
  if (from.is_number || to.is_number || from.device.type == to.device.type) return std::nullopt;
  return LinkCopy{&from, &to, storage(x, source)};
}

double ProgramView::tracing_ns(const Interval& part) const {
  return r.costs.launch_ns * moments_within(launched_, part) +
         (r.costs.wait_ns + r.costs.span_ns) * moments_within(waited_, part);
}

double ProgramView::recording_ns(const Interval& part) const {
  return r.costs.span_ns * moments_within(recorded_, part) + r.costs.link_ns * moments_within(linked_, part) +
         tracing_ns(part);
}

double ProgramView::call_host_ns(const SpanRecord& x) const {
  return std::max(0.0, static_cast<double>(x.duration()) - tracing_ns({x.begin, x.end}));
}

void ProgramView::measure_selves() {
  self_ns.resize(r.spans.size());
  for (const int32_t i : calls) {
    self_ns[static_cast<size_t>(i)] += span(i).duration();
    int32_t outer = span(i).parent;  // of work, through modules and ranges
    while (outer != kNone && !span(outer).is_work()) outer = span(outer).parent;
    if (outer != kNone) self_ns[static_cast<size_t>(outer)] -= span(i).duration();
  }
}

double ProgramView::call_ns() const { return here != nullptr ? 1e9 * here->launch_s : 0; }

double ProgramView::kernel_ns() const { return on_gpu ? std::min(kLeastKernelNs, call_ns()) : call_ns(); }

}  // namespace lorry::profile
