#include "lorry/kernels/cuda/fused/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lorry/kernels/cuda/common/strided_indexer.h"
#include "lorry/kernels/cuda/fused/source_text.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kMostGroups = 4;  ///< maximum groups per thread

constexpr const char* kKernel = R"({includes}
using namespace lorry;
using namespace lorry::kernels::cuda;

using Arguments = MapArguments<{operands}, {numbers}, {layouts}, {rank}, {wide}>;
constexpr int kBlock = {block}, kWidth = {width}, kGroups = {groups}, kTile = kBlock * kWidth * kGroups;

// Takes groups of kLength elements, `apart` elements apart; kInside: none of them is beyond the last element.
template <int kLength, bool kInside>
__device__ __forceinline__ void run(const Arguments& a, int64_t first, int apart) {{
  int64_t at[kGroups][{layouts}];
{declarations}#pragma unroll
  for (int u = 0; u < kGroups; ++u) {{
    if (!kInside && first + u * apart >= a.elements) continue;
    offsets_of(a, first + u * apart, at[u]);
{loads}  }}
#pragma unroll
  for (int u = 0; u < kGroups; ++u) {{
    if (!kInside && first + u * apart >= a.elements) continue;
{results}#pragma unroll
    for (int e = 0; e < kLength; ++e) {{
{steps}    }}
{stores}  }}
}}

extern "C" __global__ void __launch_bounds__(kBlock) {name}(const __grid_constant__ Arguments a) {{
  lorry::cuda::begin_programmatic();
  const int64_t tile = int64_t{{blockIdx.x}} * kTile;
  if (kWidth > 1 && a.vectors && tile + kTile <= a.elements) {{
    run<kWidth, true>(a, tile + threadIdx.x * kWidth, kBlock * kWidth);
  }} else {{
#pragma unroll 1
    for (int part = 0; part < kWidth; ++part)
      run<1, false>(a, tile + part * (kBlock * kGroups) + threadIdx.x, kBlock);
  }}
}}
)";

class MapEmitter {
 public:
  MapEmitter(const MapCall& call, const Walk& walk) : call_(call), it_(walk.iteration), walk_(walk) {}

  EmittedMap emit() {
    made_.wide = !fits_narrow(it_);
    for (size_t i = 0; i < call_.inputs.size(); ++i)
      if (walk_.of_input[i] >= 0) made_.inputs.push_back(i);
    choose_shape();
    std::vector<const char*> operators;
    for (const FusedStep& step : call_.steps) operators.push_back(operator_name(step));
    made_.name = kernel_name(operators);
    const std::string steps = emit_steps();  // this also collects the numbers
    made_.source = fmt::format(
        kKernel, fmt::arg("includes", includes()), fmt::arg("operands", made_.inputs.size() + call_.outputs.size()),
        fmt::arg("numbers", made_.numbers.size()), fmt::arg("layouts", it_.operands), fmt::arg("rank", it_.rank),
        fmt::arg("wide", made_.wide), fmt::arg("block", kMapBlock), fmt::arg("width", made_.width),
        fmt::arg("groups", made_.groups), fmt::arg("declarations", declarations_), fmt::arg("loads", loads_),
        fmt::arg("results", results_), fmt::arg("steps", steps), fmt::arg("stores", stores_),
        fmt::arg("name", made_.name));
    return std::move(made_);
  }

 private:
  const char* along(int layout) const {
    const int64_t stride = it_.strides[layout][0];
    return stride == 1 ? "Along::run" : stride == 0 ? "Along::same" : "Along::strided";
  }

