#include "lorry/trace/recorder.h"

#include <algorithm>
#include <atomic>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/node.h"
#include "lorry/base/call_stack.h"
#include "lorry/base/scope.h"
#include "lorry/device/capture.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/ops.h"

namespace lorry::trace {
namespace {

constinit thread_local Recorder* t_recorder = nullptr;

/// A copy of all elements of x's storage.
Tensor snapshot(const Tensor& x) {
  const ModeScope quiet(0, kToldModes);
  const int64_t count = x.storage().bytes() / size_of(x.dtype());
  return door::make_view(x.detach(), Layout::contiguous({count}), 0).clone();
}

/// Whether x is a 0-d tensor made from a number; it promotes like the number.
bool is_number(const Tensor& x) { return x.defined() && x.node()->wrapped_number; }
Scalar number_of(const Tensor& x) {
  const void* data = x.node()->data();
  if (x.dtype() == kF64) return *static_cast<const double*>(data);
  if (x.dtype() == kBool) return *static_cast<const bool*>(data);
  return *static_cast<const int64_t*>(data);
}

/// Pauses recording for a scope.
struct Pause {
  Recorder* recorder = std::exchange(t_recorder, nullptr);
  uint32_t number = std::exchange(t_recording, 0);
  ModeScope quiet{0, kTraceMode | kSizesMode};
  Pause() = default;
  ~Pause() {
    t_recorder = recorder;
    t_recording = number;
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
};

/// Whether x, or the tensor that it is a view of, has a history.
bool has_history(const Tensor& x) {
  if (!x.requires_grad()) return false;
  return x.is_view() ? has_history(Tensor(x.node()->base)) : !x.is_leaf();
}

/// Returns the number of the next recording, from 1.
uint32_t next_number() {
  static std::atomic<uint32_t> last{0};
  uint32_t number = 0;
  while (number == 0) number = ++last;
  return number;
}

bool is_leaf_with_gradient(const Tensor& x) { return x.node()->requires_grad && x.is_leaf(); }

}  // namespace

TensorRef ref_of(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.storage().id(), x.layout(), x.storage_offset(), x.dtype(), x.device()};
}

RecordedInput input_of(const door::Input& x) {
  RecordedInput input;
  if (x.scalar() != nullptr)
    input.number = *x.scalar();
  else if (x.tensor() != nullptr && is_number(*x.tensor()))
    input.number = number_of(*x.tensor());
  else if (x.tensor() != nullptr)
    input.tensor = ref_of(*x.tensor());
  return input;
}

bool Recorder::active() { return t_recorder != nullptr; }

void Recorder::refuse(std::string_view what) {
  if (t_recorder != nullptr) t_recorder->obstacle(std::string(what));
}

void host_callback(std::string name, std::function<void()> call, bool is_for_all_sizes) {
  if (device::is_captured())
    device::refuse_capture(name.c_str(), "the host does something that no replay would do", "do it between replays");
  if (t_recorder == nullptr) return call();
  {
    const Pause pause;
    call();
  }
  Recording& recording = t_recorder->recording_;
  recording.callbacks.push_back({recording.calls.size(), std::move(name),
                                 std::make_shared<const std::function<void()>>(std::move(call)), is_for_all_sizes});
}

Recorder::Recorder(std::span<const Tensor> arguments) : number_(next_number()) {
  if (t_recorder != nullptr) raise_as<ValueError>("trace", "this thread is being recorded already");
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined()) raise_as<ValueError>("trace", "argument {} is undefined", i);
    add_argument(arguments[i]);
  }
  t_recorder = this;
  t_recording = number_;
  tracing_.emplace(static_cast<Tracer&>(*this));  // a private base
  hears_sizes_.emplace(uint32_t{kSizesMode}, 0u);
}

void Recorder::add_argument(const Tensor& x) {
  Outside& from = recording_.outside[x.storage().id()];
  if (from.argument < 0) from.argument = static_cast<int>(arguments_.size());
  recording_.arguments.push_back(ref_of(x));
  arguments_.push_back(x);
  argument_nodes_.insert(x.node());
  if (is_leaf_with_gradient(x)) note_leaf(x);
}

std::vector<std::shared_ptr<const Captured>> Recorder::leaves() const {
  std::vector<std::shared_ptr<const Captured>> leaves;
  for (const auto& [storage, from] : recording_.outside)
    if (from.leaf != nullptr) leaves.push_back(from.leaf);
  return leaves;
}

void Recorder::begin_backward(std::span<const Tensor> gradients) {
  recording_.backward_from = recording_.calls.size();
  for (const Tensor& x : gradients) add_argument(x);
  if (captured_history_) obstacle("a captured tensor has a history; pass it as an argument");
}

Recorder::~Recorder() {
  if (t_recorder != this) return;
  t_recorder = nullptr;
  t_recording = 0;
}

