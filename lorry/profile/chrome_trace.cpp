#include "lorry/profile/chrome_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "lorry/base/error.h"
#include "lorry/profile/text_writer.h"

namespace lorry::profile {
namespace {

constexpr int kDeviceProcess = 0;           ///< GPUs are the processes 0, 1, ...
constexpr int64_t kLaneStride = 1'000'000;  ///< of work that overlaps on one stream: lanes beside it

/// Keeps slices of one track nested: clocks of different sources differ by fractions of a microsecond, and viewers drop
/// what overlaps. Slices come in the order of their beginnings.
class Nesting {
 public:
  /// The end of the slice, cut where the slice around it ends.
  int64_t clip(int64_t begin, int64_t end) {
    while (!ends_.empty() && ends_.back() <= begin) ends_.pop_back();
    if (!ends_.empty()) end = std::min(end, ends_.back());
    ends_.push_back(end);
    return end;
  }

 private:
  std::vector<int64_t> ends_;
};

const char* category(SpanKind kind) {
  switch (kind) {
    case SpanKind::scope:
      return "user_annotation";
    case SpanKind::wait:
      return "cuda_sync";
    default:
      return "cpu_op";
  }
}

class Writer {
 public:
  Writer(const Recording& recording, TextWriter& out) : r_(recording), out_(out) {
    for (const std::string& text : r_.names) names_.push_back(json_string(text));
    for (const std::string& text : r_.paths) paths_.push_back(json_string(text));
    for (const std::string& text : r_.lines) lines_.push_back(json_string(text));
    for (const OperandList& list : r_.operand_lists) describe(list);
  }

  void write() {
    out_ << "{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\", \"started\": " << json_string(r_.started)
         << ", \"complete\": " << (r_.is_complete() ? "true" : "false") << ", \"incomplete\": [";
    for (size_t i = 0; i < r_.incomplete.size(); ++i) out_ << (i > 0 ? ", " : "") << json_string(r_.incomplete[i]);
    out_ << "],\n\"traceEvents\": [";
    write_labels();
    for (size_t t = 0; t < r_.threads.size(); ++t) write_thread(static_cast<int32_t>(t));
    write_unrecorded_calls();
    write_device();
    write_memory();
    out_ << "\n]}\n";
  }

 private:
  void describe(const OperandList& list) {
    std::string sizes = "[", types = "[";
    for (int32_t i = 0; i < list.inputs; ++i) {
      const OperandRecord& x = list.operands[static_cast<size_t>(i)];
      sizes += fmt::format("{}[{}]", i > 0 ? ", " : "", fmt::join(x.sizes.begin(), x.sizes.end(), ", "));
      types += fmt::format("{}\"{}\"", i > 0 ? ", " : "", x.is_number ? "number" : lorry::name(x.dtype));
    }
    operands_.push_back(fmt::format(", \"Input Dims\": {}], \"Input type\": {}]", sizes, types));
  }

  TextWriter& next() {
    if (!first_) out_ << ",";
    first_ = false;
    return out_ << "\n";
  }
  void label(const char* what, int64_t process, int64_t thread, std::string_view json) {
    next() << "{\"ph\": \"M\", \"name\": \"" << what << "\", \"pid\": " << process << ", \"tid\": " << thread
           << ", \"args\": {\"" << (std::strstr(what, "sort") != nullptr ? "sort_index" : "name") << "\": " << json
           << "}}";
  }
  void write_labels() {
    label("process_name", r_.process, 0, "\"lorry\"");
    for (const ThreadRecord& thread : r_.threads)
      label("thread_name", r_.process, thread.id, json_string(fmt::format("{} {}", thread.name, thread.id)));
    std::map<int, bool> devices;
    for (const DeviceRecord& x : r_.device) devices[x.device] = true;
    for (const auto& [device, used] : devices)
      label("process_name", kDeviceProcess + device, 0, fmt::format("\"cuda:{}\"", device)),
          label("process_sort_index", kDeviceProcess + device, 0, fmt::format("{}", 5000000 + device));
  }

  TextWriter& slice(std::string_view category, std::string_view name, int64_t process, int64_t thread, int64_t begin,
                    int64_t end) {
    next() << "{\"ph\": \"X\", \"cat\": \"" << category << "\", \"name\": " << name << ", \"pid\": " << process
           << ", \"tid\": " << thread << ", \"ts\": ";
    out_.microseconds(begin) << ", \"dur\": ";
    return out_.microseconds(end - begin);
  }

