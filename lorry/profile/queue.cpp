#include "lorry/profile/queue.h"

#include <algorithm>

namespace lorry::profile {
namespace {

/// What passes between two pieces of work of a queue that is not empty, in nanoseconds, on an H200. Copies are made by
/// an engine of their own, which is told first.
double usual_gap(const DeviceRecord& x, const DeviceRecord& next) {
  constexpr double kKernels = 1100, kFill = 1700, kCopy = 5000;
  const auto has = [&](DeviceWork work) { return x.work == work || next.work == work; };
  return has(DeviceWork::copy) ? kCopy : has(DeviceWork::fill) ? kFill : kKernels;
}

}  // namespace

int64_t enqueued(const Recording& r, const DeviceRecord& x) {
  if (x.call != kNone) return r.calls[static_cast<size_t>(x.call)].begin;
  return x.span != kNone ? r.spans[static_cast<size_t>(x.span)].begin : x.begin;
}

int32_t thread_of(const Recording& r, const DeviceRecord& x) {
  if (x.call != kNone) return r.calls[static_cast<size_t>(x.call)].thread;
  return x.span != kNone ? r.spans[static_cast<size_t>(x.span)].thread : kNone;
}

Queue::Queue(const ProgramView& program) : p_(program) {
  // From the host's call to the beginning of the work where nothing is before it: what a twentieth took less than.
  std::vector<double> list;
  for (const DeviceRecord& x : p_.r.device)
    if (x.device == p_.device.index && x.call != kNone) list.push_back(latency(x));
  if (list.empty()) return;
  const auto least = list.begin() + static_cast<ptrdiff_t>(list.size() / 20);
  std::ranges::nth_element(list, least);
  usual_latency_ = *least;
}

void Queue::add(const DeviceRecord& x, double host_ns) {
  if (host_ns <= 0) {
    earlier_ns_ = 0;
  } else if (last_ == nullptr) {
    earlier_ns_ = host_ns;
  } else if (x.begin >= done_) {
    const double was_early = std::max(0.0, latency(x) - usual_latency_);
    earlier_ns_ = std::min(earlier_ns_ + idle_for_host(x), host_ns + was_early);
  }
  add(x);
}

/// For how long the queue waited for the host before x. What was enqueued long before was not waited for.
double Queue::idle_for_host(const DeviceRecord& x) const {
  const double idle = static_cast<double>(x.begin - done_) - usual_gap(*last_, x);
  return idle < latency(x) - usual_latency_ ? 0 : std::max(0.0, idle);
}

double held_up_by_recording_ns(const ProgramView& p, const Interval& part) {
  Queue queue(p);
  double waited = 0;  // of what recording took, how much the host waited for longer instead
  int64_t at = part.begin;
  auto wait = p.r.waits.begin();
  for (const DeviceRecord& x : p.r.device) {
    if (x.device != p.device.index || x.begin < part.begin || x.begin >= part.end) continue;
    if (thread_of(p.r, x) != 0) {
      queue.add(x);
      continue;
    }
    at = std::max(at, enqueued(p.r, x));  // another stream may have let earlier work wait
    const auto recorded = [&](int64_t until) { return p.recording_ns({part.begin, std::max(until, part.begin)}); };
    // After a wait the host is no earlier than the GPU.
    for (; wait != p.r.waits.end() && (wait->thread != 0 || wait->end <= at); ++wait)
      if (wait->thread == 0 && wait->begin >= part.begin)
        waited = std::max(waited, recorded(wait->begin) - queue.earlier_ns());
    queue.add(x, recorded(at) - waited);
  }
  return queue.earlier_ns();
}

}  // namespace lorry::profile
