#include "lorry/trace/functionalise.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace lorry::trace {
namespace {

/// A range of a storage's elements that tensors share, and its current value.
struct Buffer {
  int64_t first = 0, end = 0;  ///< in elements from the start of the storage
  TensorRef whole;             ///< the whole range, in the layout of its values
  int32_t value = -1;          ///< -1: none yet
  int input = -1;              ///< the graph's input, for outside memory
  int32_t at_first = -1;       ///< the initial value of outside memory
};

class Functionaliser {
 public:
  explicit Functionaliser(const Recording& recording) : recording_(recording) {}

  Graph graph() {
    if (!recording_.obstacles.empty())
      raise_as<CompileError>("trace", "the function does what a graph cannot repeat; {}",
                             fmt::join(recording_.obstacles, "; "));
    for (const RecordedGenerator& x : recording_.generators) graph_.generators.push_back({x.sequence, x.draws});
    find_outside();
    auto callback = recording_.callbacks.begin();
    const auto call_back = [&](size_t calls) {
      for (; callback != recording_.callbacks.end() && callback->position == calls; ++callback)
        graph_.callbacks.push_back({graph_.nodes.size(), callback->name, callback->call, callback->is_for_all_sizes});
    };
    for (size_t i = 0; i < recording_.calls.size(); ++i) {
      call_back(i);
      if (i == recording_.backward_from) graph_.backward_from = graph_.nodes.size();
      add(recording_.calls[i]);
    }
    call_back(recording_.calls.size());
    if (recording_.backward_from == recording_.calls.size()) graph_.backward_from = graph_.nodes.size();
    finish();
    graph_.views = recording_.views;
    return std::move(graph_);
  }

 private:
  static std::pair<int64_t, int64_t> span(const TensorRef& x) { return {x.offset, x.offset + x.layout.extent()}; }

  // ---- memory -------------------------------------------------------------------------------------------------------

  /// Makes buffers of outside memory: the parts of each storage that the function accessed, merged where they overlap.
  /// In the order of their first use, arguments first, so that the same calls give the same graph.
  void find_outside() {
    std::map<uint64_t, std::vector<TensorRef>> seen;
    std::vector<uint64_t> order;
    const auto see = [&](const TensorRef& x) {
      if (!x.defined() || x.empty() || !recording_.outside.contains(x.storage)) return;
      std::vector<TensorRef>& tensors = seen[x.storage];
      if (tensors.empty()) order.push_back(x.storage);
      tensors.push_back(x);
    };
    std::ranges::for_each(recording_.arguments, see);
    for (const RecordedCall& call : recording_.calls) {
      for (const RecordedInput& x : call.inputs) see(x.tensor);
      std::ranges::for_each(call.outputs, see);
    }
    std::ranges::for_each(recording_.results, see);
    for (const RecordedGrad& g : recording_.grads) see(g.gradient);
    for (const uint64_t storage : order) find_outside(storage, seen.at(storage));
  }

  void find_outside(uint64_t storage, std::vector<TensorRef>& tensors) {
    const Outside& from = recording_.outside.at(storage);
    for (const TensorRef& x : tensors) require_one_dtype(tensors.front().dtype, x.dtype);
    if (from.constant.defined()) {
      Buffer& buffer = add_buffer({storage, from.constant.layout(), 0, from.constant.dtype(), from.constant.device()});
      buffer.value = add_value(buffer.whole, -1);
      graph_.constants.push_back({buffer.value, from.constant});
      return;
    }
    std::ranges::stable_sort(tensors, [](const TensorRef& a, const TensorRef& b) { return span(a) < span(b); });
    for (size_t i = 0; i < tensors.size();) {
      int64_t end = span(tensors[i]).second;
      size_t j = i + 1;
      for (; j < tensors.size() && span(tensors[j]).first < end; ++j) end = std::max(end, span(tensors[j]).second);
      add_input(from, std::span(tensors).subspan(i, j - i), end);
      i = j;
    }
  }

  static void require_one_dtype(DType a, DType b) {
    if (a != b) raise_as<CompileError>("trace", "the function uses the same memory as {} and as {}", a, b);
  }

