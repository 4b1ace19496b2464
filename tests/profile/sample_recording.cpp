#include "tests/profile/sample_recording.h"

#include <algorithm>
#include <string_view>

namespace lorry::profile {
namespace {

class Maker {
 public:
  Maker() {
    made_.started = "2026-01-02T03:04:05Z", made_.duration = 20'000, made_.process = 4242;
    made_.names.push_back(""), made_.paths.push_back(""), made_.lines.push_back("");
    made_.threads = {{4242, "main", 0}, {4243, kStrangeName, 0}};
    made_.incomplete = {"CUPTI dropped 1 \"record\""};
  }

  int32_t span(SpanKind kind, std::string_view name, int64_t begin, int64_t end, int32_t parent, int32_t thread = 0) {
    SpanRecord& x = made_.spans.emplace_back();
    x.kind = kind, x.name = text(made_.names, name), x.begin = begin, x.end = end, x.parent = parent, x.thread = thread;
    x.path = text(made_.paths, "block0.attention"), x.line = text(made_.lines, "model.cpp:12 forward(\"x\")");
    return static_cast<int32_t>(made_.spans.size()) - 1;
  }
  int32_t call(std::string_view name, int64_t begin, int64_t end, int32_t span, int32_t thread = 0) {
    const auto correlation = static_cast<uint32_t>(101 + made_.calls.size());
    made_.calls.push_back({begin, end, text(made_.names, name), thread, correlation, span});
    return static_cast<int32_t>(made_.calls.size()) - 1;
  }
  DeviceRecord& work(DeviceWork what, std::string_view name, int32_t stream, int64_t begin, int64_t end, int32_t call) {
    DeviceRecord& x = made_.device.emplace_back();
    x.work = what, x.name = text(made_.names, name), x.stream = stream, x.begin = begin, x.end = end, x.call = call;
    if (call != kNone) {
      const RuntimeCall& launch = made_.calls[static_cast<size_t>(call)];
      x.correlation = launch.correlation, x.span = launch.span;
    }
    return x;
  }
  void wait(std::string_view what, int64_t begin, int64_t end, int32_t span) {
    made_.waits.push_back({begin, end, 0, span, text(made_.names, "item"), text(made_.names, what), 0, 0});
  }
  void memory(int64_t time, std::string_view allocator, int64_t bytes) {
    made_.memory.push_back({time, 0x1000, bytes, text(made_.names, allocator), kNone, 0, 0, 0});
  }
  int32_t name(std::string_view name) { return text(made_.names, name); }
  Recording& made() { return made_; }

 private:
  static int32_t text(std::vector<std::string>& texts, std::string_view text) {
    const auto at = std::ranges::find(texts, text);
    if (at != texts.end()) return static_cast<int32_t>(at - texts.begin());
    texts.emplace_back(text);
    return static_cast<int32_t>(texts.size()) - 1;
  }

  Recording made_;
};

/// A graph of two calls, the first with two kernels, launched by a call that the driver's clock puts around its span.
void add_replay(Maker& m, int32_t step) {
  const int32_t replay = m.span(SpanKind::replay, "replay", 5'000, 5'600, step);
  Recording& r = m.made();
  r.paths.emplace_back("block1.mlp"), r.lines.emplace_back("model.cpp:40");
  const auto path = static_cast<int32_t>(r.paths.size()) - 1, line = static_cast<int32_t>(r.lines.size()) - 1;
  r.part_lists.push_back({{m.name("gelu"), path, line, 2, 64, 8}, {m.name("sum"), path, line, 1, 64, 16}});
  r.spans.back().parts = 0;
  const int32_t launch = m.call("cudaGraphLaunch", 4'990, 5'610, replay);
  for (int32_t i = 0; i < 3; ++i)
    m.work(DeviceWork::kernel, "replayed_kernel", 7, 6'000 + 100 * i, 6'090 + 100 * i, launch).replayed = i / 2;
}

void add_main_thread(Maker& m) {
  const int32_t step = m.span(SpanKind::scope, "step", 1'000, 19'000, kNone);
  const int32_t block = m.span(SpanKind::scope, "block0.attention", 1'200, 4'500, step);
  const int32_t linear = m.span(SpanKind::call, "linear", 1'500, 3'000, block);
  SpanRecord& x = m.made().spans.back();
  x.bytes = 4096, x.flops = 8192, x.operands = 0;
  OperandRecord a, number;
  a.sizes = {2, 3}, number.is_number = true;
  m.made().operand_lists.push_back({2, {a, number}});
  // The driver's clock is behind: the call seems to begin before the span that made it.
  const int32_t first = m.call("cudaLaunchKernel", 1'480, 1'600, linear);
  const int32_t second = m.call("cudaLaunchKernel", 1'700, 1'800, linear);
  m.work(DeviceWork::kernel, kStrangeName, 7, 2'000, 4'000, first).shared_bytes = 1024;
  m.work(DeviceWork::kernel, "on_another_stream", 13, 3'000, 5'000, second);
  // At the same time as the first, on the same stream, as kernels of a graph may be.
  m.work(DeviceWork::kernel, "beside", 7, 3'500, 4'800, second);
  // This call of the runtime seems to go on when the next span has begun, that one to begin before a span has ended.
  m.call("cudaEventRecord", 3'050, 3'150, block);
  m.span(SpanKind::call, kStrangeName, 3'100, 3'900, block);
  m.call("cudaEventQuery", 3'890, 3'950, block);
  add_replay(m, step);
  m.span(SpanKind::backward, "linear backward", 7'000, 8'000, step);
  m.made().spans.back().failed = true;
  const int32_t item = m.span(SpanKind::call, "item", 9'000, 9'500, step);
  m.wait("a copy to the host", 8'990, 9'520, item);
  m.call("cudaStreamSynchronize", 9'010, 9'490, item);
  const int32_t copy = m.call("cudaMemcpyAsync", 9'020, 9'040, item);
  m.work(DeviceWork::copy, "Memcpy DtoH", 7, 9'100, 9'200, copy).bytes = 4;
}

}  // namespace

Recording sample_recording() {
  Maker m;
  add_main_thread(m);
  const int32_t load = m.span(SpanKind::scope, "load", 500, 1'000, kNone, 1);
  m.span(SpanKind::call, "empty", 700, 700, load, 1);
  m.span(SpanKind::call, "empty", 800, 900, load, 1);
  // Of threads that are not recorded, at the same time; the later one first, as drivers report them.
  const int32_t fill = m.call("cudaMemsetAsync", 11'050, 11'150, kNone, kNone);
  m.call("cudaMalloc", 11'000, 11'100, kNone, kNone);
  m.work(DeviceWork::fill, "Memset", 13, 11'500, 11'600, fill).bytes = 256;
  m.work(DeviceWork::kernel, "of_a_second_gpu", 7, 12'000, 12'500, kNone).device = 1;
  // It ran already when the session began.
  m.work(DeviceWork::kernel, "from_before", 13, -300, 400, kNone);
  m.made().memory_before = {{m.name("cpu"), 1000}};
  m.memory(100, "cpu", 24), m.memory(200, "cuda:0", 4096), m.memory(300, "cpu", -1000), m.memory(400, "cuda:0", -4096);
  Recording& r = m.made();
  // Spans of the second thread begin first, but nothing refers to the order between threads.
  std::ranges::stable_sort(r.device, {}, &DeviceRecord::begin);
  return std::move(r);
}

}  // namespace lorry::profile
