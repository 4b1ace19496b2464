#include "lorry/profile/chrome_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <queue>

#include "lorry/base/error.h"
#include "lorry/profile/text_writer.h"

namespace lorry::profile {
namespace {

/// More than any number of a process, thread or stream.
constexpr int64_t kBeyondNumbers = 10'000'000;

/// A slice of a thread: a span, or a wait or a call of CUDA's runtime, which are timed by other clocks than spans are.
struct Slice {
  enum Kind { span, wait, call } kind;
  size_t index;
  int64_t begin, end;

  /// Follows the other: begins later, or inside it.
  bool operator>(const Slice& x) const { return begin != x.begin ? begin > x.begin : end < x.end; }
};

/// Puts slices of one track in order so that they nest, for viewers drop what overlaps. Spans nest and are kept as they
/// are. Waits and calls give way to them: clocks differ by fractions of a microsecond.
class Nesting {
 public:
  explicit Nesting(std::vector<Slice> others) : others_(std::greater<>(), std::move(others)) {}

  /// Spans come in the order of their beginnings, a span after the one around it.
  void add_span(const Slice& span) {
    add_others_before(span.begin);
    close(span.begin);
    while (!open_.empty() && at(open_.back()).kind != Slice::span && at(open_.back()).end < span.end) {
      at(open_.back()).end = span.begin;
      open_.pop_back();
    }
    append(span);
  }
  /// All slices, in the order of their beginnings, a slice after the one around it.
  std::vector<Slice> finish() {
    add_others_before(INT64_MAX);
    return std::move(slices_);
  }

 private:
  Slice& at(size_t i) { return slices_[i]; }
  void append(const Slice& slice) {
    open_.push_back(slices_.size());
    slices_.push_back(slice);
  }
  void close(int64_t time) {
    while (!open_.empty() && at(open_.back()).end <= time) open_.pop_back();
  }
  void add_others_before(int64_t time) {
    while (!others_.empty() && others_.top().begin < time) {
      Slice x = others_.top();
      others_.pop();
      close(x.begin);
      if (open_.empty() || at(open_.back()).end >= x.end) {
        append(x);
      } else if (at(open_.back()).kind == Slice::span) {  // it began when that span had ended
        x.begin = at(open_.back()).end;
        others_.push(x);
      } else {
        x.end = at(open_.back()).end;
        append(x);
      }
    }
  }

  std::priority_queue<Slice, std::vector<Slice>, std::greater<>> others_;  ///< that are not added yet, by beginning
  std::vector<Slice> slices_;
  std::vector<size_t> open_;  ///< those that have not ended, by index
};

/// Tracks side by side, for what may overlap.
class Lanes {
 public:
  /// The first lane that is free from `begin` on; it is taken until `end`.
  size_t take(int64_t begin, int64_t end) {
    size_t lane = 0;
    while (lane < ends_.size() && ends_[lane] > begin) ++lane;
    if (lane == ends_.size()) ends_.push_back(0);
    ends_[lane] = end;
    return lane;
  }
  size_t count() const { return ends_.size(); }

 private:
  std::vector<int64_t> ends_;
};

const char* category(SpanKind kind) { return kind == SpanKind::scope ? "user_annotation" : "cpu_op"; }

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
    call_places_.resize(r_.calls.size());
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
  /// GPUs are the processes 0, 1, ..., unless this process has such a number itself, as in a container.
  int64_t process_of(int device) const { return device + (r_.process <= INT8_MAX ? kBeyondNumbers : 0); }
  void write_labels() {
    label("process_name", r_.process, 0, "\"lorry\"");
    for (const ThreadRecord& thread : r_.threads)
      label("thread_name", r_.process, thread.id, json_string(fmt::format("{} {}", thread.name, thread.id)));
    std::map<int, bool> devices;
    for (const DeviceRecord& x : r_.device) devices[x.device] = true;
    for (const auto& [device, used] : devices)
      label("process_name", process_of(device), 0, fmt::format("\"cuda:{}\"", device)),
          label("process_sort_index", process_of(device), 0, fmt::format("{}", 5000000 + device));
  }

