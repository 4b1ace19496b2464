#include "lorry/compile/compile.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <ranges>
#include <shared_mutex>

#include "lorry/base/events.h"
#include "lorry/base/modes.h"
#include "lorry/compile/differentiable.h"
#include "lorry/compile/lazy.h"
#include "lorry/kernels/backend.h"
#include "lorry/ops/batch_invariant.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/trace/functionalise.h"
#include "lorry/trace/symbolic.h"

namespace lorry::detail {
namespace {

/// Recordings that may contain one-time initialisation are repeated, at most this often; then the function runs
/// uncompiled.
constexpr int kAttempts = 3;

/// The modes of this thread that a recording holds for.
uint32_t recorded_modes() {
  static_assert((kGradMode | kInferenceMode) < 1u << 31);
  return (t_modes & (kGradMode | kInferenceMode)) | uint32_t{batch_invariant()} << 31;
}

/// While any of these listens, the function runs uncompiled, so that listeners receive its operators. A profiler shows
/// what runs: it receives the units.
constexpr uint32_t kOthersListen = kListenerModes & ~(kGradMode | kProfileMode | kAwaitMode);

/// The number of recordings of all functions.
std::atomic<int> g_cached{0};

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 32);
}

/// A hash of everything that a guard compares first.
uint64_t hash_of(std::span<const Tensor> arguments, CompileKey key) {
  const Device made_on = default_device();
  uint64_t hash = mix(arguments.size(), recorded_modes());
  hash = mix(hash, static_cast<uint64_t>(made_on.type) << 8 | static_cast<uint8_t>(made_on.index));
  for (const uint64_t word : key) hash = mix(hash, word);
  for (const Tensor& x : arguments) {
    const Layout& layout = x.layout();
    hash = mix(hash, static_cast<uint64_t>(x.dtype()) | static_cast<uint64_t>(layout.rank) << 8 |
                         static_cast<uint64_t>(x.requires_grad()) << 16);
    for (int d = 0; d < layout.rank; ++d)
      hash = mix(mix(hash, static_cast<uint64_t>(layout.sizes[d])), static_cast<uint64_t>(layout.strides[d]));
  }
  return hash;
}

/// Prepares the run-time compiler in the background, because the first compilation takes longer.
void warm_up(Device device) {
  const kernels::FusedKernels* const fused = kernels::backend(device).fused;
  if (fused != nullptr && fused->warm_up != nullptr) fused->warm_up();
}

std::vector<bool> gradients_required(std::span<const Tensor> arguments) {
  std::vector<bool> required;
  for (const Tensor& x : arguments) required.push_back(x.requires_grad());
  return required;
}

compiler::ProgramOptions program_options(const CompileOptions& options) {
  return {.epilogues = options.epilogues ? compiler::Epilogues::fast : compiler::Epilogues::none,
          .autotune = options.max_autotune};
}

/// A description of a program's kernels: operators and kinds of operands, without sizes.
std::string kernels_of(const compiler::Program& program) {
  std::string text;
  for (const compiler::Unit& unit : program.units()) {
    for (const int32_t n : unit.nodes)
      text += fmt::format("{} ", name(program.graph().nodes[static_cast<size_t>(n)].op));
    for (const kernels::FusedStep& s : unit.steps)
      text += fmt::format("{}:{}:{}:{} ", s.dtype, s.compute, s.in[0], s.in[1]);
    for (const kernels::RowStep& s : unit.row_steps)
      text += fmt::format("{}:{}:{}:{} ", static_cast<int>(s.kind), s.result[0].dtype, s.in[0], s.pointwise.in[0]);
    for (const trace::Argument& x : unit.inputs)
      text += fmt::format("{}{}{} ", static_cast<int>(x.kind), x.dtype, x.window.layout.is_contiguous());
    text += ";";
  }
  return text;
}

}  // namespace

/// The parts of a call that a recording holds for and that have nothing to do with sizes.
struct CallKind {
  uint32_t modes;
  Device default_device;
  std::vector<uint64_t> key;
  std::vector<bool> wants_gradient;

  CallKind(std::span<const Tensor> arguments, CompileKey of)
      : modes(recorded_modes()),
        default_device(lorry::default_device()),
        key(of.begin(), of.end()),
        wants_gradient(gradients_required(arguments)) {}
  friend bool operator==(const CallKind& a, const CallKind& b) = default;
  bool is_of(std::span<const Tensor> arguments, CompileKey other_key) const {
    if (modes != recorded_modes() || default_device != lorry::default_device() || !std::ranges::equal(key, other_key) ||
        wants_gradient.size() != arguments.size())
      return false;
    for (size_t i = 0; i < arguments.size(); ++i)
      if (wants_gradient[i] != arguments[i].requires_grad()) return false;
    return true;
  }
};

