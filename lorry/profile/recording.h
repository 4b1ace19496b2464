#pragma once

// What a session recorded: spans of the host, work of GPUs, waits and memory, with names, paths and source lines. Times
// are in nanoseconds since the session began. Everything refers to everything else by index, so a recording can be
// moved, saved, and read without the program that made it.

#include <cstdint>
#include <string>
#include <vector>

#include "lorry/base/span.h"
#include "lorry/layout/device.h"
#include "lorry/layout/dtype.h"
#include "lorry/layout/layout.h"

namespace lorry {
enum class Op : uint16_t;  // ops/dispatch/table.h
}

namespace lorry::profile {

/// No index.
inline constexpr int32_t kNone = -1;
/// No operator: of spans that are no calls.
inline constexpr Op kNoOp = static_cast<Op>(UINT16_MAX);

/// A tensor of a call, or a number in its place.
struct OperandRecord {
  DType dtype = kF32;
  Device device = kCPU;
  bool is_number = false;  ///< a number, or an undefined tensor: nothing else is set
  bool pinned = false;     ///< pinned host memory
  bool contiguous = true;
  bool requires_grad = false;
  Dims sizes = {}, strides = {};
};

/// The tensors of a call: `inputs` of them are inputs, the rest outputs. Equal lists are recorded once.
struct OperandList {
  int32_t inputs = 0;
  std::vector<OperandRecord> operands;
};

/// Work of the host: an operator call, a module's forward, a fused unit, the backward of a node, a replay.
struct SpanRecord {
  SpanKind kind{};
  bool failed = false;  ///< it ended with an error
  bool in_place = false;
  bool is_module = false;  ///< of a scope: that of a module, not of a range that the user named
  Op op = kNoOp;           ///< of a call
  int32_t thread = 0;      ///< index into Recording::threads
  int64_t begin = 0, end = 0;
  int32_t parent = kNone;        ///< the span around it
  int32_t name = 0;              ///< index into names
  int32_t path = 0;              ///< index into paths: where it was called from; of a backward, where its forward was
  int32_t line = 0;              ///< index into lines: the same
  int32_t operands = kNone;      ///< index into operand_lists
  int32_t storages = kNone;      ///< index into storages of the first operand's Storage::id(); numbers have 0
  Device device = kCPU;          ///< where its kernels ran, or else its first tensor on a GPU was
  int64_t bytes = 0, flops = 0;  ///< what it must move and compute (door::cost)
  DType dtype = kF32;            ///< in which it computes
  int32_t parts = kNone;         ///< of a replay: index into part_lists
  int64_t device_ns = 0;         ///< time of its kernels, copies and fills on GPUs, without those of inner spans
  int32_t launches = 0;          ///< their number

  int64_t duration() const { return end - begin; }
  /// Work of an operator: a call, a fused unit, a replay or a replayed call. These alone have bytes and operations;
  /// what is inside scopes and backwards are such spans.
  bool is_work() const { return kind != SpanKind::scope && kind != SpanKind::backward; }
};

enum class DeviceWork : uint8_t { kernel, copy, fill };

/// Which way a copy went.
enum class CopyKind : uint8_t { none, to_device, to_host, on_device, between_devices, on_host };

/// A kernel, copy or fill on a GPU.
struct DeviceRecord {
  DeviceWork work{};
  CopyKind copy = CopyKind::none;
  bool pageable = false;  ///< a copy from or to pageable host memory
  int8_t device = 0;
  int32_t stream = 0;  ///< the driver's number of the stream
  int64_t begin = 0, end = 0;
  int32_t name = 0;          ///< index into names: the kernel's name
  int32_t span = kNone;      ///< the span that launched it
  int32_t call = kNone;      ///< index into calls: the runtime's function that launched it
  uint32_t correlation = 0;  ///< the driver's number of the launch
  int32_t replayed = kNone;  ///< of a replayed graph: which of the parts of its span this is
  int64_t bytes = 0;         ///< of a copy or fill
  uint32_t grid[3] = {}, block[3] = {};
  uint32_t registers = 0, shared_bytes = 0;

