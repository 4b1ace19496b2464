#include "lorry/compile/program.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "lorry/base/waits.h"
#include "lorry/compile/epilogue.h"
#include "lorry/compile/joined.h"
#include "lorry/compile/joined_rows.h"
#include "lorry/compile/run.h"
#include "lorry/compile/simplify.h"
#include "lorry/compile/unit_span.h"
#include "lorry/compile/verify.h"
#include "lorry/device/capture.h"
#include "lorry/trace/placement.h"

namespace lorry::compiler {
namespace {

using namespace trace;

std::vector<int32_t> steps_of(const Graph& graph, const std::vector<Unit>& units) {
  std::vector<int32_t> steps(graph.nodes.size());
  for (size_t u = 0; u < units.size(); ++u)
    for (const int32_t n : units[u].nodes) steps[static_cast<size_t>(n)] = static_cast<int32_t>(u);
  return steps;
}

/// Whether a unit reads the old contents of a memory only at the element that it writes.
trace::Overwrites overwritten_by(const Graph& graph, const std::vector<Unit>& units) {
  return [&](int32_t step, int32_t old, int32_t made) {
    const Unit& unit = units[static_cast<size_t>(step)];
    if (unit.kind == Unit::library) {
      const Node& node = graph.nodes[static_cast<size_t>(unit.nodes[0])];
      return !node.targets.empty() && overwrites(node, old, made);
    }
    if (unit.kind == Unit::joined && is_product_of_rows(graph, unit)) {
      // Its last node may write a cache; the others read before and while it does.
      const auto reads = [&](const Argument& x) { return x.kind == Argument::value && x.value_index == old; };
      const Node& last = graph.nodes[static_cast<size_t>(unit.nodes.back())];
      return !last.targets.empty() && overwrites(last, old, made) &&
             std::none_of(unit.nodes.begin(), unit.nodes.end() - 1, [&](int32_t n) {
               return std::ranges::any_of(graph.nodes[static_cast<size_t>(n)].arguments, reads);
             });
    }
    if (unit.kind == Unit::product || unit.kind == Unit::joined) return false;
    const Value& memory = graph.values[static_cast<size_t>(old)];
    for (size_t i = 0; i < unit.inputs.size(); ++i) {
      const Argument& x = unit.inputs[i];
      if (x.kind != Argument::value || x.value_index != old) continue;
      if (!is_whole(x.window, memory)) return false;
      if (unit.kind == Unit::row && unit.extents[i] != extent_of_result(memory.layout, unit.rows)) return false;
    }
    return true;
  };
}

std::vector<Unit> units_of(const Graph& graph, Epilogues epilogues) {
  const std::vector<std::vector<int32_t>> products = products_of_rows(graph);
  std::vector<Unit> units = fuse(graph, epilogues == Epilogues::fast, products);
  if (epilogues != Epilogues::none) join_products(graph, units, epilogues == Epilogues::all);
  join_operators(graph, units, products, epilogues == Epilogues::none);
  verify(graph, units);
  return units;
}

/// Every node by itself.
std::vector<Unit> separate_units(const Graph& graph) {
  std::vector<Unit> units(graph.nodes.size());
  for (size_t n = 0; n < units.size(); ++n) units[n].nodes = {static_cast<int32_t>(n)};
  return units;
}

/// The ways to run a graph, of which tuning chooses. The usual one is the first; none is there twice.
std::vector<std::unique_ptr<const Schedule>> schedules_of(const Graph& graph, const ProgramOptions& options) {
  std::vector<std::unique_ptr<const Schedule>> schedules;
  const auto add = [&](std::vector<Unit> units) {
    const auto is_same = [](const Unit& a, const Unit& b) {
      return a.kind == b.kind && a.epilogue == b.epilogue && a.nodes == b.nodes;
    };
    for (const auto& known : schedules)
      if (std::ranges::equal(known->units(), units, is_same)) return;
    schedules.push_back(std::make_unique<const Schedule>(graph, std::move(units)));
  };
  add(units_of(graph, options.epilogues));
  if (!options.autotune) return schedules;
  if (options.epilogues != Epilogues::none)
    for (const Epilogues other : {Epilogues::all, Epilogues::none}) add(units_of(graph, other));
  add(separate_units(graph));
  return schedules;
}

/// The devices that a graph runs on.
std::vector<Device> devices_of(const Graph& graph) {
  std::vector<Device> devices;
  for (const Value& v : graph.values)
    if (!v.device.is_meta() && std::ranges::find(devices, v.device) == devices.end()) devices.push_back(v.device);
  return devices;
}

bool is_captured(const Graph& graph) {
  return std::ranges::any_of(devices_of(graph), [](Device d) { return is_capturing(current_stream(d)); });
}

/// What a unit's span refers to while it is open.
struct SpanUnit {
  const Graph& graph;
  const Unit& unit;
};
constinit std::atomic<uint64_t> g_spans{1};

void synchronize(const Graph& graph) {
  const waits::Reason reason(waits::Wait::setup);
  for (const Device d : devices_of(graph)) current_stream(d).synchronize();
}

}  // namespace

// ---- a schedule -----------------------------------------------------------------------------------------------------

Schedule::Schedule(const Graph& graph, std::vector<Unit> units)
    : graph_(graph),
      units_(std::move(units)),
      lifetimes_(graph_, steps_of(graph_, units_)),
      in_input_(made_in_inputs(graph_, steps_of(graph_, units_), overwritten_by(graph_, units_))),
      first_span_(g_spans.fetch_add(units_.size(), std::memory_order_relaxed)) {
  for (const Unit& unit : units_) {
    const bool has_kernel = unit.kind != Unit::library && unit.kind != Unit::joined;
    kernels_.push_back(has_kernel ? make_kernel(graph_, unit, in_input_) : nullptr);
    callback_ends_.push_back(static_cast<size_t>(std::ranges::count_if(
        graph_.callbacks, [&](const HostCallback& x) { return x.position <= static_cast<size_t>(unit.nodes[0]); })));
  }
}

std::vector<Tensor> Schedule::run(std::span<const Tensor> arguments, RunDraws draws,
                                  std::span<const Tensor> into) const {
  const ModeScope nobody_listens(0, kToldModes);
  Evaluation evaluation(graph_, arguments, lifetimes_, std::move(draws), in_input_);
  if (!into.empty()) evaluation.use_memory_of(into);
  size_t called = 0;
  const auto call_back = [&](size_t end) {
    for (; called < end; ++called) {
      const HostCallback& callback = graph_.callbacks[called];
      if (device::is_captured())
        device::refuse_capture(callback.name.c_str(), "the host does something that no replay would do",
                               "do it between replays");
      (*callback.call)();
    }
  };
  for (size_t u = 0; u < units_.size(); ++u) {
    call_back(callback_ends_[u]);
    const SpanUnit described{graph_, units_[u]};
    const Span span({SpanKind::unit, first_span_ + u, &described, describe_unit});
    run_unit(u, evaluation);
    if (lorry::detail::t_cost_observer != nullptr) lorry::detail::t_cost_observer->ended(cost_of(graph_, units_[u]));
    evaluation.end(static_cast<int32_t>(u));
  }
  call_back(graph_.callbacks.size());
  return evaluation.finish();
}

void Schedule::describe_unit(const void* unit, SpanDescription& to) {
  const auto& described = *static_cast<const SpanUnit*>(unit);
  describe(described.graph, described.unit, to);
}

void Schedule::run_unit(size_t u, Evaluation& evaluation) const {
  const Unit& unit = units_[u];
  const auto step = static_cast<int32_t>(u);
  if (unit.kind == Unit::joined) return run_joined(graph_, unit, evaluation, step);
  const std::shared_ptr<const kernels::FusedKernel>& kernel = kernels_[u];
  // Sums in a map have not the bits of the operator, and results may not depend on when a kernel is compiled.
  if (kernel != nullptr && !unit.sum_registers.empty() && !kernel->ready()) kernel->wait();
  if (kernel != nullptr && kernel->ready() && run_fused(unit, kernel, device_of(graph_, unit), evaluation)) return;
  evaluation.use_new_memory(kernel != nullptr);
  for (const int32_t n : unit.nodes) evaluation.run(graph_.nodes[static_cast<size_t>(n)], step);
  evaluation.use_new_memory(false);
}

std::string Schedule::explain() const {
  std::string text;
  for (size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    text += fmt::format("{}: ", u);
    for (const int32_t n : unit.nodes) text += fmt::format("{} ", name(graph_.nodes[static_cast<size_t>(n)].op));
    if (unit.kind == Unit::map) text += fmt::format("over {}, {} bytes saved", unit.sizes, unit.bytes_saved);
    if (unit.kind == Unit::row)
      text += fmt::format("over {} rows of {}, {} bytes saved", unit.rows.rows, unit.rows.n, unit.bytes_saved);
    if (unit.kind == Unit::product)
      text += fmt::format("as one product with {}, {} bytes saved", kernels::name(unit.epilogue), unit.bytes_saved);
    if (unit.kind == Unit::joined) text += fmt::format("as one operator, {} bytes saved", unit.bytes_saved);
    if (kernels_[u] != nullptr && !kernels_[u]->ready()) text += "; operator by operator, until its kernel is compiled";
    if (!unit.refused.empty()) text += fmt::format("; not fused with an earlier unit: {}", unit.refused);
    text += "\n";
  }
  return text;
}

std::string Schedule::sources() const {
  std::string text;
  for (const auto& kernel : kernels_)
    if (kernel != nullptr) text += kernel->source();
  return text;
}

void Schedule::wait() const {
  for (const auto& kernel : kernels_)
    if (kernel != nullptr) kernel->will_wait();
  for (const auto& kernel : kernels_)
    if (kernel != nullptr) kernel->wait();
}

// ---- the program ----------------------------------------------------------------------------------------------------

Program::Program(const Graph& graph, const ProgramOptions& options)
    : graph_(simplify(graph)), schedules_(schedules_of(graph_, options)), tuner_(schedules_.size()), guard_(graph_) {}

std::vector<Tensor> Program::run(std::span<const Tensor> arguments, RunDraws draws,
                                 std::span<const Tensor> into) const {
  if (tuner_.done()) return schedule().run(arguments, std::move(draws), into);
  const std::optional<size_t> way = is_captured(graph_) ? std::nullopt : tuner_.begin();
  if (!way) return schedule().run(arguments, std::move(draws), into);
  struct End {
    Tuner& tuner;
    std::optional<double> seconds = {};
    ~End() { tuner.end(seconds); }
  } end{tuner_};
  schedules_[*way]->wait();
  synchronize(graph_);
  const auto start = std::chrono::steady_clock::now();
  std::vector<Tensor> results = schedules_[*way]->run(arguments, std::move(draws), into);
  synchronize(graph_);
  end.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return results;
}

std::string Program::explain() const {
  std::string text;
  const std::vector<double> seconds = tuner_.seconds();
  if (seconds.size() > 1 && tuner_.done())
    text += fmt::format("the fastest of {} ways: {:.1f} us, as usual {:.1f} us, operator by operator {:.1f} us\n",
                        seconds.size(), 1e6 * seconds[tuner_.best()], 1e6 * seconds[0], 1e6 * seconds.back());
  return text + schedule().explain();
}

void Program::wait() const {
  for (const auto& s : schedules_) s->wait();
}

}  // namespace lorry::compiler
