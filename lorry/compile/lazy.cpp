#include "lorry/compile/lazy.h"

#include <algorithm>

#include "lorry/base/call_stack.h"
#include "lorry/base/scope.h"
#include "lorry/compile/simplify.h"
#include "lorry/kernels/backend.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/run.h"
#include "lorry/ops/ops.h"
#include "lorry/trace/functionalise.h"

namespace lorry::compiler {
namespace {

using namespace trace;

/// More sequences than this that begin in the same way differ in something that changes from call to call, such as a
/// number; then the call in which they differ is not deferred.
constexpr size_t kMaxNext = 16;
/// More calls than this are not deferred at a time.
constexpr size_t kMaxDeferred = 256;

bool is_same(const RecordedInput& a, const RecordedInput& b) {
  if (a.number || b.number) return a.number && b.number && trace::is_same(*a.number, *b.number);
  return a.tensor == b.tensor;
}

/// Calls `visit` with every tensor of a call, as number of its storage and description.
template <class Visit>
void each_tensor(const RecordedCall& call, const Visit& visit) {
  for (const RecordedInput& x : call.inputs)
    if (x.tensor.defined()) visit(x.tensor);
  for (const TensorRef& x : call.outputs)
    if (x.defined()) visit(x);
}

/// A description that covers everything that calls use of a storage: the tensor itself, if they use only one.
std::optional<TensorRef> covering(std::span<const RecordedCall* const> calls, uint64_t storage) {
  std::optional<TensorRef> all;
  for (const RecordedCall* call : calls)
    each_tensor(*call, [&](const TensorRef& x) {
      if (x.storage != storage || (all && *all == x)) return;
      if (!all) {
        all = x;
        return;
      }
      const int64_t begin = std::min(all->offset, x.offset);
      const int64_t end = std::max(all->offset + all->layout.extent(), x.offset + x.layout.extent());
      all->layout = Layout::contiguous({end - begin});
      all->offset = begin;
    });
  return all;
}

/// The recording of calls over storages of which some were made by the calls. `results`: those that are results.
Recording recording_of(std::span<const RecordedCall* const> calls, const std::vector<bool>& made,
                       const std::vector<bool>& results) {
  Recording recording;
  for (const RecordedCall* call : calls) recording.calls.push_back(*call);
  for (uint64_t storage = 1; storage <= made.size(); ++storage) {
    if (!made[storage - 1]) {
      const std::optional<TensorRef> used = covering(calls, storage);
      if (!used) continue;
      recording.outside[storage].argument = static_cast<int>(recording.arguments.size());
      recording.arguments.push_back(*used);
    } else if (results[storage - 1]) {
      for (const RecordedCall* call : calls) {
        const auto output = std::ranges::find(call->outputs, storage, &TensorRef::storage);
        if (output == call->outputs.end()) continue;
        recording.results.push_back(*output);
        break;
      }
    }
  }
  return recording;
}

/// Whether a call has a kernel that could be fused with others.
bool fusible(const RecordedCall& call, const std::vector<bool>& made) {
  try {
    const RecordedCall* const calls[] = {&call};
    const Graph graph = simplify(functionalise(recording_of(calls, made, made)));
    return !graph.nodes.empty() &&
           std::ranges::all_of(graph.nodes, [&](const Node& n) { return is_fusible(graph, n); });
  } catch (const CompileError&) {
    return false;
  }
}

template <class Visit>
void each_program(const DeferredCall& from, const Visit& visit) {
  for (const Segment& s : from.segments)
    if (s.program != nullptr) visit(*s.program);
  for (const auto& next : from.next) each_program(*next, visit);
}

std::array<void*, kMaxDevices> current_streams() {
  std::array<void*, kMaxDevices> streams;
  std::ranges::copy(detail::t_streams, streams.begin());
  return streams;
}

}  // namespace

// ---- the function ---------------------------------------------------------------------------------------------------

std::string LazyFunction::explain() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  int count = 0;
  each_program(first_, [&](const Program& p) { text += fmt::format("segment {}\n{}", count++, p.explain()); });
  return text;
}

std::string LazyFunction::sources() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  each_program(first_, [&](const Program& p) { text += p.sources(); });
  return text;
}

void LazyFunction::wait() const {
  const std::lock_guard lock(mutex_);
  each_program(first_, [](const Program& p) { p.wait(); });
}

// ---- a run ----------------------------------------------------------------------------------------------------------

