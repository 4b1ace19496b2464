#include "lorry/kernels/cuda/fused/emit_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "lorry/kernels/cuda/fused/source_text.h"
#include "lorry/kernels/cuda/rowwise/row_steps.h"

namespace lorry::kernels::cuda {
namespace {

constexpr const char* kKernel = R"(#include "lorry/formula/formulas.h"
#include "lorry/kernels/cuda/fused/row_kernel.h"

using namespace lorry;
using namespace lorry::kernels::cuda;

using Arguments = RowArguments<{operands}, {numbers}>;
constexpr int kBlock = {block}, kRuns = {runs}, kLength = {length};

extern "C" __global__ void __launch_bounds__(kBlock) {name}(const __grid_constant__ Arguments a) {{
  lorry::cuda::begin_programmatic();
  const Team team(static_cast<int>(a.lanes));
  const bool live = team.row < a.rows;
  const int body = live ? static_cast<int>(a.n / kLength) : 0;
{loads}{steps}{stores}}}
)";

class RowEmitter {
 public:
  explicit RowEmitter(const RowCall& call) : call_(call) {
    for (const RowInput& x : call.inputs) registers_.push_back({x.dtype, x.extent});
    for (const RowStep& step : call.steps) registers_.insert(registers_.end(), step.result, step.result + step.results);
    for (const RowStep& step : call.steps)
      if (step.kind != RowStep::map) held_ = registers_[static_cast<size_t>(step.in[0])].dtype;
  }

  EmittedRows emit() {
    std::string why;
    std::vector<const char*> operators;
    for (const RowStep& step : call_.steps) {
      operators.push_back(name_of(step));
      if (step.kind != RowStep::map) made_.plan = *plan_of(step, held_, call_.n, why);
    }
    made_.name = kernel_name(operators);
    const std::string loads = emit_loads(), steps = emit_steps(), stores = emit_stores();
    const int block = made_.plan.block();
    made_.source =
        fmt::format(kKernel, fmt::arg("operands", made_.access_masks.size()), fmt::arg("numbers", made_.numbers.size()),
                    fmt::arg("block", std::bit_ceil(static_cast<unsigned>(block))), fmt::arg("runs", made_.plan.runs),
                    fmt::arg("length", length()), fmt::arg("name", made_.name), fmt::arg("loads", loads),
                    fmt::arg("steps", steps), fmt::arg("stores", stores));
    return std::move(made_);
  }

 private:
  static const char* name_of(const RowStep& step) {
    switch (step.kind) {
      case RowStep::map:
        return operator_name(step.pointwise);
      case RowStep::fold:
        return step.reduction.name;
      case RowStep::softmax:
        return step.log ? "log_softmax" : "softmax";
      case RowStep::softmax_backward:
        return step.log ? "log_softmax_backward" : "softmax_backward";
      default:
        return step.centred ? "layer_norm" : "rms_norm";
    }
  }
  int64_t length() const { return 16 / size_of(held_); }
  const RowStep::Result& of(int16_t r) const { return registers_[static_cast<size_t>(r)]; }

  /// Loads the inputs in memory into registers.
  std::string emit_loads() {
    std::string text;
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      const RowInput& x = call_.inputs[i];
      if (x.is_number) continue;
      const size_t k = made_.inputs.size();
      made_.inputs.push_back(i);
      add_access(x.dtype, x.extent);
      const char* const type = type_name(x.dtype);
      if (x.extent == Extent::wide || x.extent == Extent::column)
        text += fmt::format(
            "  [[maybe_unused]] const auto r{} = load_wide<{}, kRuns, kLength>(a.at[{}], {}, body, team);\n", i, type,
            k, x.extent == Extent::wide ? "team.row * a.n" : "0");
      else
        text += fmt::format(
            "  [[maybe_unused]] const Held<{0}> r{1} = live ? hold<{0}>(static_cast<const "
            "Stored<{0}>*>(a.at[{2}])[{3}])"
            " : Held<{0}>(0);\n",
            type, i, k, x.extent == Extent::narrow ? "team.row" : "0");
    }
    return text;
  }

  void add_access(DType dtype, Extent extent) {
    const bool whole = extent == Extent::wide || extent == Extent::column;
    made_.access_masks.push_back(whole ? static_cast<uint64_t>(std::min<int64_t>(16, length() * size_of(dtype)) - 1)
                                       : 0);
  }

