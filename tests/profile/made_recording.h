#pragma once

// Recordings that are made by hand, and ceilings of round numbers: a copy moves a byte in a nanosecond, a product makes
// an operation in a nanosecond, so that every expected time can be computed in the head.

#include <algorithm>
#include <string>
#include <vector>

#include "lorry/ops/dispatch/table.h"
#include "lorry/profile/diagnose.h"

namespace lorry::test {

using profile::Ceilings;
using profile::CopyKind;
using profile::DeviceRecord;
using profile::DeviceWork;
using profile::DiagnoseOptions;
using profile::Diagnosis;
using profile::Finding;
using profile::kNone;
using profile::OperandList;
using profile::OperandRecord;
using profile::Recording;
using profile::SpanRecord;
using profile::WaitRecord;

inline constexpr Device kFirstGPU{DeviceType::cuda, 0};
inline constexpr int64_t kMicro = 1000;
/// What passes between two kernels of a queue that is not empty.
inline constexpr int64_t kKernelGap = 1100;

inline Ceilings round_ceilings(Device device) {
  Ceilings c;
  c.device = device, c.name = "round";
  c.copy_bytes_per_s = 1e9, c.read_bytes_per_s = 1e9;
  c.launch_s = device.is_cuda() ? 5e-6 : 1e-7, c.wait_s = 10e-6, c.team_s = 1e-6;
  c.matmul_flops_per_s = {{kF32, 1e9}, {kF64, 5e8}, {kBF16, 1e9}};
  c.link_to_device_bytes_per_s = c.link_to_host_bytes_per_s = 1e8;
  return c;
}
inline DiagnoseOptions options(double least_gain = 0.02) {
  return {.least_gain = least_gain, .ceilings = {round_ceilings(kCPU), round_ceilings(kFirstGPU)}};
}

/// A tensor of a made-up call.
struct Operand {
  uint64_t storage = 0;
  Dims sizes = {};
  bool contiguous = true;
};

/// Makes a recording, in the order of time.
class RecordingMaker {
 public:
  /// span_cost_ns: what recording a span took.
  explicit RecordingMaker(double span_cost_ns = 0) {
    r_.names = r_.paths = r_.lines = {""}, r_.threads.resize(1), r_.costs.span_ns = span_cost_ns;
  }

  int32_t span(SpanKind kind, const std::string& name, int64_t begin, int64_t end, int32_t parent = kNone) {
    SpanRecord x;
    x.kind = kind, x.name = index(r_.names, name), x.begin = begin, x.end = end, x.parent = parent;
    r_.spans.push_back(x);
    r_.duration = std::max(r_.duration, end);
    return static_cast<int32_t>(r_.spans.size()) - 1;
  }
  /// A call; `bytes` and `flops` are what it must move and compute.
  int32_t call(Op op, int64_t begin, int64_t end, int64_t bytes = 0, int64_t flops = 0, int32_t parent = kNone) {
    const int32_t i = span(SpanKind::call, lorry::name(op), begin, end, parent);
    SpanRecord& x = r_.spans[static_cast<size_t>(i)];
    x.op = op, x.bytes = bytes, x.flops = flops, x.line = index(r_.lines, "made.cpp:1");
    return i;
  }
  void operands(int32_t span, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs = {}) {
    OperandList list;
    list.inputs = static_cast<int32_t>(inputs.size());
    SpanRecord& x = r_.spans[static_cast<size_t>(span)];
    x.storages = static_cast<int32_t>(r_.storages.size());
    for (const auto* part : {&inputs, &outputs})
      for (const Operand& operand : *part) {
        OperandRecord record;
        record.sizes = operand.sizes, record.contiguous = operand.contiguous;
        list.operands.push_back(record);
        r_.storages.push_back(operand.storage);
      }
    x.in_place = outputs.empty();
    const auto same = std::ranges::find_if(r_.operand_lists, [&](const OperandList& y) {
      return list.inputs == y.inputs && std::ranges::equal(list.operands, y.operands, [](const auto& a, const auto& b) {
               return a.sizes == b.sizes && a.contiguous == b.contiguous;
             });
    });
    x.operands = static_cast<int32_t>(same - r_.operand_lists.begin());
    if (same == r_.operand_lists.end()) r_.operand_lists.push_back(std::move(list));
  }
  /// A kernel launched at `launched` by the host, for a span.
  void kernel(int32_t span, int64_t launched, int64_t begin, int64_t end) {
    device_work(DeviceWork::kernel, CopyKind::none, span, launched, begin, end);
  }
  void device_work(DeviceWork work, CopyKind copy, int32_t span, int64_t launched, int64_t begin, int64_t end) {
    DeviceRecord x;
    x.work = work, x.copy = copy, x.begin = begin, x.end = end, x.span = span;
    x.call = static_cast<int32_t>(r_.calls.size());
    r_.calls.push_back({.begin = launched, .end = launched + 1, .thread = 0});
    r_.device.push_back(x);
    if (span != kNone) {
      SpanRecord& of = r_.spans[static_cast<size_t>(span)];
      of.device = kFirstGPU, of.device_ns += x.duration(), ++of.launches;
    }
    r_.duration = std::max(r_.duration, end);
  }
  void wait(int64_t begin, int64_t end) {
    WaitRecord x;
    x.begin = begin, x.end = end, x.name = index(r_.names, "item");
    r_.waits.push_back(x);
    r_.duration = std::max(r_.duration, end);
  }
  void gap(int64_t begin, int64_t end, int64_t asleep) {
    r_.gaps.push_back({.begin = begin, .end = end, .asleep = asleep});
    r_.duration = std::max(r_.duration, end);
  }
  Recording& recording() { return r_; }

 private:
  static int32_t index(std::vector<std::string>& list, const std::string& text) {
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i] == text) return static_cast<int32_t>(i);
    list.push_back(text);
    return static_cast<int32_t>(list.size()) - 1;
  }
  Recording r_;
};

/// The first finding of a kind; null: there is none.
inline const Finding* find(const Diagnosis& d, Finding::Kind kind) {
  const auto at = std::ranges::find(d.findings, kind, &Finding::kind);
  return at != d.findings.end() ? &*at : nullptr;
}

}  // namespace lorry::test