/// One recording of a function.
struct Recorded {
  uint64_t hash;
  CallKind kind;
  std::string reason;                                ///< why it was made although there were other recordings
  std::string refused;                               ///< why the function cannot be compiled
  std::shared_ptr<const compiler::Program> program;  ///< null if the function cannot be compiled
  /// the owner of `program`, if it has a backward
  std::shared_ptr<const compiler::DifferentiableProgram> differentiable = nullptr;
  std::shared_ptr<compiler::LazyFunction> lazy = nullptr;  ///< if the function cannot be compiled as a whole
  std::string kernels = {};
  bool runs_fused = false;  ///< whether some unit has more than one operator
  bool is_resized = false;  ///< made from recordings of other sizes
  int attempts = 1;
  mutable std::atomic<uint64_t> used{0};

  bool is_of(std::span<const Tensor> arguments, CompileKey other_key) const {
    if (!kind.is_of(arguments, other_key)) return false;
    return program == nullptr ||
           (program->guard().holds(arguments) && (differentiable == nullptr || differentiable->holds(arguments)));
  }

  std::vector<Tensor> run(std::span<const Tensor> arguments) const {
    return differentiable != nullptr ? differentiable->run(arguments) : program->run(arguments);
  }
  /// Throws CompileError. results: the number of the function's results.
  void set(const trace::Graph& graph, size_t arguments, size_t results, const compiler::Differentiation& gradients,
           const compiler::ProgramOptions& how) {
    if (gradients.results.empty()) {
      program = std::make_shared<const compiler::Program>(graph, how);
      return add_kernels(*program);
    }
    differentiable = std::make_shared<const compiler::DifferentiableProgram>(graph, arguments, results, gradients, how);
    program = {differentiable, &differentiable->forward()};
    add_kernels(*program);
    kernels += "backward:";
    add_kernels(differentiable->backward());
  }
  std::string explain() const;
  std::string sources() const {
    if (lazy != nullptr) return lazy->sources();
    std::string text = program == nullptr ? "" : program->sources();
    if (differentiable != nullptr) text += differentiable->backward().sources();
    return text;
  }
  /// Waits until all kernels have been compiled or have failed to compile.
  void wait() const {
    if (program != nullptr) program->wait();
    if (differentiable != nullptr) differentiable->backward().wait();
  }

 private:
  void add_kernels(const compiler::Program& made) {
    kernels += kernels_of(made);
    runs_fused |= std::ranges::any_of(made.units(), [](const auto& u) { return u.nodes.size() > 1; });
  }
};

/// Recordings of one function that differ in sizes alone, and the graph for further sizes.
struct Family {
  CallKind kind;
  size_t results;
  compiler::Differentiation gradients;
  trace::SymbolicGraph graph;
};

struct CompiledFunction::Cache {
  CompileOptions options;
  mutable std::shared_mutex mutex;
  std::vector<std::shared_ptr<Recorded>> recorded;
  std::atomic<uint64_t> use_counter{0};
  std::vector<std::shared_ptr<const Family>> families;  ///< in the order in which they began
  std::atomic<int64_t> recordings{0}, resized{0}, hits{0}, eager_calls{0}, deferred_calls{0}, dropped{0};

  std::shared_ptr<const Recorded> find(uint64_t hash, std::span<const Tensor> arguments, CompileKey key) const;
  std::string why_recorded(std::span<const Tensor> arguments) const;
  /// Calls the function, and adds a recording of the call.
  std::vector<Tensor> record(uint64_t hash, std::span<const Tensor> arguments, CompileKey key, FunctionRef function);
  /// A recording for these arguments that follows from those for other sizes; null if there is none.
  std::shared_ptr<const Recorded> resize(uint64_t hash, std::span<const Tensor> arguments, CompileKey key);
  void add(std::shared_ptr<Recorded> made);

 private:
  using List = std::vector<std::shared_ptr<Recorded>>;
  void add_to_family(const Recorded& made, const trace::Graph& graph, const trace::Recording& recording, size_t results,
                     const compiler::Differentiation& gradients);
  void move_replaced(const std::shared_ptr<Recorded>& made, List& to);
  std::string move_over_limits(List& to);
};