  /// A group fills 16 bytes of the widest operand, if all operands are contiguous or repeated along it.
  void choose_shape() {
    int widest = 1, bytes = 0;
    bool runs = true;
    const auto look = [&](DType dtype, int layout, bool is_read) {
      const int64_t stride = it_.strides[layout][0];
      runs &= stride == 1 || (stride == 0 && is_read);
      widest = std::max(widest, static_cast<int>(size_of(dtype)));
      if (is_read && stride != 0) bytes += static_cast<int>(size_of(dtype));
    };
    for (const size_t i : made_.inputs) look(call_.inputs[i].dtype, walk_.of_input[i], true);
    for (size_t o = 0; o < call_.outputs.size(); ++o) look(call_.outputs[o].to.dtype, walk_.of_output[o], false);
    made_.width = runs ? 16 / widest : 1;
    const int formulas = static_cast<int>(call_.steps.size());
    while (made_.width > 1 && made_.width * formulas > kMostFormulas) made_.width /= 2;
    made_.groups = groups_of(call_.steps, made_.width, bytes, kMostGroups);
  }

  static std::string includes() {
    return "#include \"lorry/formula/formulas.h\"\n#include \"lorry/kernels/cuda/fused/map_kernel.h\"\n";
  }

  std::string emit_steps() {
    std::string text;
    for (size_t k = 0; k < made_.inputs.size(); ++k) {
      const size_t i = made_.inputs[k];
      const char* const type = type_name(call_.inputs[i].dtype);
      const int layout = walk_.of_input[i];
      declarations_ += fmt::format("  Elements<{}, kLength> x{}[kGroups];\n", type, k);
      loads_ += fmt::format("    x{0}[u] = load<{1}, {2}, kLength>(a.at[{0}], at[u][{3}]);\n", k, type, along(layout),
                            layout);
      text += fmt::format("      const Held<{0}> r{1} = element<{0}, {2}, kLength>(x{3}[u], e);\n", type, i,
                          along(layout), k);
    }
    text += steps_text(call_, made_.numbers);
    for (size_t o = 0; o < call_.outputs.size(); ++o) {
      const FusedOutput& x = call_.outputs[o];
      const size_t k = made_.inputs.size() + o;
      const int layout = walk_.of_output[o];
      const char* const type = type_name(x.to.dtype);
      results_ += fmt::format("    Held<{}> y{}[kLength];\n", type, o);
      text += fmt::format("      y{}[e] = r{};\n", o, x.from);
      stores_ += fmt::format("    store<{}, kLength>(a.at[{}], at[u][{}], y{});\n", type, k, layout, o);
    }
    return text;
  }

  const MapCall& call_;
  const Iteration& it_;
  const Walk& walk_;
  EmittedMap made_;
  std::string declarations_, loads_, results_, stores_;
};

}  // namespace

std::string steps_text(const MapCall& call, std::vector<MapNumber>& numbers) {
  // The text for a register; for a number, in the type of the computation, else in its own type.
  const auto read = [&](int16_t r, std::optional<DType> compute) -> SourceOperand {
    const auto i = static_cast<size_t>(r);
    if (i >= call.inputs.size() || call.inputs[i].layout.rank >= 0)
      return {fmt::format("r{}", r), type_name(call.dtype(r))};
    const DType as = compute.value_or(call.inputs[i].dtype);
    auto found = std::ranges::find_if(numbers, [&](const MapNumber& n) { return n.input == i && n.as == as; });
    if (found == numbers.end()) found = numbers.insert(found, {i, as});
    const char* const type = type_name(as);
    return {fmt::format("number<{}>(a.numbers[{}])", type, found - numbers.begin()), type};
  };
  std::string text;
  for (size_t s = 0; s < call.steps.size(); ++s) {
    const FusedStep& step = call.steps[s];
    const auto operand = [&](int k, std::optional<DType> as) { return read(step.in[k], as); };
    text += fmt::format("      const Held<{}> r{} = {};\n", type_name(step.dtype), call.inputs.size() + s,
                        step_value(step, operand));
  }
  return text;
}

EmittedMap emit_map(const MapCall& call, const Walk& walk) { return MapEmitter(call, walk).emit(); }

}  // namespace lorry::kernels::cuda