LazyRun::LazyRun(LazyFunction& function)
    : function_(function), lock_(function.mutex_, std::try_to_lock), streams_(current_streams()) {
  if (!active()) return;
  if (function_.calls_ > LazyFunction::kMaxCalls) {
    function_.first_ = DeferredCall();
    function_.calls_ = 0;
  }
  if (function_.runs_ < LazyFunction::kTrialRuns) ++function_.runs_;
  tracing_.emplace(static_cast<trace::Tracer&>(*this));  // a private base
}

LazyRun::~LazyRun() {
  if (!tracing_) return;
  try {
    finish();
  } catch (const std::exception&) {  // the function has thrown another error
  }
}

void LazyRun::finish() {
  tracing_.reset();
  if (active()) end_segment();
}

bool LazyRun::may_defer(const Tensor& x) const {
  const Device device = x.device();
  return x.numel() > 0 && !x.storage().foreign() && kernels::backend(device).fused != nullptr &&
         (!stream_ || device == stream_->device) &&
         (!device.is_cuda() ||
          current_stream(device).handle == streams_[static_cast<size_t>(static_cast<unsigned char>(device.index))]);
}

/// Whether a call could be deferred, as far as can be told without knowing what it computes.
bool LazyRun::may_defer(const door::CallView& call) const {
  if (call.out || call.run != nullptr || call.inputs.empty() || path_.size() >= kMaxDeferred) return false;
  for (const door::Attribute& a : call.attributes)
    if (std::holds_alternative<formula::RandomKey>(a)) return false;
  bool some = false;
  for (const door::Input& x : call.inputs) {
    if (x.tensor() == nullptr || !x.tensor()->defined() || x.tensor()->node()->wrapped_number) continue;
    if (!may_defer(*x.tensor())) return false;
    some = true;
  }
  return some;
}

std::optional<int> LazyRun::number_of(uint64_t storage) const {
  for (size_t i = memory_.size(); i-- > 0;)
    if (memory_[i].id == storage) return static_cast<int>(i);
  return std::nullopt;
}

/// Whether a call must come after calls in `path_`: it reads or writes what they make or write, or writes what they
/// read, or memory of which nothing is known.
bool LazyRun::depends(const door::CallView& call) const {
  const auto is_used = [&](const Tensor& x, bool is_written) {
    if (!x.defined()) return false;
    if (x.storage().foreign()) return true;
    const std::optional<int> i = number_of(x.storage().id());
    return i && (is_written || memory_[static_cast<size_t>(*i)].is_made || memory_[static_cast<size_t>(*i)].is_written);
  };
  for (const door::Input& x : call.inputs)
    if (x.tensor() != nullptr && is_used(*x.tensor(), call.in_place)) return true;
  return std::ranges::any_of(call.outputs, [&](const Tensor& x) { return is_used(x, call.in_place || call.out); });
}

/// Describes the inputs of a call, with numbers for storages. Returns false if the same memory is used with two dtypes.
bool LazyRun::describe(const door::CallView& call) {
  inputs_.clear();
  unknown_.clear();
  for (const door::Input& x : call.inputs) {
    RecordedInput& input = inputs_.emplace_back(input_of(x));
    if (!input.tensor.defined()) continue;
    const uint64_t storage = std::exchange(input.tensor.storage, 0);
    DType dtype = input.tensor.dtype;
    if (const std::optional<int> i = number_of(storage)) {
      input.tensor.storage = static_cast<uint64_t>(*i) + 1;
      dtype = memory_[static_cast<size_t>(*i)].tensor.tensor().dtype();
    } else {
      auto known = std::ranges::find(unknown_, storage, [](const Tensor* t) { return t->storage().id(); });
      if (known == unknown_.end()) known = unknown_.insert(known, x.tensor());
      input.tensor.storage = memory_.size() + static_cast<uint64_t>(known - unknown_.begin()) + 1;
      dtype = (*known)->dtype();
    }
    if (dtype != input.tensor.dtype) return false;
  }
  return true;
}

/// The call that was described, among those that have followed the calls in `path_` before; null if it is new.
DeferredCall* LazyRun::known(const door::CallView& call) const {
  const DeferredCall& last = path_.empty() ? function_.first_ : *path_.back();
  for (const auto& next : last.next) {
    const RecordedCall& c = next->call;
    if (c.op == call.op && c.in_place == call.in_place &&
        std::ranges::equal(c.inputs, inputs_, [](const auto& a, const auto& b) { return is_same(a, b); }) &&
        std::ranges::equal(c.attributes, call.attributes,
                           [](const auto& a, const auto& b) { return trace::is_same(a, b); }))
      return next.get();
  }
  return nullptr;
}