std::shared_ptr<const Recorded> CompiledFunction::Cache::find(uint64_t hash, std::span<const Tensor> arguments,
                                                              CompileKey key) const {
  const std::shared_lock lock(mutex);
  // it matches all arguments with its hash, so other recordings are tried first
  std::shared_ptr<const Recorded> failure;
  for (const auto& r : recorded) {
    if (r->hash != hash || !r->is_of(arguments, key)) continue;
    if (r->program != nullptr) return r;
    failure = r;
  }
  return failure;
}

/// Why no recording matches: the reason of the nearest one, which has the most matching arguments and, among those, was
/// used last. Empty if there are no recordings.
std::string CompiledFunction::Cache::why_recorded(std::span<const Tensor> arguments) const {
  const std::shared_lock lock(mutex);
  const Recorded* nearest = nullptr;
  std::pair<size_t, uint64_t> best;
  for (const auto& r : recorded) {
    if (r->program == nullptr) continue;
    const trace::Guard& guard = r->program->guard();
    const std::pair candidate(guard.matching(arguments) + (guard.holds(arguments) ? 1 : 0), r->used.load());
    if (nearest == nullptr || candidate > best) nearest = r.get(), best = candidate;
  }
  if (nearest == nullptr) return {};
  const std::string reason = nearest->program->guard().why_not(arguments);
  return reason.empty() ? "other numbers among the arguments, other modes or default device, or other arguments that "
                          "require gradients"
                        : reason;
}

std::vector<Tensor> CompiledFunction::Cache::record(uint64_t hash, std::span<const Tensor> arguments, CompileKey key,
                                                    FunctionRef function) {
  if (!arguments.empty()) warm_up(arguments[0].device());
  const auto made = std::make_shared<Recorded>(hash, CallKind(arguments, key));
  made->reason = why_recorded(arguments);
  trace::Recorder recorder(arguments);
  const std::vector<Tensor> results = function();
  compiler::Differentiation gradients = compiler::differentiation_of(recorder, arguments, results);
  std::vector<Tensor> made_here = results;
  if (!gradients.results.empty())
    std::ranges::move(compiler::record_backward(recorder, arguments, results, gradients),
                      std::back_inserter(made_here));
  const trace::Recording recording = recorder.finish(made_here);
  ++recordings;
  try {
    const trace::Graph graph = trace::functionalise(recording);
    made->set(graph, arguments.size(), results.size(), gradients, program_options(options));
    if (options.dynamic != Dynamic::never && !arguments.empty())
      add_to_family(*made, graph, recording, results.size(), gradients);
  } catch (const CompileError& error) {
    made->refused = error.what();
    if (!recording.may_initialise) made->attempts = kAttempts;
  } catch (const std::exception& error) {  // the function has run, so its results must not be lost
    made->refused = error.what();
    made->attempts = kAttempts;
  }
  if (!made->reason.empty())
    events::emit(events::Kind::warning, "compile", fmt::format("recorded again: {}", made->reason));
  add(made);
  if (options.wait) made->wait();
  if (made->program == nullptr && made->attempts >= kAttempts) {
    if (options.fullgraph) raise_as<CompileError>("compile", "fullgraph: {}", made->refused);
    events::emit(events::Kind::warning, "compile",
                 fmt::format("the function is not one graph, so its operators are deferred: {}", made->refused));
  }
  return results;
}

/// Adds a recording to the family of those that differ from it in sizes alone; if there is none, it begins one. It does
/// neither if another thread changes that family meanwhile, or if such calls had families that gave no other sizes.
void CompiledFunction::Cache::add_to_family(const Recorded& made, const trace::Graph& graph,
                                            const trace::Recording& recording, size_t results,
                                            const compiler::Differentiation& gradients) {
  constexpr size_t kMostFamilies = 16;
  std::vector<std::shared_ptr<const Family>> list, gone;  // destroyed after the lock is released
  {
    const std::shared_lock lock(mutex);
    list = families;
  }
  std::shared_ptr<const Family> from, next;
  bool is_hopeless = false;
  for (const auto& family : list) {
    if (!family->graph.may_run_again()) {
      gone.push_back(family);
      continue;
    }
    if (next != nullptr || family->kind != made.kind || family->results != results) continue;
    is_hopeless |= family->graph.is_hopeless();
    if (family->graph.is_full() || is_hopeless) continue;
    auto copy = std::make_shared<Family>(*family);
    if (!copy->graph.add(graph, recording)) continue;
    from = family;
    next = std::move(copy);
  }
  if (next == nullptr && !is_hopeless && std::ranges::all_of(graph.constants, trace::is_comparable))
    next = std::make_shared<const Family>(
        Family{made.kind,
               results,
               gradients,
               {graph, recording, made.kind.wants_gradient.size(), options.dynamic == Dynamic::always}});
  const std::unique_lock lock(mutex);
  std::erase_if(families, [&](const auto& x) { return std::ranges::count(gone, x) > 0; });
  const auto at = std::ranges::find(families, from);
  if (from != nullptr && at != families.end())
    at->swap(next);
  else if (from == nullptr && next != nullptr)
    families.push_back(std::move(next));
  if (families.size() > kMostFamilies) {
    gone.push_back(families.front());
    families.erase(families.begin());
  }
}