Recording Recorder::finish(std::span<const Tensor> results) {
  hears_sizes_.reset();
  recording_.went_on_after_error = t_recorded_errors != errors_;
  tracing_.reset();
  t_recorder = nullptr;
  t_recording = 0;
  for (const Tensor& x : results) {
    if (x.defined()) note(x, true, false);
    if (x.requires_grad() && recording_.backward_from == SIZE_MAX) obstacle("a result requires a gradient");
    if (x.defined() && x.numel() == 0 && is_leaf_with_gradient(x)) obstacle("a result without elements is a leaf");
    recording_.results.push_back(ref_of(x));
  }
  for (const Tensor& x : arguments_)
    if (x.requires_grad() && !x.is_leaf() && is_written(x)) obstacle("an argument that requires a gradient is written");
  if (std::ranges::any_of(written_, has_history)) obstacle("a captured tensor gets a history");
  written_.clear();
  find_shared_memory();
  find_leaves();
  find_gradients();
  find_survivors(recording_.backward_from == SIZE_MAX ? std::vector<uint64_t>()
                                                      : autograd::storages_on_tape({results.begin(), results.end()}));
  for (const uint64_t leaf : grad_order_) {
    const auto seen = leaves_.find(leaf);
    const bool was_none = seen != leaves_.end() && !seen->second.gradient.defined();
    recording_.grads.push_back({leaf, grads_.at(leaf), was_none});
  }
  return std::move(recording_);
}

bool Recorder::is_written(const Tensor& x) const {
  return std::ranges::any_of(recording_.calls, [id = x.storage().id()](const RecordedCall& call) {
    return (call.in_place || call.out) && std::ranges::count(call.outputs, id, &TensorRef::storage) > 0;
  });
}

/// Finds storages that share foreign memory: a graph would treat them as independent.
void Recorder::find_shared_memory() {
  std::vector<std::pair<uintptr_t, uintptr_t>> spans;
  for (const auto& [id, from] : recording_.outside) {
    if (from.constant.defined()) continue;
    const Storage& s = from.captured != nullptr ? from.captured->tensor().storage()
                                                : arguments_[static_cast<size_t>(from.argument)].storage();
    const auto first = reinterpret_cast<uintptr_t>(s.data());
    if (s.bytes() > 0) spans.emplace_back(first, first + static_cast<uintptr_t>(s.bytes()));
  }
  std::ranges::sort(spans);
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].first < spans[i - 1].second) return obstacle("two storages share memory");
}

/// Checks that the tensor of each gradient can be found again: an argument that is alone in its storage, or a captured
/// leaf.
void Recorder::find_leaves() {
  for (const auto& [leaf, gradient] : grads_) {
    if (inside_.contains(leaf)) continue;
    const auto from = recording_.outside.find(leaf);
    const auto arguments = std::ranges::count(recording_.arguments, leaf, &TensorRef::storage);
    const void* const node = grad_leaves_.at(leaf);
    if (arguments > 1)
      obstacle("a leaf that shares its storage with other arguments gets a gradient");
    else if (from == recording_.outside.end() ||
             (arguments == 1 ? arguments_[static_cast<size_t>(from->second.argument)].node() != node
                             : from->second.leaf == nullptr || from->second.leaf->tensor().node() != node))
      obstacle("a leaf that no recorded call reads gets a gradient");
  }
}

/// Finds captured tensors that were gradients: in a run the gradient may be another tensor.
void Recorder::find_gradients() {
  for (const auto& [storage, seen] : leaves_) {
    const auto from = recording_.outside.find(seen.gradient.storage);
    if (!seen.gradient.defined() || from == recording_.outside.end() || from->second.captured == nullptr) continue;
    if (from->second.is_gradient) obstacle("two leaves have one gradient");
    from->second.is_gradient = true;
    from->second.leaf = recording_.outside.at(storage).leaf;
    from->second.gradient_of = recording_.outside.at(storage).argument;
  }
}

/// Memory made here that outlives the call (such as optimizer states) cannot be recorded: a replay would not update it.
/// Memory saved by the tape is exempt.
void Recorder::find_survivors(const std::vector<uint64_t>& on_tape) {
  const auto given = [&](uint64_t id) {
    return std::ranges::count(recording_.results, id, &TensorRef::storage) > 0 ||
           std::ranges::any_of(grads_, [&](const auto& g) { return g.second.storage == id; });
  };
  for (const auto& [id, made] : inside_)
    if (!made.dead && !given(id) && !std::ranges::binary_search(on_tape, id)) {
      recording_.may_initialise = true;
      return obstacle("memory made while recording is still held; run the function once before");
    }
}