  int64_t duration() const { return end - begin; }
};

/// A call that a graph repeats: where it was made when the graph was captured, and what it must move and compute.
struct PartRecord {
  int32_t name = 0, path = 0, line = 0;
  int64_t nodes = 1;  ///< kernels, copies and fills
  int64_t bytes = 0, flops = 0;
  DType dtype = kF32;  ///< in which it computes
};

/// A call of CUDA's runtime or driver by the host.
struct RuntimeCall {
  int64_t begin = 0, end = 0;
  int32_t name = 0;
  int32_t thread = kNone;  ///< kNone: a thread that is not recorded
  uint32_t correlation = 0;
  int32_t span = kNone;
};

/// The host waited for a GPU, or for something that a test takes for one.
struct WaitRecord {
  int64_t begin = 0, end = 0;
  int32_t thread = 0;
  int32_t span = kNone;  ///< the call that waited
  int32_t name = 0;      ///< index into names: the operator
  int32_t text = 0;      ///< index into names: what it waited for
  int32_t path = 0, line = 0;

  int64_t duration() const { return end - begin; }
};

/// A thread called nothing for some time.
struct GapRecord {
  int64_t begin = 0, end = 0;
  int32_t thread = 0;
  int64_t asleep = 0;  ///< of that, how long it had given up its processor: it slept, or waited for something
};

/// A block of memory was taken or given back.
struct MemoryRecord {
  int64_t time = 0;
  uint64_t address = 0;
  int64_t bytes = 0;      ///< negative: given back
  int32_t allocator = 0;  ///< index into names: "cpu", "cuda:0", ...
  int32_t span = kNone;   ///< during which
  int32_t name = 0;       ///< the operator
  int32_t path = 0, line = 0;
};

/// A thread that was recorded.
struct ThreadRecord {
  int64_t id = 0;  ///< the system's
  std::string name;
  int64_t cpu_ns = 0;  ///< how long it ran on a processor while it was recorded
};

/// What recording takes the host, in nanoseconds. It is no time of the program.
struct RecordingCosts {
  double span_ns = 0;    ///< a span or a wait, about
  double launch_ns = 0;  ///< work enqueued on a GPU, beside that
  double link_ns = 0;    ///< linking such work to the span that enqueued it
  double wait_ns = 0;    ///< a wait for a GPU, beside its span_ns
};

struct Recording {
  std::string started;  ///< date and time in UTC, ISO 8601
  int64_t duration = 0;
  int64_t process = 0;
  RecordingCosts costs;
  std::vector<std::string> names, paths, lines;  ///< element 0 of each is ""
  std::vector<ThreadRecord> threads;
  std::vector<SpanRecord> spans;     ///< by time of their beginning; a span follows the one around it
  std::vector<DeviceRecord> device;  ///< by time of their beginning
  std::vector<RuntimeCall> calls;    ///< the same
  std::vector<WaitRecord> waits;     ///< the same
  std::vector<GapRecord> gaps;       ///< the same; those of 20 us and more
  std::vector<MemoryRecord> memory;  ///< by time
  std::vector<std::vector<PartRecord>> part_lists;
  std::vector<OperandList> operand_lists;
  std::vector<uint64_t> storages;
  /// Memory in use when the session began, by allocator (index into names).
  std::vector<std::pair<int32_t, int64_t>> memory_before;
  /// Why something may be missing; empty: everything is there. What depends on completeness refuses to judge.
  std::vector<std::string> incomplete;
  /// Why GPUs were not recorded; empty: they were, or there is none.
  std::string no_gpu;

  const std::string& name_of(const SpanRecord& span) const { return names[static_cast<size_t>(span.name)]; }
  /// Where a kernel, copy or fill belongs: the replayed call, or the span that launched it. Zeros if neither is known.
  PartRecord origin_of(const DeviceRecord& work) const;
  bool is_complete() const { return incomplete.empty(); }
};

}  // namespace lorry::profile