std::shared_ptr<const Recorded> CompiledFunction::Cache::resize(uint64_t hash, std::span<const Tensor> arguments,
                                                                CompileKey key) {
  std::vector<std::shared_ptr<const Family>> list;
  {
    const std::shared_lock lock(mutex);
    for (const auto& family : families)
      if (family->graph.why_not().empty() && family->kind.is_of(arguments, key)) list.push_back(family);
  }
  for (const auto& family : std::views::reverse(list)) {
    const std::optional<trace::Graph> graph = family->graph.make(arguments);
    if (!graph) continue;
    compiler::Differentiation gradients = family->gradients;
    for (size_t i = 0; i < gradients.gradient_layouts.size(); ++i)
      gradients.gradient_layouts[i] = graph->arguments[arguments.size() + i].window.layout;
    const auto made = std::make_shared<Recorded>(hash, family->kind);
    try {
      made->set(*graph, arguments.size(), family->results, gradients, program_options(options));
    } catch (const std::exception&) {
      continue;  // the function is recorded again
    }
    if (!made->is_of(arguments, key)) continue;
    if (auto known = find(hash, arguments, key)) return known;  // another thread was faster
    made->reason = "it follows from recordings for other sizes: " + family->graph.describe();
    made->is_resized = true;
    ++resized;
    add(made);
    if (options.wait) made->wait();
    return made;
  }
  return nullptr;
}

void CompiledFunction::Cache::add(std::shared_ptr<Recorded> made) {
  // destroyed after the lock is released, because destruction may emit events
  List dropped_now;
  std::string warning;
  {
    const std::unique_lock lock(mutex);
    made->used = ++use_counter;
    move_replaced(made, dropped_now);
    if (made->program == nullptr && made->attempts >= kAttempts && !options.fullgraph)
      made->lazy = std::make_shared<compiler::LazyFunction>(options.wait, options.max_autotune);
    g_cached -= static_cast<int>(dropped_now.size());
    recorded.push_back(std::move(made));
    ++g_cached;
    warning = move_over_limits(dropped_now);
  }
  if (!warning.empty()) events::emit(events::Kind::warning, "compile", warning);
}

/// Moves recordings that `made` replaces to `to`: a failure with the same arguments, and recordings whose captured
/// tensors no longer exist. Other recordings stay.
void CompiledFunction::Cache::move_replaced(const std::shared_ptr<Recorded>& made, List& to) {
  std::erase_if(recorded, [&](std::shared_ptr<Recorded>& r) {
    const bool failed = r->program == nullptr && r->hash == made->hash && r->kind == made->kind;
    if (failed) made->attempts = std::max(made->attempts, r->attempts + 1);
    if (!failed && (r->program == nullptr || r->program->guard().may_hold_again())) return false;
    to.push_back(std::move(r));
    return true;
  });
}

/// Moves recordings beyond the limits to `to`. Returns a warning.
std::string CompiledFunction::Cache::move_over_limits(List& to) {
  std::string warning;
  while (recorded.size() > 1 && (recorded.size() > static_cast<size_t>(options.cache_size_limit) ||
                                 g_cached > options.accumulated_cache_size_limit)) {
    const auto least = std::ranges::min_element(recorded, {}, [](const auto& r) { return r->used.load(); });
    if (!(*least)->is_resized)  // those are made again without running the function
      warning = fmt::format(
          "{} recordings exceed the limit: the least recently used is dropped; the last was made because: {}",
          recorded.size(), recorded.back()->reason);
    to.push_back(std::move(*least));
    recorded.erase(least);
    --g_cached;
    ++dropped;
  }
  return warning;
}

