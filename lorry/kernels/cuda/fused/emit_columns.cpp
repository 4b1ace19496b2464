#include "lorry/kernels/cuda/fused/emit_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "lorry/kernels/cuda/fused/source_text.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kMostRows = 2;         ///< maximum rows that a thread takes at a time
constexpr int kBlocksEach = 4;       ///< blocks that share a multiprocessor: at most 64 registers per thread
constexpr int kLaneBits = 4;         ///< 16 threads across: runs of 256 bytes
constexpr int64_t kBlocks = 528;     ///< 4 on each multiprocessor of an H200, so that all run at once
constexpr int64_t kMostAdded = 256;  ///< rows that a thread adds up in its registers

constexpr const char* kKernel = R"(#include "lorry/formula/formulas.h"
#include "lorry/kernels/cuda/fused/column_kernel.h"

using namespace lorry;
using namespace lorry::kernels::cuda;

using Arguments = ColumnArguments<{operands}, {numbers}, {strides}>;
constexpr int kBlock = {block}, kWidth = {width}, kRows = {rows};
using Place = ColumnPlace<kBlock, kWidth, kRows>;

// Operands that are the same in all rows.
struct Kept {{
{kept}}};
struct Sums {{
{sums}}};

// Takes kTaken rows.
template <int kTaken>
__device__ __forceinline__ void take(const Arguments& a, const Place& place, int64_t row, const Kept& kept,
                                     Sums& sums) {{
{declarations}#pragma unroll
  for (int u = 0; u < kTaken; ++u) {{
    [[maybe_unused]] const int64_t at = row + u * place.down;
{loads}  }}
#pragma unroll
  for (int u = 0; u < kTaken; ++u) {{
    [[maybe_unused]] const int64_t at = row + u * place.down;
{results}#pragma unroll
    for (int e = 0; e < kWidth; ++e) {{
{steps}    }}
{stores}  }}
}}

extern "C" __global__ void __launch_bounds__(kBlock, {blocks}) {name}(const __grid_constant__ Arguments a) {{
  lorry::cuda::begin_programmatic();
  const Place place(a);
  Sums sums = {{}};
  if (place.column < a.n && place.first < a.rows) {{
    Kept kept;
{keeps}    int64_t row = place.first;
#pragma unroll 1
    for (; row + (kRows - 1) * place.down < a.rows; row += place.step) take<kRows>(a, place, row, kept, sums);
#pragma unroll 1
    for (; row < a.rows; row += place.down) take<1>(a, place, row, kept, sums);  // the last, partial turn
  }}
  double* const cells = static_cast<double*>(a.at[{cells}]);
  const int64_t each = a.parts * a.tiles * place.lanes * kWidth;
{leaves}  if (a.parts == 1) return;
  if (!is_last_block(static_cast<uint32_t*>(a.at[{cells} + 1]) + place.tile, static_cast<uint32_t>(a.parts))) return;
{adds}}}
)";

class ColumnEmitter {
 public:
  explicit ColumnEmitter(const MapCall& call) : call_(call) {}

  EmittedColumns emit() {
    for (size_t i = 0; i < call_.inputs.size(); ++i)
      if (call_.inputs[i].layout.rank >= 0) made_.inputs.push_back(i);
    choose_shape();
    std::vector<const char*> operators;
    for (const FusedStep& step : call_.steps) operators.push_back(operator_name(step));
    operators.push_back("sum");
    made_.name = kernel_name(operators);
    emit_inputs();
    steps_ += steps_text(call_, made_.numbers);
    emit_outputs();
    emit_sums();
    const size_t operands = made_.inputs.size() + call_.outputs.size();
    made_.source = fmt::format(
        kKernel, fmt::arg("operands", operands + call_.sums.size() + 2), fmt::arg("numbers", made_.numbers.size()),
        fmt::arg("strides", operands), fmt::arg("block", kMapBlock), fmt::arg("width", made_.width),
        fmt::arg("rows", rows_), fmt::arg("kept", kept_), fmt::arg("sums", sums_),
        fmt::arg("declarations", declarations_), fmt::arg("loads", loads_), fmt::arg("results", results_),
        fmt::arg("steps", steps_), fmt::arg("stores", stores_), fmt::arg("blocks", kBlocksEach),
        fmt::arg("name", made_.name), fmt::arg("keeps", keeps_), fmt::arg("leaves", leaves_), fmt::arg("adds", adds_),
        fmt::arg("cells", operands + call_.sums.size()));
    return std::move(made_);
  }