  /// The argument through which a run finds a buffer: the first one that lies in it. -1: the function captured the
  /// memory.
  int argument_in(std::span<const TensorRef> tensors, int64_t begin, int64_t end, const Outside& from) const {
    if (from.argument < 0) return -1;
    int first = -1;
    int64_t low = end, high = begin;
    for (size_t i = 0; i < recording_.arguments.size(); ++i) {
      const TensorRef& x = recording_.arguments[i];
      if (x.storage != tensors.front().storage || x.empty() || span(x).first < begin || span(x).second > end) continue;
      if (first < 0) first = static_cast<int>(i);
      low = std::min(low, span(x).first);
      high = std::max(high, span(x).second);
    }
    // In a run, the argument may be another tensor without memory around it.
    if (low > begin || high < end)
      raise_as<CompileError>("trace", "the function captured memory beside an argument's; pass all of it");
    return first;
  }

  void add_input(const Outside& from, std::span<const TensorRef> tensors, int64_t end) {
    const TensorRef& first = tensors.front();
    const int64_t begin = span(first).first;
    // Use the layout of a tensor that covers the whole buffer, else a 1-d layout.
    TensorRef whole = first;
    whole.layout = Layout::contiguous({end - begin});
    for (const TensorRef& x : tensors)
      if (span(x) == std::pair(begin, end) && x.layout.is_dense()) {
        whole = x;
        break;
      }
    Buffer& buffer = add_buffer(whole);
    const int argument = argument_in(tensors, begin, end, from);
    const int64_t from_offset = argument >= 0 ? recording_.arguments[static_cast<size_t>(argument)].offset
                                              : from.captured->tensor().storage_offset();
    buffer.value = buffer.at_first = add_value(whole, -1);
    buffer.input = static_cast<int>(graph_.inputs.size());
    graph_.inputs.push_back({buffer.value, argument, from.captured, from.tensors, from.leaf, from.is_gradient,
                             from.gradient_of, begin - from_offset});
  }

  Buffer& add_buffer(const TensorRef& whole) {
    const auto [first, end] = span(whole);
    return buffers_[whole.storage].emplace_back(Buffer{.first = first, .end = end, .whole = whole});
  }

  int32_t add_value(const TensorRef& x, int32_t node) {
    graph_.values.push_back({x.dtype, x.device, x.layout, node});
    return static_cast<int32_t>(graph_.values.size()) - 1;
  }

  /// The buffer that contains x; null if no call has made it.
  Buffer* find(const TensorRef& x) {
    const auto found = buffers_.find(x.storage);
    if (found == buffers_.end()) return nullptr;
    const auto [first, end] = span(x);
    for (Buffer& b : found->second)
      if (b.first <= first && end <= b.end) {
        require_one_dtype(b.whole.dtype, x.dtype);
        return &b;
      }
    return nullptr;
  }

  bool overlaps(const TensorRef& x) const {
    const auto found = buffers_.find(x.storage);
    const auto [first, end] = span(x);
    return found != buffers_.end() && std::ranges::any_of(found->second, [first = first, end = end](const Buffer& b) {
             return b.first < end && first < b.end;
           });
  }

  // ---- calls --------------------------------------------------------------------------------------------------------

  static Argument described(const TensorRef& x) {
    Argument a;
    if (!x.defined()) return a;
    a.kind = Argument::empty;
    a.window = {x.layout, 0};
    a.dtype = x.dtype;
    a.device = x.device;
    return a;
  }

  Argument read(const TensorRef& x) {
    Argument a = described(x);
    if (!x.defined() || x.empty()) return a;
    const Buffer* buffer = find(x);
    if (buffer == nullptr || buffer->value < 0)
      raise_as<CompileError>("trace", "memory is read that no recorded call has written");
    a.kind = Argument::value;
    a.value_index = buffer->value;
    a.window.offset = x.offset - buffer->first;
    return a;
  }

  Argument read(const RecordedInput& x) {
    if (!x.number) return read(x.tensor);
    Argument a;
    a.kind = Argument::number;
    a.scalar = *x.number;
    return a;
  }

  /// The target of a write to x. If the call does not read it and replaces the whole buffer, the old value is not
  /// needed.
  Argument target(const TensorRef& x, bool is_read) {
    Argument a = described(x);
    if (!x.defined() || x.empty()) return a;
    const Buffer& buffer = *find(x);
    a.window.offset = x.offset - buffer.first;
    const bool all = x.layout == buffer.whole.layout && a.window.offset == 0;
    a.kind = buffer.value < 0 || (all && !is_read) ? Argument::uninitialised : Argument::value;
    a.value_index = a.kind == Argument::value ? buffer.value : -1;
    return a;
  }

  /// The number of outputs that existed before the call: of an out= form all, in place those that are inputs too.
  static size_t written(const RecordedCall& call) {
    if (call.out) return call.outputs.size();
    size_t count = 0;
    while (call.in_place && count < std::min(call.outputs.size(), call.inputs.size()) &&
           call.outputs[count] == call.inputs[count].tensor)
      ++count;
    return count;
  }