  TextWriter& slice(std::string_view category, std::string_view name, int64_t process, int64_t thread, int64_t begin,
                    int64_t end) {
    next() << "{\"ph\": \"X\", \"cat\": \"" << category << "\", \"name\": " << name << ", \"pid\": " << process
           << ", \"tid\": " << thread << ", \"ts\": ";
    const int64_t shown = std::max<int64_t>(end, 0) - std::max<int64_t>(begin, 0);
    time(begin) << ", \"dur\": ";
    return out_.microseconds(shown);
  }
  /// Viewers drop what is before 0: what went on already when the session began, begins with it.
  TextWriter& time(int64_t ns) { return out_.microseconds(std::max<int64_t>(ns, 0)); }

  void write_span(const Slice& place, int64_t thread) {
    const SpanRecord& x = r_.spans[place.index];
    slice(category(x.kind), names_[static_cast<size_t>(x.name)], r_.process, thread, place.begin, place.end)
        << ", \"args\": {\"External id\": " << place.index + 1;
    if (x.path != 0) out_ << ", \"Module\": " << paths_[static_cast<size_t>(x.path)];
    if (x.line != 0) out_ << ", \"Line\": " << lines_[static_cast<size_t>(x.line)];
    if (x.bytes != 0) out_ << ", \"Bytes\": " << x.bytes;
    if (x.flops != 0) out_ << ", \"Flops\": " << x.flops;
    if (x.kind == SpanKind::backward) out_ << ", \"Backward\": true";
    if (x.failed) out_ << ", \"Failed\": true";
    if (x.operands != kNone) out_ << operands_[static_cast<size_t>(x.operands)];
    out_ << "}}";
  }
  void write_call(const Slice& place, int64_t thread) {
    const RuntimeCall& x = r_.calls[place.index];
    call_places_[place.index] = {thread, place.begin};
    slice("cuda_runtime", names_[static_cast<size_t>(x.name)], r_.process, thread, place.begin, place.end)
        << ", \"args\": {\"correlation\": " << x.correlation;
    if (x.span != kNone) out_ << ", \"External id\": " << x.span + 1;
    out_ << "}}";
  }
  void write_wait(const Slice& place, int64_t thread) {
    const WaitRecord& x = r_.waits[place.index];
    slice("cuda_sync", names_[static_cast<size_t>(x.text)], r_.process, thread, place.begin, place.end)
        << ", \"args\": {\"Operator\": " << names_[static_cast<size_t>(x.name)];
    if (x.span != kNone) out_ << ", \"External id\": " << x.span + 1;
    if (x.line != 0) out_ << ", \"Line\": " << lines_[static_cast<size_t>(x.line)];
    out_ << "}}";
  }

  /// A wait or call, moved into the span that made it.
  template <class Record>
  Slice inside_span(Slice::Kind kind, size_t index, const Record& x) const {
    Slice slice{kind, index, x.begin, std::max(x.begin, x.end)};
    if (x.span == kNone || r_.spans[static_cast<size_t>(x.span)].thread != x.thread) return slice;
    const SpanRecord& span = r_.spans[static_cast<size_t>(x.span)];
    const int64_t duration = std::min(slice.end - slice.begin, span.duration());
    slice.begin = std::clamp(slice.begin, span.begin, span.end - duration);
    slice.end = slice.begin + duration;
    return slice;
  }
  void write_thread(int32_t thread) {
    std::vector<Slice> others;
    for (size_t i = 0; i < r_.waits.size(); ++i)
      if (r_.waits[i].thread == thread) others.push_back(inside_span(Slice::wait, i, r_.waits[i]));
    for (size_t i = 0; i < r_.calls.size(); ++i)
      if (r_.calls[i].thread == thread) others.push_back(inside_span(Slice::call, i, r_.calls[i]));
    Nesting nesting(std::move(others));
    for (size_t i = 0; i < r_.spans.size(); ++i)
      if (r_.spans[i].thread == thread) nesting.add_span({Slice::span, i, r_.spans[i].begin, r_.spans[i].end});
    const int64_t id = r_.threads[static_cast<size_t>(thread)].id;
    for (const Slice& x : nesting.finish()) {
      if (x.kind == Slice::span) write_span(x, id);
      if (x.kind == Slice::wait) write_wait(x, id);
      if (x.kind == Slice::call) write_call(x, id);
    }
  }
  /// Calls of threads that are not recorded: which of them made a call is not known.
  void write_unrecorded_calls() {
    std::vector<size_t> calls;
    for (size_t i = 0; i < r_.calls.size(); ++i)
      if (r_.calls[i].thread == kNone) calls.push_back(i);
    std::ranges::stable_sort(calls, {}, [&](size_t i) { return r_.calls[i].begin; });
    Lanes lanes;
    for (const size_t i : calls) {
      const size_t known = lanes.count(), lane = lanes.take(r_.calls[i].begin, r_.calls[i].end);
      const int64_t track = kBeyondNumbers + static_cast<int64_t>(lane);
      if (lane == known) label("thread_name", r_.process, track, "\"other threads\"");
      write_call({Slice::call, i, r_.calls[i].begin, r_.calls[i].end}, track);
    }
  }

