#pragma once

// A recording as the diagnosis reads it: which device works, what each call needs at its ceilings, when a GPU was busy.

#include <algorithm>
#include <optional>
#include <vector>

#include "lorry/profile/diagnose.h"
#include "lorry/profile/may_launch.h"

namespace lorry::profile {

/// Moments begin <= t < end.
struct Interval {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
};
/// Intervals by time, none of which overlap.
class Intervals {
 public:
  Intervals() = default;
  /// Any intervals, which are joined where they meet.
  explicit Intervals(std::vector<Interval> list);

  int64_t length() const;
  const std::vector<Interval>& list() const { return list_; }
  /// How much of `part` they cover.
  int64_t within(const Interval& part) const;
  /// What they leave of `part`.
  std::vector<Interval> gaps(const Interval& part) const;

 private:
  std::vector<Interval> list_;
};

/// Nanoseconds at a device's ceilings, by bytes and by operations. Few bytes can lie in a cache of the CPU, which is
/// faster than the copy; `streamed` is the time at the copy's rate. Zeros: unknown.
struct Least {
  double memory = 0, compute = 0, streamed = 0;
  double most() const { return memory > compute ? memory : compute; }
};
Least least_time(const Ceilings& ceilings, int64_t bytes, int64_t flops, DType dtype);

/// The bytes of a tensor's elements; 0 of a number.
int64_t bytes_of(const OperandRecord& x);

/// A copy between host and device that a call makes.
struct LinkCopy {
  const OperandRecord *from, *to;
  uint64_t source;  ///< the storage that is read

  bool is_to_device() const { return to->device.is_cuda(); }
  bool is_pinned() const { return is_to_device() ? from->pinned : to->pinned; }
  /// It is slow for its memory. A small copy costs a call, whatever its memory.
  bool is_pageable() const { return !is_pinned() && bytes_of(*from) >= kSmallCopy; }
  static constexpr int64_t kSmallCopy = 65536;
};

/// Reads a recording, and does not own it. Calls are the main thread's.
class ProgramView {
 public:
  ProgramView(const Recording& recording, const std::vector<Ceilings>& ceilings);

  const Recording& r;
  bool on_gpu = false;
  Device device = kCPU;
  const Ceilings* here = nullptr;  ///< of `device`; null if unknown
  Intervals busy;                  ///< the GPU `device` works
  std::vector<int32_t> calls;      ///< spans that are work of an operator, on the main thread, by time
  std::vector<int64_t> self_ns;    ///< by span: its time without that of work inside it
  /// The share of its time that the main thread had a processor, of the time that it wanted one. What calls cost is
  /// counted by it: time that other programs took is nobody's gain.
  double processor_share = 1;
  std::vector<Interval> span_gaps;  ///< the main thread's time outside all spans
  std::vector<GapRecord> gaps;      ///< of the main thread, by time

  const SpanRecord& span(int32_t i) const { return r.spans[static_cast<size_t>(i)]; }
  const OperandList* operands(const SpanRecord& x) const {
    return x.operands != kNone ? &r.operand_lists[static_cast<size_t>(x.operands)] : nullptr;
  }
  /// Storage of operand i of a call; 0 for numbers.
  uint64_t storage(const SpanRecord& x, size_t i) const { return r.storages[static_cast<size_t>(x.storages) + i]; }
  const std::string& path(const SpanRecord& x) const { return r.paths[static_cast<size_t>(x.path)]; }
  const std::string& line(const SpanRecord& x) const { return r.lines[static_cast<size_t>(x.line)]; }

  /// The first tensor that a call writes, as an index into its operands; none if it writes none, or a number.
  std::optional<size_t> written(const SpanRecord& x) const;
  /// Its storage; 0 if there is none.
  uint64_t written_storage(const SpanRecord& x) const {
    const std::optional<size_t> at = written(x);
    return at ? storage(x, *at) : 0;
  }
  int64_t elements_written(const SpanRecord& x) const;  ///< -1 if unknown
  /// None if the call makes no such copy, or was recorded without operands.
  std::optional<LinkCopy> link_copy(const SpanRecord& x) const;

  /// At the ceilings of the span's own device.
  Least least(const SpanRecord& x) const {
    const Ceilings* const own = x.device == device ? here : ceilings_of(x.device);
    return own != nullptr ? least_time(*own, x.bytes, x.flops, x.dtype) : Least();
  }
  /// At those of `device`.
  Least least(int64_t bytes, int64_t flops, DType dtype) const {
    return here != nullptr ? least_time(*here, bytes, flops, dtype) : Least();
  }
  /// Whether a pointwise operator that took `ns` computes more than it moves: exp, tan, pow.
  static bool is_heavy(double ns, const Least& least, double fixed_ns) {
    return least.streamed < kHeavyShare * ns && ns > 20 * fixed_ns;
  }
  /// It is slower than this share of the copy's rate.
  static constexpr double kHeavyShare = 0.3;
  /// What a call of the device costs beside its work, in nanoseconds: the host's part, and the device's.
  double call_ns() const;
  double kernel_ns() const;
  /// What recording took of the main thread's time; of a program on the CPU outside calls, since inside one it is part
  /// of the call's time.
  double recording_ns(const Interval& part) const;
  /// The host's time of a call, without what recording its work on GPUs and its waits for them took.
  double call_host_ns(const SpanRecord& x) const;
  /// What recording a span takes beside its own time, before and after it.
  double recording_ns(const SpanRecord& x) const {
    return r.costs.span_ns + (on_gpu && may_launch(x.kind, x.op) ? r.costs.link_ns : 0);
  }
  /// What recording the work that was enqueued on GPUs and the waits for them took.
  double tracing_ns(const Interval& part) const;
  /// The time that a call took: of its GPU, or of the CPU.
  double taken_ns(const SpanRecord& x) const {
    return static_cast<double>(x.launches > 0 ? x.device_ns : x.duration());
  }

 private:
  const Ceilings* ceilings_of(Device device) const;
  void measure_selves();

  const std::vector<Ceilings>& ceilings_;
  // When what recording_ns() counts was recorded, by time:
  std::vector<int64_t> recorded_;  ///< spans
  std::vector<int64_t> linked_;    ///< spans whose work is linked to them
  std::vector<int64_t> launched_;  ///< work enqueued on GPUs
  std::vector<int64_t> waited_;    ///< waits for GPUs
};

/// Calls that the cure of a finding does away with. A later finding does not count their cost again.
class Claims {
 public:
  explicit Claims(const ProgramView& program) : claimed_(program.r.spans.size()) {}
  void add(int32_t span) { claimed_[static_cast<size_t>(span)] = true; }
  bool has(int32_t span) const { return claimed_[static_cast<size_t>(span)]; }

 private:
  std::vector<bool> claimed_;
};

/// The time of the program and of its phases by regime.
void find_regimes(const ProgramView& program, Diagnosis& to);
/// Waits for a GPU.
void find_waits(const ProgramView& program, Diagnosis& to);
/// What would gain. Where calls could be done away with in several ways, the first of these claims them: products to
/// batch, elements, loops over tensors, on the CPU chains to fuse, optimizers. A graph gains with the calls that are
/// left, and so does writing in place. What makes a call itself faster (dtype, alignment, contiguous, copies) is
/// counted whoever claims it, so gains of different findings do not add up.
void find_in_products(const ProgramView& program, Claims& claims, std::vector<Finding>& to);
void find_in_calls(const ProgramView& program, Claims& claims, std::vector<Finding>& to);
void find_in_tensors(const ProgramView& program, const Claims& claims, std::vector<Finding>& to);

}  // namespace lorry::profile