CompiledFunction::CompiledFunction(const CompileOptions& options) : cache_(std::make_unique<Cache>()) {
  if (options.cache_size_limit < 1 || options.accumulated_cache_size_limit < 1)
    raise_as<ValueError>("compile", "a cache limit is out of range; got {} and {}; expected at least 1",
                         options.cache_size_limit, options.accumulated_cache_size_limit);
  cache_->options = options;
  warm_up(default_device());
}

CompiledFunction::~CompiledFunction() { reset(); }

void CompiledFunction::reset() {
  std::vector<std::shared_ptr<Recorded>> dropped;
  std::vector<std::shared_ptr<const Family>> families;
  const std::unique_lock lock(cache_->mutex);
  dropped.swap(cache_->recorded);
  families.swap(cache_->families);
  g_cached -= static_cast<int>(dropped.size());
}

std::vector<Tensor> CompiledFunction::call(std::span<const Tensor> arguments, CompileKey key, FunctionRef function) {
  if (t_modes & kOthersListen) return function();  // among the listeners may be the recording of a larger function
  door::await_memory();
  const uint64_t hash = hash_of(arguments, key);
  std::shared_ptr<const Recorded> found = cache_->find(hash, arguments, key);
  if (found == nullptr) found = cache_->resize(hash, arguments, key);
  if (found != nullptr && found->runs_fused) {
    found->used.store(++cache_->use_counter, std::memory_order_relaxed);
    ++cache_->hits;
    return found->run(arguments);
  }
  if (found != nullptr && found->lazy != nullptr && found->lazy->gains()) {
    compiler::LazyRun run(*found->lazy);
    ++(run.active() ? cache_->deferred_calls : cache_->eager_calls);
    std::vector<Tensor> results = function();
    run.finish();
    return results;
  }
  if (found != nullptr && (found->program != nullptr || found->attempts >= kAttempts)) {
    if (found->program == nullptr && cache_->options.fullgraph)
      raise_as<CompileError>("compile", "fullgraph: {}", found->refused);
    ++cache_->eager_calls;
    return function();
  }

  return cache_->record(hash, arguments, key, function);
}

std::string CompiledFunction::sources() const {
  const std::shared_lock lock(cache_->mutex);
  std::string text;
  for (const auto& r : cache_->recorded) text += r->sources();
  return text;
}

std::string CompiledFunction::explain() const {
  const std::shared_lock lock(cache_->mutex);
  std::string text;
  for (size_t i = 0; i < cache_->recorded.size(); ++i) {
    const Recorded& r = *cache_->recorded[i];
    text += fmt::format("recording {}{}\n", i, r.reason.empty() ? "" : "; made because: " + r.reason);
    text += r.explain();
  }
  for (const auto& family : cache_->families)
    if (family->graph.samples() > 1)
      text += family->graph.why_not().empty()
                  ? fmt::format("other sizes need no recording: {}\n", family->graph.describe())
                  : fmt::format("other sizes are recorded: {}\n", family->graph.why_not());
  return text;
}

std::string Recorded::explain() const {
  if (lazy != nullptr)
    return fmt::format("not one graph: {}\n{}{}", refused, lazy->explain(),
                       lazy->gains() ? "" : "runs as it is: there is nothing to fuse\n");
  if (program == nullptr) return fmt::format("runs as it is: {}\n", refused);
  std::string text = program->explain();
  if (differentiable != nullptr)
    text += fmt::format("{} bytes saved for the backward\n{}", differentiable->saved_bytes(),
                        differentiable->backward().explain());
  if (!runs_fused) text += "runs as it is: there is nothing to fuse\n";
  return text;
}

CompileStats CompiledFunction::stats() const {
  const std::shared_lock lock(cache_->mutex);
  std::vector<std::string_view> kernels;
  for (const auto& r : cache_->recorded)
    if (r->program != nullptr && std::ranges::count(kernels, r->kernels) == 0) kernels.push_back(r->kernels);
  return {.recordings = cache_->recordings,
          .resized = cache_->resized,
          .hits = cache_->hits,
          .eager_calls = cache_->eager_calls,
          .deferred_calls = cache_->deferred_calls,
          .dropped = cache_->dropped,
          .cached = static_cast<int>(cache_->recorded.size()),
          .variants = static_cast<int>(kernels.size())};
}

}  // namespace lorry::detail
