#include "lorry/compile/columns.h"

#include "lorry/kernels/backend.h"

namespace lorry::compiler {
namespace {

using namespace trace;

/// More columns than this would be too many for the partial sums of a map.
constexpr int64_t kMostColumns = 1 << 20;

}  // namespace

std::optional<RowDomain> summed_rows(const Graph& graph, const Node& node, std::string& why) {
  if (node.op != Op::sum || node.form != Node::pure || node.results[0] < 0) return std::nullopt;
  const Argument& x = node.arguments[0];
  const auto* dims = std::get_if<Dims>(&node.attributes[0]);
  if (x.kind != Argument::value || dims == nullptr) return std::nullopt;
  const kernels::FusedKernels* fused = kernels::backend(x.device).fused;
  if (fused == nullptr || !fused->column_sums) return std::nullopt;
  const auto refuse = [&](const char* reason) {
    why = reason;
    return std::nullopt;
  };
  const Value &read = graph.values[static_cast<size_t>(x.value_index)],
              &result = graph.values[static_cast<size_t>(node.results[0])];
  const Layout& layout = x.window.layout;
  RowDomain rows{.rows = 1, .n = 1};
  for (int d = 0; d < layout.rank; ++d) {
    if (dims->contains(d) && layout.sizes[d] != 1 && rows.n > 1) return refuse("it keeps dimensions before others");
    (dims->contains(d) ? rows.rows : rows.n) *= layout.sizes[d];
  }
  if (size_of(x.dtype) != 2 || !is_floating(x.dtype) || !is_floating(result.dtype))
    return refuse("its elements are not floats of 16 bits, and its bits are kept");
  if (rows.n == 1 || rows.rows == 0) return refuse("it keeps no dimensions");
  if (rows.n > kMostColumns) return refuse("it has too many results");
  if (x.window.offset != 0 || !layout.is_contiguous() || !read.layout.is_contiguous() ||
      layout.numel() != read.layout.numel())
    return refuse("it reads only a part of a result, or in another order");
  if (!result.layout.is_contiguous()) return refuse("its results are not contiguous");
  return rows;
}

std::optional<Layout> in_rows(const Layout& layout, DType dtype, const RowDomain& rows, bool is_written) {
  int split = layout.rank;
  for (int64_t n = 1; n < rows.n && split > 0;) n *= layout.sizes[--split];
  int64_t n = 1;
  for (int d = split; d < layout.rank; ++d) n *= layout.sizes[d];
  if (n != rows.n) {
    if (!layout.is_contiguous()) return std::nullopt;  // rows that consist of several of its own
    return in_rows(Layout::contiguous({rows.rows, rows.n}), dtype, rows, is_written);
  }
  const std::optional<int64_t> across = merged_stride(layout, 0, split, 0),
                               along = merged_stride(layout, split, layout.rank, 0);
  if (!across || !along || (*along != 1 && (*along != 0 || is_written))) return std::nullopt;
  const int64_t run = kernels::kSummedRun / size_of(dtype);
  if (*along == 1 && (rows.n % run != 0 || *across % run != 0)) return std::nullopt;
  return Layout::strided({rows.rows, rows.n}, {*across, *along});
}

}  // namespace lorry::compiler