void Recorder::obstacle(std::string what) {
  const std::string scope = Scope::path();
  std::string text = running_or("the function");
  if (!scope.empty()) text += ", in " + scope;
  text += ": " + what;
  if (tracing_.has_value() && recording_.backward_from == SIZE_MAX) {  // the function is running
    const void* frames[64];
    const int count = call_stack(frames);
    if (const std::string line = describe(calling_line(std::span(frames).first(static_cast<size_t>(count))));
        !line.empty())
      text += fmt::format(" ({})", line);
  }
  recording_.obstacles.push_back(std::move(text));
}

void Recorder::note_leaf(const Tensor& x) {
  const uint64_t id = x.storage().id();
  if (!grads_.contains(id)) leaves_.try_emplace(id, SeenLeaf{x, ref_of(x.grad())});
}

/// Notes a tensor that is about to be read or written; the first time, determines where its memory comes from.
void Recorder::note(const Tensor& x, bool read, bool with_gradients) {
  const uint64_t id = x.storage().id();
  if (is_leaf_with_gradient(x) && !inside_.contains(id)) note_leaf(x);
  captured_history_ |=
      !inside_.contains(id) && std::ranges::count(recording_.arguments, id, &TensorRef::storage) == 0 && has_history(x);
  if (const auto known = recording_.outside.find(id); known != recording_.outside.end()) {
    if (!known->second.constant.defined()) capture(known->second, x, with_gradients);
    return;
  }
  const auto made = inside_.find(id);
  if (made == inside_.end()) {
    Outside& from = recording_.outside[id];
    from.captured = std::make_shared<door::Observed>(x);
    capture(from, x, with_gradients);
  } else if (read && !made->second.written && x.numel() > 0) {
    recording_.outside[id].constant = snapshot(x);
  }
}

/// Notes a captured tensor: one in outside memory that is not an argument and was not made here.
void Recorder::capture(Outside& from, const Tensor& x, bool with_gradients) {
  if (x.node()->recording == number_ || argument_nodes_.contains(x.node())) return;
  auto known = std::ranges::find_if(from.tensors, [&](const auto& t) { return t->is(x); });
  if (known == from.tensors.end()) known = from.tensors.insert(known, std::make_shared<Captured>(x));
  if (is_leaf_with_gradient(x)) {
    if (from.argument >= 0 || (from.leaf != nullptr && !from.leaf->is(x)))
      obstacle(fmt::format("a captured leaf shares its storage with {}",
                           from.argument >= 0 ? "an argument; pass it too" : "another; give each its own"));
    from.leaf = *known;
  } else if (with_gradients && is_floating(x.dtype()) && !x.requires_grad()) {
    (*known)->is_frozen = true;
  }
}

/// The number of leading inputs that a call writes without reading them.
size_t Recorder::only_written(const door::CallView& call) {
  if (!call.in_place || row(call.op).bytes != Bytes::overwritten) return 0;
  if (row(call.op).kind != OpKind::list) return 1;
  return static_cast<size_t>(std::get<std::vector<int64_t>>(call.attributes[0])[0]);  // the first attribute is counts
}

void Recorder::before(const door::CallView& call) {
  const bool with_gradients = (call.listeners & kGradMode) != 0;
  if (row(call.op).kind == OpKind::view) return note(*call.inputs[0].tensor(), false, with_gradients);
  const size_t unread = only_written(call);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor* x = call.inputs[i].tensor();
    if (x != nullptr && x->defined() && !is_number(*x)) note(*x, i >= unread, with_gradients);
  }
  if (call.out)
    for (const Tensor& x : call.outputs)
      if (x.defined()) note(x, false, with_gradients);
}

void Recorder::after(const door::CallView& call) {
  if (call.failed) return obstacle(fmt::format("{} threw", name(call.op)));
  if (row(call.op).kind == OpKind::view) {
    note_view(call);
    if (call.in_place && !inside_.contains(call.inputs[0].tensor()->storage().id()))
      obstacle("a tensor from outside gets other sizes");
    return;
  }
  RecordedCall made;
  made.op = call.op;
  made.in_place = call.in_place;
  made.out = call.out;
  made.run = call.run;
  made.scope = Scope::path(), made.frames = call_stack();
  for (const door::Input& x : call.inputs) made.inputs.push_back(input_of(x));
  for (const Tensor& x : call.outputs) {
    made.outputs.push_back(ref_of(x));
    if (!x.defined()) continue;
    const uint64_t id = x.storage().id();
    if (call.out && !recording_.outside.contains(id) && !inside_.contains(id))
      obstacle("a tensor that was given gets other sizes");
    const auto from = recording_.outside.find(id);
    if (from == recording_.outside.end())
      inside_[id].written |= call.op != Op::empty;
    else if (from->second.captured != nullptr && (call.listeners & kGradMode) != 0)
      written_.push_back(x);
  }
  made.attributes.assign(call.attributes.begin(), call.attributes.end());
  number_draw(made);
  recording_.calls.push_back(std::move(made));
}