  void write_span(size_t i, Nesting& nesting) {
    const SpanRecord& x = r_.spans[i];
    const int64_t thread = r_.threads[static_cast<size_t>(x.thread)].id;
    slice(category(x.kind), names_[static_cast<size_t>(x.name)], r_.process, thread, x.begin,
          nesting.clip(x.begin, x.end))
        << ", \"args\": {\"External id\": " << i + 1;
    if (x.path != 0) out_ << ", \"Module\": " << paths_[static_cast<size_t>(x.path)];
    if (x.line != 0) out_ << ", \"Line\": " << lines_[static_cast<size_t>(x.line)];
    if (x.bytes != 0) out_ << ", \"Bytes\": " << x.bytes;
    if (x.flops != 0) out_ << ", \"Flops\": " << x.flops;
    if (x.kind == SpanKind::backward) out_ << ", \"Backward\": true";
    if (x.failed) out_ << ", \"Failed\": true";
    if (x.operands != kNone) out_ << operands_[static_cast<size_t>(x.operands)];
    out_ << "}}";
  }
  void write_call(const RuntimeCall& x, int64_t thread, Nesting& nesting) {
    slice("cuda_runtime", names_[static_cast<size_t>(x.name)], r_.process, thread, x.begin,
          nesting.clip(x.begin, x.end))
        << ", \"args\": {\"correlation\": " << x.correlation;
    if (x.span != kNone) out_ << ", \"External id\": " << x.span + 1;
    out_ << "}}";
  }
  void write_wait(const WaitRecord& x, int64_t thread, Nesting& nesting) {
    slice("cuda_sync", names_[static_cast<size_t>(x.text)], r_.process, thread, x.begin, nesting.clip(x.begin, x.end))
        << ", \"args\": {\"Operator\": " << names_[static_cast<size_t>(x.name)];
    if (x.span != kNone) out_ << ", \"External id\": " << x.span + 1;
    if (x.line != 0) out_ << ", \"Line\": " << lines_[static_cast<size_t>(x.line)];
    out_ << "}}";
  }

  /// Everything on one thread, merged by time.
  void write_thread(int32_t thread) {
    struct Item {
      int64_t begin, end;
      int what;
      size_t index;
    };
    std::vector<Item> items;
    for (size_t i = 0; i < r_.spans.size(); ++i)
      if (r_.spans[i].thread == thread) items.push_back({r_.spans[i].begin, r_.spans[i].end, 0, i});
    for (size_t i = 0; i < r_.waits.size(); ++i) {
      if (r_.waits[i].thread != thread) continue;
      // A wait is timed by another clock than the call that waits.
      const int32_t span = r_.waits[i].span;
      const int64_t from = span != kNone ? r_.spans[static_cast<size_t>(span)].begin : INT64_MIN;
      items.push_back({std::max(r_.waits[i].begin, from), r_.waits[i].end, 1, i});
    }
    for (size_t i = 0; i < r_.calls.size(); ++i)
      if (r_.calls[i].thread == thread) items.push_back({r_.calls[i].begin, r_.calls[i].end, 2, i});
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    const int64_t id = r_.threads[static_cast<size_t>(thread)].id;
    Nesting nesting;
    for (const Item& item : items) {
      if (item.what == 0) write_span(item.index, nesting);
      if (item.what == 1) write_wait(r_.waits[item.index], id, nesting);
      if (item.what == 2) write_call(r_.calls[item.index], id, nesting);
    }
  }
  void write_unrecorded_calls() {
    Nesting nesting;
    for (const RuntimeCall& x : r_.calls)
      if (x.thread == kNone) write_call(x, kLaneStride, nesting);
  }

