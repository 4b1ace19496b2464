#pragma once

// What a GPU would have done if the host had enqueued its work earlier.

#include "lorry/profile/program_view.h"

namespace lorry::profile {

/// When the host enqueued work, as nearly as it is known.
int64_t enqueued(const Recording& recording, const DeviceRecord& x);
/// The thread that enqueued it; kNone: one that is not recorded, or it is not known.
int32_t thread_of(const Recording& recording, const DeviceRecord& x);

/// The queue of the program's GPU. Its work begins when the host has enqueued it and the work before it is done; work
/// of several streams counts as one queue. The work is added by time.
class Queue {
 public:
  explicit Queue(const ProgramView& program);
  /// The host enqueues x earlier by `host_ns`.
  void add(const DeviceRecord& x, double host_ns);
  /// x is work of another thread. It is no reason for the queue to be earlier, or not to be.
  void add(const DeviceRecord& x) {
    if (x.end > done_) done_ = x.end, last_ = &x;
  }
  /// By how much the queue is done earlier than it was, in nanoseconds: at least 0, and at most what the host is
  /// earlier and was early already.
  double earlier_ns() const { return earlier_ns_; }

 private:
  /// From the host's call to the beginning of the work; where the call is not known, as long as usual.
  double latency(const DeviceRecord& x) const {
    return x.call != kNone ? static_cast<double>(x.begin - enqueued(p_.r, x)) : usual_latency_;
  }
  double idle_for_host(const DeviceRecord& x) const;

  const ProgramView& p_;
  double usual_latency_ = 0;
  const DeviceRecord* last_ = nullptr;  ///< the work that was done last, at done_
  int64_t done_ = 0;
  double earlier_ns_ = 0;
};

/// By how much the GPU would have been done earlier with `part` if nothing had been recorded in it, in nanoseconds.
/// What is recorded while the GPU works on what is enqueued already holds nothing up.
double held_up_by_recording_ns(const ProgramView& program, const Interval& part);

}  // namespace lorry::profile
