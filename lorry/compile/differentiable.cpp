#include "lorry/compile/differentiable.h"

#include <algorithm>

#include "lorry/autograd/engine.h"
#include "lorry/autograd/function.h"
#include "lorry/autograd/node.h"
#include "lorry/compile/simplify.h"
#include "lorry/ops/ops.h"

namespace lorry::compiler {
namespace {

bool same_edge(const Tensor& a, const Tensor& b) {
  const autograd::Edge x = autograd::gradient_edge(a), y = autograd::gradient_edge(b);
  return x.node.get() == y.node.get() && x.index == y.index;
}

/// Memory for the gradient of a result, with the result's layout if that is dense.
Tensor memory_for_gradient(const Tensor& x) {
  return x.layout().is_dense() ? empty_strided(x.sizes(), x.strides(), x.options()) : empty(x.sizes(), x.options());
}

/// The tensors for which autograd computes gradients: arguments, then captured leaves.
std::vector<Tensor> differentiated_inputs(std::span<const Tensor> arguments, const Differentiation& d) {
  std::vector<Tensor> inputs;
  for (const size_t i : d.arguments) inputs.push_back(arguments[i]);
  for (const auto& leaf : d.leaves) inputs.push_back(leaf->tensor());
  return inputs;
}

/// Throws CompileError if a tensor that gets a gradient is written.
void require_no_writes(const trace::Graph& graph, const Differentiation& d) {
  for (const trace::WriteBack& w : graph.write_backs) {
    const trace::GraphInput& x = graph.inputs[static_cast<size_t>(w.input)];
    const bool is_written =
        x.leaf != nullptr || std::ranges::any_of(d.arguments, [&](size_t i) {
          return graph.arguments[i].kind == trace::Argument::value && graph.arguments[i].value_index == x.value;
        });
    if (is_written)
      raise_as<CompileError>("compile", "results require gradients, and a tensor that gets one is written");
  }
}

Partition parts_of(const trace::Graph& graph, size_t arguments, size_t results, const Differentiation& d) {
  require_no_writes(graph, d);
  return partition(simplify(graph), arguments, results);
}

}  // namespace

Differentiation differentiation_of(const trace::Recorder& recorder, std::span<const Tensor> arguments,
                                   const std::vector<Tensor>& results) {
  Differentiation d;
  d.leaves = recorder.leaves();
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].requires_grad()) d.results.push_back(i);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].requires_grad()) continue;
    const auto same =
        std::ranges::find_if(d.arguments, [&](size_t j) { return same_edge(arguments[i], arguments[j]); });
    if (same == d.arguments.end())
      d.arguments.push_back(i);
    else
      d.same.emplace_back(i, *same);
  }
  return d;
}

std::vector<Tensor> record_backward(trace::Recorder& recorder, std::span<const Tensor> arguments,
                                    const std::vector<Tensor>& results, Differentiation& d) {
  std::vector<Tensor> roots, ones;
  {
    const ModeScope nobody_listens(0, kToldModes);
    for (const size_t i : d.results) {
      roots.push_back(results[i]);
      ones.push_back(memory_for_gradient(results[i]).fill_(1));
      d.gradient_layouts.push_back(ones.back().layout());
    }
  }
  recorder.begin_backward(ones);
  const std::vector<Tensor> inputs = differentiated_inputs(arguments, d);
  for (const Tensor& x : inputs)
    if (autograd::gradient_edge(x).node->has_hooks()) {
      trace::Recorder::refuse("a tensor that gets a gradient has hooks");
      return {};
    }
  try {
    return autograd::grad(roots, inputs, ones, {.retain_graph = true, .stop_at_inputs = true, .allow_unused = true});
  } catch (const std::exception& error) {  // also a user's own, which a call that is not differentiated never meets
    trace::Recorder::refuse(fmt::format("its backward fails: {}", error.what()));
    return {};
  }
}