 private:
  /// A run fills 16 bytes of the widest operand.
  void choose_shape() {
    int64_t widest = 2, bytes = 0;
    const auto look = [&](const FusedOperand& x, bool is_read) {
      if (x.layout.strides[1] == 0) return;
      widest = std::max(widest, size_of(x.dtype));
      if (is_read && x.layout.strides[0] != 0) bytes += size_of(x.dtype);
    };
    for (const size_t i : made_.inputs) look(call_.inputs[i], true);
    for (const FusedOutput& x : call_.outputs) look(x.to, false);
    made_.width = static_cast<int>(kSummedRun / widest);
    const int formulas = static_cast<int>(call_.steps.size());
    while (made_.width > 1 && (made_.width * formulas > kMostFormulas || call_.sizes[1] % made_.width != 0))
      made_.width /= 2;
    rows_ = groups_of(call_.steps, made_.width, bytes, kMostRows);
    made_.tiling = tiles();
  }

  ColumnTiling tiles() const {
    ColumnTiling tiling;
    tiling.rows = call_.sizes[0], tiling.n = call_.sizes[1];
    const auto divided = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    const auto down = [&] { return int64_t{kMapBlock} >> tiling.lane_bits; };
    const int64_t runs = tiling.n / made_.width;
    const auto is_wider = [&] { return int64_t{1} << tiling.lane_bits < std::min<int64_t>(runs, kMapBlock); };
    // More threads across than usual if there are so few rows that some would have none.
    while (is_wider() && (tiling.lane_bits < kLaneBits || down() * rows_ > tiling.rows)) ++tiling.lane_bits;
    tiling.tiles = divided(runs, int64_t{1} << tiling.lane_bits);
    const int64_t turns = divided(tiling.rows, down() * rows_);
    const int64_t most = std::clamp<int64_t>(turns, 1, kMostAdded / rows_);  // turns of a block
    const int64_t each = std::clamp<int64_t>(divided(turns, std::max<int64_t>(1, kBlocks / tiling.tiles)), 1, most);
    tiling.parts = divided(turns, each);
    tiling.part_cells = tiling.tiles * made_.width << tiling.lane_bits;
    return tiling;
  }

  void emit_inputs() {
    for (size_t k = 0; k < made_.inputs.size(); ++k) {
      const size_t i = made_.inputs[k];
      const FusedOperand& x = call_.inputs[i];
      const char* const type = type_name(x.dtype);
      const bool runs = x.layout.strides[1] != 0, is_kept = x.layout.strides[0] == 0;
      const char* const along = runs ? "Along::run" : "Along::same";
      const char* const column = runs ? "place.column" : "0";
      if (is_kept) {
        kept_ += fmt::format("  Elements<{}, kWidth> x{};\n", type, k);
        keeps_ += fmt::format("    kept.x{0} = load<{1}, {2}, kWidth>(a.at[{0}], {3});\n", k, type, along, column);
      } else {
        declarations_ += fmt::format("  Elements<{}, kWidth> x{}[kTaken];\n", type, k);
        loads_ += fmt::format("    x{0}[u] = load<{1}, {2}, kWidth>(a.at[{0}], at * a.strides[{0}] + {3});\n", k, type,
                              along, column);
      }
      steps_ += fmt::format("      const Held<{0}> r{1} = element<{0}, {2}, kWidth>({3}x{4}{5}, e);\n", type, i, along,
                            is_kept ? "kept." : "", k, is_kept ? "" : "[u]");
    }
  }

  void emit_outputs() {
    for (size_t o = 0; o < call_.outputs.size(); ++o) {
      const FusedOutput& x = call_.outputs[o];
      const char* const type = type_name(x.to.dtype);
      results_ += fmt::format("    Held<{}> y{}[kWidth];\n", type, o);
      steps_ += fmt::format("      y{}[e] = r{};\n", o, x.from);
      stores_ += fmt::format("    store_columns<{0}, kWidth>(a.at[{1}], at * a.strides[{1}] + place.column, y{2});\n",
                             type, made_.inputs.size() + o, o);
    }
  }

  void emit_sums() {
    const size_t first = made_.inputs.size() + call_.outputs.size();
    for (size_t s = 0; s < call_.sums.size(); ++s) {
      const FusedSum& x = call_.sums[s];
      const char* const type = type_name(x.dtype);
      sums_ += fmt::format("  Held<{}> s{}[kWidth];\n", type_name(call_.dtype(x.from)), s);
      steps_ += fmt::format("      sums.s{}[e] += r{};\n", s, x.from);
      leaves_ +=
          fmt::format("  leave_sums<{}>(a.at[{}], cells + {} * each, sums.s{}, place, a);\n", type, first + s, s, s);
      adds_ += fmt::format("  add_parts<{}>(a.at[{}], cells + {} * each, place, a);\n", type, first + s, s);
    }
  }

  const MapCall& call_;
  int rows_ = 1;
  EmittedColumns made_;
  std::string kept_, keeps_, sums_, declarations_, loads_, results_, steps_, stores_, leaves_, adds_;
};

}  // namespace

EmittedColumns emit_columns(const MapCall& call) { return ColumnEmitter(call).emit(); }

}  // namespace lorry::kernels::cuda