  std::string emit_steps() {
    std::string text;
    auto r = static_cast<int16_t>(call_.inputs.size());
    for (size_t s = 0; s < call_.steps.size(); ++s) {
      const RowStep& step = call_.steps[s];
      text += step.kind == RowStep::map    ? map(step, r)
              : step.kind == RowStep::fold ? fold(step, static_cast<int>(s), r)
                                           : row_step(step, static_cast<int>(s), r);
      r = static_cast<int16_t>(r + step.results);
    }
    return text;
  }

  std::string map(const RowStep& step, int16_t r) {
    const bool wide = step.result[0].extent == Extent::wide;
    const auto operand = [&](int k, std::optional<DType> as) -> SourceOperand {
      const int16_t in = step.pointwise.in[k];
      if (is_number(in)) {
        const DType type = as.value_or(of(in).dtype);
        return {number({in, -1, type}), type_name(type)};
      }
      const Extent extent = of(in).extent;
      const bool each = extent == Extent::wide || extent == Extent::column;
      return {fmt::format("r{}{}", in, each ? ".at[k][e]" : ""), type_name(of(in).dtype)};
    };
    const std::string value = step_value(step.pointwise, operand);
    const char* const type = type_name(step.result[0].dtype);
    if (!wide) return fmt::format("  const Held<{}> r{} = {};\n", type, r, value);
    return fmt::format(
        "  Wide<{}, kRuns, kLength> r{};\n#pragma unroll\n  for (int k = 0; k < kRuns; ++k)\n#pragma unroll\n"
        "    for (int e = 0; e < kLength; ++e) r{}.at[k][e] = {};\n",
        type, r, r, value);
  }

  /// The text of a fold step. Its enumerators are numbers, so that they are listed in formula/fold.h alone.
  std::string fold(const RowStep& step, int s, int16_t r) {
    const char *const type = type_name(held_), *const out = type_name(step.result[0].dtype);
    const formula::FoldRow& row = step.reduction;
    const std::string parameter = row.finish == formula::Finish::none ? "0" : number({-1, s, kF64});
    return fmt::format(
        "  __shared__ FoldCell<{4}, Accumulate<{0}>> slots{1}[kWarp];\n"
        "  [[maybe_unused]] const Held<{2}> r{3} = folded<{0}, {4}, {2}>(r{5}, {6}, {7}, {8}, body, team, slots{1});\n",
        type, s, out, r, fmt::format("formula::Fold{{{}}}", static_cast<int>(row.fold)), step.in[0],
        fmt::format("formula::Map{{{}}}", static_cast<int>(row.map)),
        fmt::format("formula::Finish{{{}}}", static_cast<int>(row.finish)), parameter);
  }

  /// The text of a step that is neither a map nor a reduction: pads the row, calls the operator's step, and rounds.
  std::string row_step(const RowStep& step, int s, int16_t r) {
    const char* const type = type_name(held_);
    const auto held = [&](int k, const char* pad) {
      return fmt::format("held_row<{}, kRuns>(r{}, body, team, {})", type, step.in[k], pad);
    };
    std::string text = fmt::format("  __shared__ Accumulate<{}> slots{}[3 * kWarp];\n", type, s);
    const std::string log = step.log ? "true" : "false",
                      result = fmt::format("  [[maybe_unused]] const auto r{} = ", r);
    if (step.kind == RowStep::softmax) {
      text += fmt::format("  auto held{} = {};\n", s, held(0, fmt::format("-kInfinity<Accumulate<{}>>", type).c_str()));
      text += fmt::format("  softmax_row<{}, {}>(held{}, team, slots{});\n", type, log, s, s);
    } else if (step.kind == RowStep::softmax_backward) {
      text += fmt::format("  auto held{} = {};\n", s, held(0, "0"));
      text += fmt::format("  softmax_backward_row(held{}, {}, {}, team, slots{});\n", s, held(1, "0"), log, s);
    } else {
      const std::string eps = number({-1, s, kF64}), one_nth = number({-1, -1, kF64});
      const char* const centred = step.centred ? "true" : "false";
      text += fmt::format("  auto held{} = {};\n", s, held(0, "0"));
      text += fmt::format(
          "  const auto row{0} = statistics_of(held{0}, whole_row<{1}>(body, team), {2}, {3}, {4}, team, "
          "slots{0});\n",
          s, type, centred, eps, one_nth);
      text += fmt::format("  scale_and_shift<{}, {}, {}>(held{}, row{}, {}, {});\n", type, step.in[1] >= 0,
                          step.in[2] >= 0, s, s, wide_or_none(step.in[1]), wide_or_none(step.in[2]));
      if (step.results > 1) text += fmt::format("  [[maybe_unused]] const auto r{} = row{}.rstd;\n", r + 1, s);
      if (step.results > 2) text += fmt::format("  [[maybe_unused]] const auto r{} = row{}.mean;\n", r + 2, s);
    }
    return text + result + fmt::format("rounded(held{});\n", s);
  }
  std::string wide_or_none(int16_t r) const {
    return r >= 0 ? fmt::format("r{}", r) : fmt::format("Wide<{}, kRuns, kLength>()", type_name(held_));
  }