DifferentiableProgram::DifferentiableProgram(const trace::Graph& graph, size_t arguments, size_t results,
                                             const Differentiation& differentiation, const ProgramOptions& options)
    : DifferentiableProgram(parts_of(graph, arguments, results, differentiation), results, differentiation, options) {}

DifferentiableProgram::DifferentiableProgram(Partition parts, size_t results, Differentiation differentiation,
                                             const ProgramOptions& options)
    : differentiation_(std::move(differentiation)),
      results_(results),
      saved_inputs_(std::move(parts.saved_inputs)),
      forward_(parts.forward, options),
      backward_(parts.backward, options) {}

bool DifferentiableProgram::holds(std::span<const Tensor> arguments) const {
  return std::ranges::all_of(differentiation_.same, [&](const auto& pair) {
    return same_edge(arguments[pair.first], arguments[pair.second]);
  });
}

int64_t DifferentiableProgram::saved_bytes() const {
  const trace::Graph& graph = backward_.graph();
  int64_t bytes = 0;
  for (size_t i = saved_inputs_.size(); i < graph.arguments.size() - differentiation_.results.size(); ++i)
    bytes += graph.arguments[i].window.layout.extent() * size_of(graph.arguments[i].dtype);
  return bytes;
}

/// One call, as a function of autograd.
struct DifferentiableProgram::Call {
  std::shared_ptr<const DifferentiableProgram> program;
  trace::RunDraws draws;

  std::vector<Tensor> forward(autograd::Context& context, std::span<const Tensor> arguments) {
    const DifferentiableProgram& p = *program;
    std::vector<Tensor> made = p.forward_.run(arguments, draws);
    std::vector<Tensor> saved;
    for (const size_t i : p.saved_inputs_)
      saved.push_back(trace::source_of(p.forward_.graph().inputs[i], arguments).detach());
    const auto end_of_results = made.begin() + static_cast<std::ptrdiff_t>(p.results_);
    saved.insert(saved.end(), end_of_results, made.end());
    made.erase(end_of_results, made.end());
    context.save_for_backward(std::move(saved));
    std::vector<Tensor> constant;
    for (size_t i = 0; i < made.size(); ++i)
      if (std::ranges::count(p.differentiation_.results, i) == 0) constant.push_back(made[i]);
    context.mark_non_differentiable(std::move(constant));
    context.saved_data["call"] = *this;
    return made;
  }
  static std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& grads) {
    const Call& call = std::any_cast<const Call&>(context.saved_data["call"]);
    return call.program->gradients(context.saved_tensors(), grads, call.draws);
  }
};

std::vector<Tensor> DifferentiableProgram::run(std::span<const Tensor> arguments) const {
  Call call{shared_from_this(), trace::take_draws(forward_.graph())};
  std::vector<Tensor> inputs = differentiated_inputs(arguments, differentiation_);
  std::vector<bool> are_tensors(inputs.size(), true);
  return autograd::detail::run({.name = "compiled function",
                                .arguments = std::move(inputs),
                                .is_tensor = std::move(are_tensors),
                                .forward = [&](autograd::Context& context) { return call.forward(context, arguments); },
                                .backward = Call::backward});
}

std::vector<Tensor> DifferentiableProgram::gradients(std::vector<Tensor> saved, const std::vector<Tensor>& grads,
                                                     const trace::RunDraws& draws) const {
  if (grad_enabled())
    raise_as<GradError>("compile",
                        "the backward of a compiled function has no gradients of its own; call the function itself, or "
                        "compile one that calls backward");
  const ModeScope nobody_listens(0, kToldModes);
  for (size_t k = 0; k < differentiation_.results.size(); ++k) {
    const Tensor& given = grads[differentiation_.results[k]];
    const Layout& recorded = differentiation_.gradient_layouts[k];
    if (given.layout() == recorded) {
      saved.push_back(given);
    } else {
      saved.push_back(empty_strided(recorded.size_list(), recorded.stride_list(), given.options()));
      saved.back().copy_(given);
    }
  }
  return backward_.run(saved, draws);
}

}  // namespace lorry::compiler
