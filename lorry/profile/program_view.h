#pragma once

// A recording as the diagnosis reads it: which device works, what each call needs at its ceilings, when a GPU was busy.

#include <vector>

#include "lorry/ops/dispatch/table.h"
#include "lorry/profile/diagnose.h"

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

/// A call, fused unit or replayed call of the host.
class ProgramView {
 public:
  ProgramView(const Recording& recording, const std::vector<Ceilings>& ceilings);

  const Recording& r;
  const std::vector<Ceilings>& ceilings;
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

  static bool is_work(const SpanRecord& x) { return x.kind != SpanKind::scope && x.kind != SpanKind::backward; }
  const SpanRecord& span(int32_t i) const { return r.spans[static_cast<size_t>(i)]; }
  const OperandList* operands(const SpanRecord& x) const {
    return x.operands != kNone ? &r.operand_lists[static_cast<size_t>(x.operands)] : nullptr;
  }
  /// Storage of operand i of a call; 0 for numbers.
  uint64_t storage(const SpanRecord& x, size_t i) const { return r.storages[static_cast<size_t>(x.storages) + i]; }
  const std::string& path(const SpanRecord& x) const { return r.paths[static_cast<size_t>(x.path)]; }
  const std::string& line(const SpanRecord& x) const { return r.lines[static_cast<size_t>(x.line)]; }

  /// The dtype in which a product computes: that of its first floating operand.
  DType product_dtype(const SpanRecord& x) const;
  /// Nanoseconds at the ceilings of the span's device, by bytes and by operations. Few bytes can lie in a cache of the
  /// CPU, which is faster than the copy; `streamed` is the time at the copy's rate.
  struct Least {
    double memory = 0, compute = 0, streamed = 0;
    double most() const { return memory > compute ? memory : compute; }
  };
  Least least(const SpanRecord& x) const { return least(x.bytes, x.flops, product_dtype(x)); }
  Least least(int64_t bytes, int64_t flops, DType dtype) const;
  /// Whether a pointwise operator that took `ns` computes more than it moves: exp, tan, pow.
  static bool is_heavy(double ns, const Least& least, double fixed_ns) {
    return least.streamed < kHeavyShare * ns && ns > 20 * fixed_ns;
  }
  /// It is slower than this share of the copy's rate.
  static constexpr double kHeavyShare = 0.3;
  /// What a call of the device costs beside its work, in nanoseconds: the host's part, and the device's.
  double call_ns() const;
  double kernel_ns() const;
  /// What recording a call cost, in nanoseconds, most of it between calls. No cure gains it. A chain of calls on 64 to
  /// 256 floats took 170 to 250 a call longer under a session.
  static constexpr double kRecordingNs = 200;
  /// The time that a call took: of its GPU, or of the CPU.
  double taken_ns(const SpanRecord& x) const {
    return static_cast<double>(x.launches > 0 ? x.device_ns : x.duration());
  }

 private:
  void measure_selves();
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

/// The bytes of a tensor's elements; 0 of a number.
int64_t bytes_of(const OperandRecord& x);

/// The time of the program and of its phases by regime.
void find_regimes(const ProgramView& program, Diagnosis& to);
/// Waits for a GPU.
void find_waits(const ProgramView& program, Diagnosis& to);
/// What would gain. Where findings overlap, the first of these claims the calls: products to batch, elements, loops
/// over tensors, on the CPU chains to fuse, optimizers. A graph gains with the calls that are left, and so does writing
/// in place.
void find_in_products(const ProgramView& program, Claims& claims, std::vector<Finding>& to);
void find_in_calls(const ProgramView& program, Claims& claims, std::vector<Finding>& to);
void find_in_tensors(const ProgramView& program, const Claims& claims, std::vector<Finding>& to);

}  // namespace lorry::profile