  /// The first lane of the stream that is free.
  int64_t lane_of(const DeviceRecord& x) {
    std::vector<int64_t>& lanes = lanes_[{x.device, x.stream}];
    size_t lane = 0;
    while (lane < lanes.size() && lanes[lane] > x.begin) ++lane;
    const int64_t track = x.stream + kLaneStride * static_cast<int64_t>(lane);
    if (lane == lanes.size()) {
      lanes.push_back(0);
      label("thread_name", kDeviceProcess + x.device, track,
            json_string(lane == 0 ? fmt::format("stream {}", x.stream)
                                  : fmt::format("stream {}, at the same time", x.stream)));
    }
    lanes[lane] = x.end;
    return track;
  }
  void write_device() {
    for (const DeviceRecord& x : r_.device) {
      const int64_t track = lane_of(x), process = kDeviceProcess + x.device;
      const char* const what = x.work == DeviceWork::kernel ? "kernel"
                               : x.work == DeviceWork::copy ? "gpu_memcpy"
                                                            : "gpu_memset";
      slice(what, names_[static_cast<size_t>(x.name)], process, track, x.begin, x.end)
          << ", \"args\": {\"device\": " << x.device << ", \"stream\": " << x.stream
          << ", \"correlation\": " << x.correlation;
      if (x.span != kNone) out_ << ", \"External id\": " << x.span + 1;
      write_place(x);
      if (x.work == DeviceWork::kernel)
        out_ << ", \"grid\": [" << x.grid[0] << ", " << x.grid[1] << ", " << x.grid[2] << "], \"block\": ["
             << x.block[0] << ", " << x.block[1] << ", " << x.block[2] << "], \"registers per thread\": " << x.registers
             << ", \"shared memory\": " << x.shared_bytes;
      else
        out_ << ", \"bytes\": " << x.bytes;
      out_ << "}}";
      if (x.call == kNone) continue;
      const RuntimeCall& call = r_.calls[static_cast<size_t>(x.call)];
      const int64_t thread = call.thread == kNone ? kLaneStride : r_.threads[static_cast<size_t>(call.thread)].id;
      flow("s", x.correlation, r_.process, thread, call.begin);
      flow("f", x.correlation, process, track, x.begin);
    }
  }
  /// The operator, module and line that a kernel belongs to.
  void write_place(const DeviceRecord& x) {
    const PartRecord origin = r_.origin_of(x);
    if (origin.name != 0) out_ << ", \"Operator\": " << names_[static_cast<size_t>(origin.name)];
    if (origin.path != 0) out_ << ", \"Module\": " << paths_[static_cast<size_t>(origin.path)];
    if (origin.line != 0) out_ << ", \"Line\": " << lines_[static_cast<size_t>(origin.line)];
  }
  void flow(std::string_view phase, uint32_t id, int64_t process, int64_t thread, int64_t time) {
    next() << "{\"ph\": \"" << phase << "\", \"id\": " << id
           << ", \"cat\": \"ac2g\", \"name\": \"ac2g\", \"pid\": " << process << ", \"tid\": " << thread
           << ", \"ts\": ";
    out_.microseconds(time) << (phase == "f" ? ", \"bp\": \"e\"}" : "}");
  }

  /// Memory in use, as a counter of each allocator.
  void write_memory() {
    std::map<int32_t, int64_t> in_use;
    for (const auto& [allocator, bytes] : r_.memory_before) in_use[allocator] = bytes;
    for (const MemoryRecord& x : r_.memory) {
      in_use[x.allocator] += x.bytes;
      const std::string& name = names_[static_cast<size_t>(x.allocator)];
      next() << "{\"ph\": \"C\", \"name\": " << name << ", \"pid\": " << r_.process << ", \"ts\": ";
      out_.microseconds(x.time) << ", \"args\": {\"bytes in use\": " << in_use[x.allocator] << "}}";
    }
  }

  const Recording& r_;
  TextWriter& out_;
  bool first_ = true;
  std::vector<std::string> names_, paths_, lines_, operands_;
  std::map<std::pair<int, int32_t>, std::vector<int64_t>> lanes_;  ///< by device and stream: the ends of lanes
};

[[noreturn]] void refuse(const std::string& path, int error) {
  raise_as<IoError>("write_chrome_trace", "cannot write '{}': {}; choose another path", path, std::strerror(error));
}

}  // namespace

std::string chrome_trace(const Recording& recording) {
  std::string text;
  TextWriter out(text);
  Writer(recording, out).write();
  out.flush();
  return text;
}

void write_chrome_trace(const Recording& recording, const std::string& path) {
  const std::string beside = fmt::format("{}.{}.partial", path, getpid());
  std::FILE* const file = std::fopen(beside.c_str(), "wb");
  if (file == nullptr) refuse(path, errno);
  TextWriter out(file);
  Writer(recording, out).write();
  const bool is_written = out.flush();
  int error = is_written ? 0 : errno;
  if (std::fclose(file) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0 && is_written) return;
  std::remove(beside.c_str());
  refuse(path, error != 0 ? error : ENOSPC);
}

}  // namespace lorry::profile