  /// In-place outputs with one element per row are written after every thread of the team has read the old element.
  std::string emit_stores() {
    std::string text;
    const bool waits = std::ranges::any_of(
        call_.outputs, [&](const RowOutput& x) { return x.may_be_an_input && of(x.from).extent == Extent::narrow; });
    if (waits) text += "  __syncthreads();\n";
    for (const RowOutput& x : call_.outputs) {
      const size_t k = made_.access_masks.size();
      const auto& [dtype, extent] = of(x.from);
      add_access(dtype, extent);
      if (extent == Extent::wide)
        text += fmt::format("  store_wide(a.at[{}], team.row * a.n, body, team, r{});\n", k, x.from);
      else
        text += fmt::format(
            "  if (live && team.lane == 0) static_cast<Stored<{0}>*>(a.at[{1}])[team.row] = "
            "static_cast<Stored<{0}>>(r{2});\n",
            type_name(dtype), k, x.from);
    }
    return text;
  }

  bool is_number(int16_t r) const {
    const auto i = static_cast<size_t>(r);
    return i < call_.inputs.size() && call_.inputs[i].is_number;
  }
  std::string number(const EmittedRows::Number& x) {
    auto found = std::ranges::find_if(
        made_.numbers, [&](const auto& n) { return n.input == x.input && n.step == x.step && n.as == x.as; });
    if (found == made_.numbers.end()) found = made_.numbers.insert(found, x);
    return fmt::format("number<{}>(a.numbers[{}])", type_name(x.as), found - made_.numbers.begin());
  }

  const RowCall& call_;
  std::vector<RowStep::Result> registers_;
  DType held_ = kF32;  ///< dtype of the rows that steps work on
  EmittedRows made_;
};

}  // namespace

std::optional<RowPlan> plan_of(const RowStep& step, DType dtype, int64_t n, std::string& why) {
  if (!is_floating(dtype)) return why = "its elements are no floats", std::nullopt;
  if (n * size_of(dtype) % 16 != 0) return why = "its rows are no whole runs of 16 bytes", std::nullopt;
  std::optional<RowPlan> plan;
  visit_floating(dtype, [&]<class T>(Type<T>) {
    const bool forward = step.kind == RowStep::softmax, norm = step.kind == RowStep::norm;
    if (step.kind == RowStep::fold) {
      // fold_row has neither f64 for products nor powers.
      if (step.reduction.fold == formula::Fold::prod || step.reduction.map == formula::Map::power) return;
      plan = plan_fold<T>(n);
      return;
    }
    RowPlan p = forward ? plan_softmax<T>(n, false)
                : norm  ? plan_norm<T>(n, false)
                        : plan_rows(n, kRun<T>, false, kUsual<T>);
    const bool few = norm && p.lanes <= kTeamBlock;
    if (!few) p.runs = static_cast<int>(std::bit_ceil(static_cast<unsigned>(p.runs)));
    const int most = forward ? kMostSoftmaxRuns<T> : few ? kNormRuns<T> : norm ? kMost<T> : kUsual<T>;
    if (p.runs <= most) plan = p;
  });
  if (!plan) why = "its rows are longer than registers hold";
  return plan;
}

EmittedRows emit_rows(const RowCall& call) { return RowEmitter(call).emit(); }

}  // namespace lorry::kernels::cuda