std::string SizeRead::where() const {
  return describe(calling_line(std::span(frames).first(static_cast<size_t>(frame_count))));
}

void Recorder::note_size_read(Dims sizes) {
  if (recording_.size_reads.size() == kMostSizeReads) return;
  SizeRead& read = recording_.size_reads.emplace_back();
  read.sizes = sizes;
  read.frame_count = call_stack(read.frames);
}

/// Notes a view. If it cuts a tensor, what follows may depend on the size there: slice() clamps, and the last index
/// follows from the size.
void Recorder::note_view(const door::CallView& view) {
  const Tensor &x = *view.inputs[0].tensor(), &y = view.outputs[0];
  recording_.views.push_back({view.op,
                              x.layout(),
                              y.layout(),
                              y.storage_offset() - x.storage_offset(),
                              {view.attributes.begin(), view.attributes.end()}});
  const auto size_of = [&](size_t attribute) {
    return x.layout().sizes[wrap_dim(std::get<int64_t>(view.attributes[attribute]), x.layout().rank)];
  };
  if (view.op == Op::select || view.op == Op::slice || view.op == Op::unfold) note_size_read({size_of(0)});
  if (view.op == Op::diagonal) note_size_read({size_of(1), size_of(2)});
  if (view.op == Op::as_strided) {
    note_size_read(std::get<Dims>(view.attributes[0]));
    note_size_read(std::get<Dims>(view.attributes[1]));
    note_size_read({std::get<int64_t>(view.attributes[2])});
    recording_.views.back().attributes.clear();  // offsets from the start of the storage
  }
}

void Recorder::draw(const Generator& generator, const formula::RandomKey& key) {
  RecordedDraw made{-1, 0};
  if (generator.sequence()->id() < first_inside_) {
    const auto found = std::ranges::find(recording_.generators, generator.sequence(), &RecordedGenerator::sequence);
    made.generator = static_cast<int32_t>(found - recording_.generators.begin());
    if (found == recording_.generators.end()) recording_.generators.push_back({generator.sequence(), 0});
    made.number = recording_.generators[static_cast<size_t>(made.generator)].draws++;
  }
  const auto [known, is_new] = draws_.try_emplace(key, made);
  if (!is_new && known->second.generator != made.generator) obstacle("two generators draw the same numbers");
}

/// Finds the draw that a call uses (or uses again, in a backward call) by its key.
void Recorder::number_draw(RecordedCall& call) const {
  for (door::Attribute& a : call.attributes) {
    auto* const key = std::get_if<formula::RandomKey>(&a);
    const auto made = key != nullptr ? draws_.find(*key) : draws_.end();
    if (made == draws_.end() || made->second.generator < 0) continue;
    call.generator = made->second.generator;
    *key = {0, made->second.number};
  }
}

void Recorder::fact(const FactView& fact) {
  switch (fact.fact) {
    case Fact::born:
      inside_.try_emplace(fact.storage);
      break;
    case Fact::host_read:
      obstacle(fmt::format("the host reads {}", *fact.tensor));
      break;
    case Fact::draw:
      draw(*fact.generator, *fact.key);
      break;
    case Fact::generator_read:
    case Fact::generator_set:
      if (fact.generator->sequence()->id() < first_inside_)
        obstacle(fact.fact == Fact::generator_set ? "a generator is seeded; seed it between calls"
                                                  : "the host reads a generator's state");
      break;
    case Fact::data_set:
      obstacle("a tensor gets another tensor's memory");
      break;
    case Fact::grad_set: {
      const auto [grad, added] = grads_.insert_or_assign(fact.storage, ref_of(*fact.tensor));
      if (!added) std::erase(grad_order_, fact.storage);
      if (const auto [leaf, first] = grad_leaves_.emplace(fact.storage, fact.leaf); !first && leaf->second != fact.leaf)
        obstacle("two leaves of one storage get gradients");
      grad_order_.push_back(fact.storage);
      break;
    }
    case Fact::died:
      if (const auto made = inside_.find(fact.storage); made != inside_.end()) made->second.dead = true;
      break;
    case Fact::address:
      if (t_operator != nullptr) break;  // an operator takes it for its own call
      // elements that the host writes into new memory are constants
      if (const auto made = inside_.find(fact.storage); made == inside_.end() || made->second.written)
        obstacle(fmt::format("the host takes the address of {}", *fact.tensor));
      break;
    case Fact::sizes: {
      const Dims sizes = fact.tensor->sizes();
      note_size_read(fact.dim < 0 ? sizes : Dims{sizes[fact.dim]});
      break;
    }
    case Fact::alias:
      break;
  }
}

}  // namespace lorry::trace
