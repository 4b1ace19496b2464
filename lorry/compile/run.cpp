#include "lorry/compile/run.h"

#include <array>
#include <cstddef>
#include <memory_resource>
#include <vector>

#include "lorry/compile/columns.h"
#include "lorry/compile/epilogue.h"
#include "lorry/kernels/backend.h"
#include "lorry/kernels/recorded_calls.h"

namespace lorry::compiler {
namespace {

using namespace trace;

kernels::FusedNumber number(const Scalar& x) {
  kernels::FusedNumber number;
  if (x.is_floating())
    number.real = x.to<double>();
  else
    number.whole = x.to<int64_t>();
  return number;
}

DType number_dtype(const Scalar& x) { return x.is_floating() ? kF64 : kI64; }

std::shared_ptr<const kernels::FusedKernel> make_map(const Graph& graph, const Unit& unit,
                                                     std::span<const int> in_input) {
  const bool has_sums = !unit.sum_registers.empty();
  const auto laid_out = [&](const Layout& layout, DType dtype, bool is_written) {
    return has_sums ? *in_rows(layout, dtype, unit.rows, is_written) : layout;
  };
  std::vector<kernels::FusedOperand> inputs;
  for (const Argument& x : unit.inputs) {
    kernels::FusedOperand& operand = inputs.emplace_back();
    if (x.kind == Argument::number) {
      operand.layout.rank = -1;
      operand.dtype = number_dtype(x.scalar);
      operand.number = number(x.scalar);
    } else {
      operand = {laid_out(expand(x.window.layout, unit.sizes), x.dtype, false), x.dtype};
    }
  }
  std::vector<kernels::FusedOutput> outputs;
  std::vector<kernels::FusedSum> sums;
  for (size_t o = 0; o < unit.outputs.size(); ++o) {
    const auto v = static_cast<size_t>(unit.outputs[o]);
    const Value& value = graph.values[v];
    if (const size_t stored = unit.output_registers.size(); o >= stored)
      sums.push_back({unit.sum_registers[o - stored], value.dtype});
    else
      outputs.push_back(
          {{laid_out(value.layout, value.dtype, true), value.dtype}, unit.output_registers[o], in_input[v] >= 0});
  }
  const Dims sizes = has_sums ? Dims{unit.rows.rows, unit.rows.n} : unit.sizes;
  const Device device = device_of(graph, unit);
  return kernels::backend(device).fused->make({sizes, inputs, unit.steps, outputs, sums}, device);
}

std::shared_ptr<const kernels::FusedKernel> make_rows(const Graph& graph, const Unit& unit,
                                                      std::span<const int> in_input) {
  std::vector<kernels::RowInput> inputs;
  for (const Argument& x : unit.inputs) {
    kernels::RowInput& input = inputs.emplace_back();
    input.extent = unit.extents[inputs.size() - 1];
    input.is_number = x.kind == Argument::number;
    input.dtype = input.is_number ? number_dtype(x.scalar) : x.dtype;
    if (input.is_number) input.number = number(x.scalar);
  }
  std::vector<kernels::RowOutput> outputs;
  for (size_t o = 0; o < unit.outputs.size(); ++o)
    outputs.push_back({unit.output_registers[o], in_input[static_cast<size_t>(unit.outputs[o])] >= 0});
  const Device device = device_of(graph, unit);
  return kernels::backend(device).fused->make_rows({unit.rows.rows, unit.rows.n, inputs, unit.row_steps, outputs},
                                                   device);
}

}  // namespace

Device device_of(const Graph& graph, const Unit& unit) {
  return graph.values[static_cast<size_t>(unit.outputs[0])].device;
}

std::shared_ptr<const kernels::FusedKernel> make_kernel(const Graph& graph, const Unit& unit,
                                                        std::span<const int> in_input) {
  if (unit.kind == Unit::product) return make_product(graph, unit);
  return unit.kind == Unit::map ? make_map(graph, unit, in_input) : make_rows(graph, unit, in_input);
}

bool run_fused(const Unit& unit, const std::shared_ptr<const kernels::FusedKernel>& kernel, Device device,
               Evaluation& evaluation) {
  std::array<std::byte, 1024> buffer;  // enough for small units
  std::pmr::monotonic_buffer_resource memory(buffer.data(), buffer.size());
  std::pmr::vector<void*> addresses(&memory);
  addresses.reserve(unit.inputs.size() + unit.outputs.size());
  std::pmr::vector<Tensor> made(&memory);  // uninitialised
  for (const Argument& x : unit.inputs)
    if (x.kind == Argument::value)
      addresses.push_back(evaluation.address(x));
    else
      addresses.push_back(x.kind == Argument::number ? nullptr : made.emplace_back(evaluation.read(x)).data_ptr());
  for (const int32_t v : unit.outputs) addresses.push_back(evaluation.make(v).data_ptr());
  const std::span<void* const> all = addresses;
  const size_t inputs = unit.inputs.size();
  if (kernels::run(kernel, all.first(inputs), all.subspan(inputs), current_stream(device))) return true;
  for (const int32_t v : unit.outputs) evaluation.drop(v);
  return false;
}

}  // namespace lorry::compiler