/// Whether there are not too many calls that have followed the calls in `path_`.
bool LazyRun::may_add() const { return (path_.empty() ? function_.first_ : *path_.back()).next.size() < kMaxNext; }

/// Adds the call that was described and has been made to those that follow the calls in `path_`.
DeferredCall* LazyRun::add(const door::CallView& call) {
  DeferredCall& last = path_.empty() ? function_.first_ : *path_.back();
  auto made = std::make_unique<DeferredCall>();
  RecordedCall& c = made->call;
  c.op = call.op;
  c.in_place = call.in_place;
  c.inputs = inputs_;
  c.attributes.assign(call.attributes.begin(), call.attributes.end());
  c.scope = Scope::path(), c.frames = call_stack();
  std::vector<bool> is_made(memory_.size() + unknown_.size(), false);
  for (const Tensor& x : call.outputs) {
    TensorRef& output = c.outputs.emplace_back(ref_of(x));
    if (call.in_place) {
      output = inputs_[0].tensor;
      continue;
    }
    // its memory must be new
    made->is_fusible &= x.defined() && may_defer(x) && x.storage_offset() == 0 && !x.node()->wrapped_number &&
                        !number_of(x.storage().id()) &&
                        std::ranges::count(unknown_, x.storage().id(), [](auto* t) { return t->storage().id(); }) == 0;
    is_made.push_back(true);
    output.storage = is_made.size();
  }
  made->is_fusible = made->is_fusible && c.outputs.size() > 0 && fusible(c, is_made);
  ++function_.calls_;
  last.next.push_back(std::move(made));
  return last.next.back().get();
}

/// Appends a call that was described to `path_`.
void LazyRun::advance(DeferredCall& to, const door::CallView& call, std::span<const Tensor> outputs) {
  if (path_.empty()) {
    stream_ = current_stream(unknown_[0]->device());
    deferred_ = replaced_;
  }
  for (const Tensor* x : unknown_) memory_.push_back({x->storage().id(), door::Observed(*x)});
  if (call.in_place)
    memory_[inputs_[0].tensor.storage - 1].is_written = true;
  else
    for (const Tensor& x : outputs) memory_.push_back({x.storage().id(), door::Observed(x), true});
  path_.push_back(&to);
}

bool LazyRun::replace(const door::CallView& call, std::vector<Tensor>& outputs) {
  replaced_ = false;
  if (row(call.op).kind == OpKind::view || (!deferred_ && !path_.empty())) return false;
  const bool may = may_defer(call) && describe(call);
  DeferredCall* const next = may ? known(call) : nullptr;
  if (next == nullptr || !next->is_fusible) {
    if (deferred_ && may && next == nullptr && may_add())
      run_one_by_one();  // `after` adds this call
    else if (deferred_ && depends(call))
      end_segment();
    return false;
  }
  replaced_ = true;
  if (!call.in_place)
    for (const TensorRef& x : next->call.outputs)
      outputs.push_back(empty_strided(x.layout.size_list(), x.layout.stride_list(), {x.dtype, x.device}));
  else
    outputs.push_back(*call.inputs[0].tensor());
  advance(*next, call, outputs);
  return true;
}

void LazyRun::after(const door::CallView& call) {
  if (std::exchange(replaced_, false) || deferred_ || row(call.op).kind == OpKind::view) return;
  if (!call.failed && may_defer(call) && describe(call)) {
    DeferredCall* next = known(call);
    if (next == nullptr && may_add()) next = add(call);
    if (next != nullptr && next->is_fusible) return advance(*next, call, call.outputs);
  }
  if (depends(call)) end_segment();
}

void LazyRun::fact(const FactView& fact) {
  if (fact.fact != Fact::host_read && fact.fact != Fact::address) return;
  const std::optional<int> i = number_of(fact.storage);
  if (!i) return;
  const Memory& memory = memory_[static_cast<size_t>(*i)];
  // The host may write through an address.
  if (fact.fact == Fact::address || memory.is_made || memory.is_written) end_segment();
}

// ---- segments -------------------------------------------------------------------------------------------------------

Tensor LazyRun::tensor_of(const TensorRef& x) const {
  const Tensor& known = memory_[x.storage - 1].tensor.tensor();
  return x.layout == known.layout() && x.offset == known.storage_offset() ? known
                                                                          : door::make_view(known, x.layout, x.offset);
}

