#include "lorry/compile/run.h"

#include "lorry/kernels/backend.h"

namespace lorry::compiler {
namespace {

using namespace trace;

/// A number as kernels read it.
struct Number {
  union {
    double real;
    int64_t whole;
  };
  explicit Number(const Scalar& x) {
    if (x.is_floating())
      real = x.to<double>();
    else
      whole = x.to<int64_t>();
  }
};

/// The inputs of a unit in memory.
class Inputs {
 public:
  Inputs(const Unit& unit, Evaluation& evaluation) {
    numbers_.reserve(unit.inputs.size());
    tensors_.reserve(unit.inputs.size());
    for (const Argument& x : unit.inputs) {
      kernels::FusedOperand& operand = operands_.emplace_back();
      if (x.kind == Argument::number) {
        operand.data = &numbers_.emplace_back(x.scalar);
        operand.layout.rank = -1;
        operand.dtype = x.scalar.is_floating() ? kF64 : kI64;
        continue;
      }
      const Tensor& from = tensors_.emplace_back(evaluation.read(x));
      operand = {from.data_ptr(), from.layout(), x.dtype};
    }
  }
  std::span<kernels::FusedOperand> operands() { return operands_; }

 private:
  std::vector<Number> numbers_;
  std::vector<Tensor> tensors_;
  std::vector<kernels::FusedOperand> operands_;
};

void run_map(const Unit& unit, Evaluation& evaluation, const kernels::FusedKernels& kernels, Stream stream) {
  Inputs inputs(unit, evaluation);
  for (kernels::FusedOperand& x : inputs.operands())
    if (x.layout.rank >= 0) x.layout = expand(x.layout, unit.sizes);
  std::vector<kernels::FusedOutput> outputs;
  for (size_t o = 0; o < unit.outputs.size(); ++o) {
    const Tensor& to = evaluation.make(unit.outputs[o]);
    outputs.push_back({{to.data_ptr(), to.layout(), to.dtype()}, unit.output_registers[o]});
  }
  kernels.run({unit.sizes, inputs.operands(), unit.steps, outputs}, stream);
}

void run_rows(const Unit& unit, Evaluation& evaluation, const kernels::FusedKernels& kernels, Stream stream) {
  Inputs operands(unit, evaluation);
  std::vector<kernels::RowInput> inputs;
  for (const kernels::FusedOperand& x : operands.operands())
    inputs.push_back({x.data, x.dtype, unit.extents[inputs.size()]});
  std::vector<kernels::RowOutput> outputs;
  for (size_t o = 0; o < unit.outputs.size(); ++o)
    outputs.push_back({evaluation.make(unit.outputs[o]).data_ptr(), unit.output_registers[o]});
  kernels.run_rows({unit.rows.rows, unit.rows.n, inputs, unit.row_steps, outputs}, stream);
}

}  // namespace

void run_fused(const Graph& graph, const Unit& unit, Evaluation& evaluation) {
  const Device device = graph.values[static_cast<size_t>(unit.outputs[0])].device;
  const kernels::FusedKernels& kernels = *kernels::backend(device).fused;
  const auto run = unit.kind == Unit::map ? run_map : run_rows;
  run(unit, evaluation, kernels, current_stream(device));
}

}  // namespace lorry::compiler