  /// The track of a kernel, copy or fill: that of its stream, or one beside it while the stream does something else.
  int64_t track_of(const DeviceRecord& x) {
    Lanes& lanes = lanes_[{x.device, x.stream}];
    const size_t known = lanes.count(), lane = lanes.take(x.begin, x.end);
    const int64_t track = x.stream + kBeyondNumbers * static_cast<int64_t>(lane);
    if (lane == known)
      label("thread_name", process_of(x.device), track,
            json_string(lane == 0 ? fmt::format("stream {}", x.stream)
                                  : fmt::format("stream {}, at the same time", x.stream)));
    return track;
  }
  void write_device() {
    for (const DeviceRecord& x : r_.device) {
      const int64_t track = track_of(x), process = process_of(x.device);
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
      // Every arrow has a number of its own: a graph's launch has many, and a viewer would draw the first.
      const auto [thread, begin] = call_places_[static_cast<size_t>(x.call)];
      flow("s", ++flows_, r_.process, thread, begin);
      flow("f", flows_, process, track, x.begin);
    }
  }
  /// The operator, module and line that a kernel belongs to.
  void write_place(const DeviceRecord& x) {
    const PartRecord origin = r_.origin_of(x);
    if (origin.name != 0) out_ << ", \"Operator\": " << names_[static_cast<size_t>(origin.name)];
    if (origin.path != 0) out_ << ", \"Module\": " << paths_[static_cast<size_t>(origin.path)];
    if (origin.line != 0) out_ << ", \"Line\": " << lines_[static_cast<size_t>(origin.line)];
  }
  void flow(std::string_view phase, int64_t id, int64_t process, int64_t thread, int64_t when) {
    next() << "{\"ph\": \"" << phase << "\", \"id\": " << id
           << ", \"cat\": \"ac2g\", \"name\": \"ac2g\", \"pid\": " << process << ", \"tid\": " << thread
           << ", \"ts\": ";
    time(when) << (phase == "f" ? ", \"bp\": \"e\"}" : "}");
  }

  /// Memory in use, as a counter of each allocator.
  void write_memory() {
    std::map<int32_t, int64_t> in_use;
    for (const auto& [allocator, bytes] : r_.memory_before) in_use[allocator] = bytes;
    for (const MemoryRecord& x : r_.memory) {
      in_use[x.allocator] += x.bytes;
      const std::string& name = names_[static_cast<size_t>(x.allocator)];
      next() << "{\"ph\": \"C\", \"name\": " << name << ", \"pid\": " << r_.process << ", \"ts\": ";
      time(x.time) << ", \"args\": {\"bytes in use\": " << in_use[x.allocator] << "}}";
    }
  }

  const Recording& r_;
  TextWriter& out_;
  bool first_ = true;
  std::vector<std::string> names_, paths_, lines_, operands_;
  std::vector<std::pair<int64_t, int64_t>> call_places_;  ///< of calls as written: thread and beginning
  std::map<std::pair<int, int32_t>, Lanes> lanes_;        ///< by device and stream
  int64_t flows_ = 0;
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