std::vector<bool> LazyRun::needed() const {
  std::vector<bool> needed;
  for (const Memory& x : memory_) needed.push_back(x.is_made && x.tensor.tensor().storage().users() > 0);
  return needed;
}

/// The segment of the calls in `path_`, for the storages that somebody holds now.
const Segment& LazyRun::segment() {
  std::vector<Segment>& all = path_.back()->segments;
  std::vector<bool> results = needed();
  const auto known = std::ranges::find(all, results, &Segment::needed);
  if (known != all.end()) return *known;
  Segment& made = all.emplace_back();
  try {
    std::vector<const RecordedCall*> calls;
    for (const DeferredCall* x : path_) calls.push_back(&x->call);
    std::vector<bool> is_made;
    for (const Memory& x : memory_) is_made.push_back(x.is_made);
    const Recording recording = recording_of(calls, is_made, results);
    made.arguments = recording.arguments;
    made.results = recording.results;
    made.program =
        std::make_unique<const Program>(functionalise(recording), ProgramOptions{.autotune = function_.autotune_});
    if (function_.wait_) made.program->wait();
    if (std::ranges::any_of(made.program->units(), [](const Unit& u) { return u.nodes.size() > 1; }))
      function_.fuses_ = true;
  } catch (const std::exception&) {  // the calls run one by one
    made.program = nullptr;
  }
  made.needed = std::move(results);
  return made;
}

/// Runs on the stream on which the calls were deferred, and counts no writes: those of deferred calls were counted.
template <class F>
void LazyRun::run_in_their_place(const F& run) {
  struct Uncounted {
    const std::vector<Memory>& memory;
    std::vector<Storage::Version> versions = {};
    explicit Uncounted(const std::vector<Memory>& m) : memory(m) {
      for (const Memory& x : memory) versions.push_back(x.tensor.tensor().storage().written());
    }
    ~Uncounted() {
      for (size_t i = 0; i < memory.size(); ++i) memory[i].tensor.tensor().storage().restore(versions[i]);
    }
  } const uncounted(memory_);
  {
    const StreamScope on(*stream_);
    run();
  }
  if (const Stream now = current_stream(stream_->device); now != *stream_) {
    const Event done(stream_->device);
    done.record(*stream_);
    done.block(now);
  }
}

/// Ends the sequence of calls, and makes those that were deferred.
void LazyRun::end_segment() {
  if (path_.empty()) return;
  struct Reset {
    LazyRun& run;
    ~Reset() {
      run.path_.clear();
      run.memory_.clear();
      run.stream_.reset();
      run.deferred_ = false;
    }
  } const reset{*this};
  const ModeScope quiet(kInferenceMode, kToldModes);
  if (deferred_)
    run_deferred();
  else
    segment();
}

void LazyRun::run_deferred() {
  const Segment& of = segment();
  if (of.program == nullptr) return run_one_by_one();
  std::vector<Tensor> arguments, results;
  for (const TensorRef& x : of.arguments) arguments.push_back(tensor_of(x));
  for (const TensorRef& x : of.results) results.push_back(tensor_of(x));
  run_in_their_place([&] { of.program->run(arguments, {}, results); });
}

/// Makes the deferred calls one by one. They stay in `path_`.
void LazyRun::run_one_by_one() {
  const ModeScope quiet(kInferenceMode, kToldModes);
  deferred_ = false;
  run_in_their_place([&] {
    for (const DeferredCall* x : path_) run(*x);
  });
}

void LazyRun::run(const DeferredCall& deferred) {
  const RecordedCall& call = deferred.call;
  std::vector<Tensor> tensors;
  std::vector<Operand> numbers;
  for (const RecordedInput& x : call.inputs) {
    tensors.push_back(x.tensor.defined() ? tensor_of(x.tensor) : Tensor());
    numbers.push_back(x.number.value_or(Scalar(0)));
  }
  std::vector<door::Input> inputs;
  for (size_t i = 0; i < tensors.size(); ++i)
    inputs.push_back(call.inputs[i].number ? door::Input(numbers[i]) : door::Input(&tensors[i]));
  const std::vector<Tensor> made =
      door::run({.op = call.op, .in_place = call.in_place, .inputs = inputs, .attributes = call.attributes});
  if (call.in_place) return;
  for (size_t i = 0; i < made.size(); ++i) tensor_of(call.outputs[i]).copy_(made[i]);
}

}  // namespace lorry::compiler