  void add(const RecordedCall& call) {
    if (call.op == Op::empty) return;  // the first write to the memory makes a value
    Node node;
    node.op = call.op;
    node.form = call.in_place ? Node::in_place : call.out ? Node::out : Node::pure;
    node.run = call.run;
    node.attributes = call.attributes;
    node.generator = call.generator;
    node.scope = call.scope, node.frames = call.frames;
    const auto index = static_cast<int32_t>(graph_.nodes.size());
    const std::span outputs(call.outputs);
    const auto targets = outputs.first(written(call)), made = outputs.subspan(targets.size());
    const bool overwrites = row(call.op).bytes == Bytes::overwritten;
    for (const TensorRef& x : targets) {
      ensure(x);
      node.targets.push_back(target(x, call.in_place && !overwrites));
    }
    for (size_t i = 0; i < call.inputs.size(); ++i)
      node.arguments.push_back(call.in_place && overwrites && i < targets.size() ? node.targets[i]
                                                                                 : read(call.inputs[i]));
    write(targets, node, index);
    for (const TensorRef& x : made) node.results.push_back(make(call.op, x, index));
    if (std::ranges::any_of(node.results, [](int32_t r) { return r >= 0; })) graph_.nodes.push_back(std::move(node));
  }

  /// Makes a buffer for memory that is written before any call made it: the memory of an `empty` tensor.
  void ensure(const TensorRef& x) {
    if (!x.defined() || x.empty() || find(x) != nullptr) return;
    const auto made = empties().find(x.storage);
    add_buffer(made == empties().end() ? x : made->second);
  }

  /// The tensors made by `empty`, by storage.
  const std::map<uint64_t, TensorRef>& empties() {
    if (empties_.empty())
      for (const RecordedCall& call : recording_.calls)
        if (call.op == Op::empty && !call.outputs[0].empty())
          empties_.emplace(call.outputs[0].storage, call.outputs[0]);
    return empties_;
  }

  /// Makes the value of an output that has its own memory.
  int32_t make(Op op, const TensorRef& x, int32_t node) {
    if (!x.defined() || x.empty()) return -1;
    if (overlaps(x)) raise_as<CompileError>("trace", "{} returns memory that another tensor has", name(op));
    Buffer& buffer = add_buffer(x);
    return buffer.value = add_value(x, node);
  }

  void write(std::span<const TensorRef> targets, Node& node, int32_t index) {
    std::map<Buffer*, int32_t> made;
    for (const TensorRef& x : targets) {
      if (!x.defined() || x.empty()) {
        node.results.push_back(-1);
        continue;
      }
      Buffer* buffer = find(x);
      const auto [result, added] = made.try_emplace(buffer, -1);
      if (added) result->second = add_value(buffer->whole, index);
      node.results.push_back(result->second);
    }
    for (const auto& [buffer, value] : made) buffer->value = value;
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  void finish() {
    for (const TensorRef& x : recording_.arguments) {
      Argument a = described(x);
      const Buffer* buffer = x.empty() ? nullptr : find(x);
      if (buffer != nullptr) {
        a.kind = Argument::value;
        a.value_index = buffer->at_first;
        a.window.offset = x.offset - buffer->first;
      }
      graph_.arguments.push_back(std::move(a));
    }
    for (const TensorRef& x : recording_.results) {
      GraphOutput output{.tensor = read(x)};
      if (output.tensor.kind == Argument::value) output.input = find(x)->input;
      graph_.outputs.push_back(std::move(output));
    }
    for (const RecordedGrad& g : recording_.grads) {
      const auto leaf = buffers_.find(g.leaf);
      if (leaf == buffers_.end() || leaf->second[0].input < 0) continue;  // made by the function and already released
      graph_.grads.push_back({leaf->second[0].input, read(g.gradient), g.was_none});
    }
    for (const auto& [storage, buffers] : buffers_)
      for (const Buffer& b : buffers)
        if (b.input >= 0 && b.value != b.at_first) graph_.write_backs.push_back({b.input, b.value});
    std::ranges::sort(graph_.write_backs, {}, &WriteBack::input);
  }

  const Recording& recording_;
  Graph graph_;
  std::map<uint64_t, std::vector<Buffer>> buffers_;
  std::map<uint64_t, TensorRef> empties_;
};

}  // namespace

Graph functionalise(const Recording& recording) {
  Graph graph = Functionaliser(recording).graph();
  verify(graph);
  return graph;
}

}  // namespace lorry::trace
