#include "lorry/compile/joined_rows.h"

#include <algorithm>
#include <cstdlib>

#include "lorry/compile/neighbours.h"
#include "lorry/ops/internal.h"

namespace lorry::compiler {
namespace {

using namespace trace;

bool is_norm(const Node& node) { return node.op == Op::layer_norm || node.op == Op::rms_norm; }

class Finder {
 public:
  explicit Finder(const Neighbours& units) : units_(units) {}

  std::vector<std::vector<int32_t>> run() {
    for (int32_t n = 0; n < static_cast<int32_t>(units_.graph().nodes.size()); ++n) {
      if (!is_product(units_.node(n))) continue;
      std::vector<int32_t> nodes;
      if (const int32_t norm = norm_before(n); norm >= 0) nodes.push_back(norm);
      nodes.push_back(n);
      if (const int32_t after = operator_after(n); after >= 0)
        nodes.push_back(after);
      else if (const int32_t write = write_after(n); write >= 0)
        nodes.push_back(write);
      if (nodes.size() == 1 || units_.host_is_called_between(nodes) || !units_.may_join(nodes)) continue;
      for (const int32_t node : nodes) taken_[static_cast<size_t>(node)] = true;
      found_.push_back(std::move(nodes));
    }
    return std::move(found_);
  }

 private:
  bool is_product(const Node& node) const {
    if (node.op != Op::linear_rows || node.form != Node::pure || node.results[0] < 0) return false;
    const Value& result = units_.value(node.results[0]);
    return !attribute<bool>(node, 0) && result.layout.is_contiguous() &&
           linear_rows_limits(result.dtype, result.device).has_value();
  }
  kernels::LinearRowsLimits limits(int32_t n) const {
    const Value& result = units_.value(units_.result(n));
    return *linear_rows_limits(result.dtype, result.device);
  }
  /// Whether a product has so few rows that norms and additions go with it. Else fuse() joins these with each other.
  bool has_few_rows(int32_t n) const {
    const Layout& result = units_.value(units_.result(n)).layout;
    return result.numel() <= limits(n).few_rows * result.sizes[result.rank - 1];
  }
  bool is_read_once(int32_t v) const { return units_.readers(v).size() == 1 && !units_.outlives(v); }
  bool is_unread(int32_t v) const { return v < 0 || (units_.readers(v).empty() && !units_.outlives(v)); }
  bool is_taken(int32_t n) const { return taken_[static_cast<size_t>(n)]; }

  /// The norm of the last dimension that makes the rows, for this product alone; -1 if there is none.
  int32_t norm_before(int32_t n) const {
    const Argument& x = units_.node(n).arguments[0];
    if (x.kind != Argument::value || !has_few_rows(n)) return -1;
    const int32_t maker = units_.value(x.value_index).node;
    if (maker < 0 || is_taken(maker) || !units_.reads_whole(x, x.value_index) || !is_read_once(x.value_index))
      return -1;
    const Node& norm = units_.node(maker);
    if (!is_norm(norm) || norm.form != Node::pure || norm.results[0] != x.value_index ||
        attribute<int64_t>(norm, 0) != 1)
      return -1;
    const Layout& rows = x.window.layout;
    const int64_t length = rows.sizes[rows.rank - 1];
    if (length > limits(n).longest_norm || length % limits(n).norm_run != 0) return -1;
    const bool is_alone =
        std::all_of(norm.results.begin() + 1, norm.results.end(), [&](int32_t v) { return is_unread(v); });
    return is_alone ? maker : -1;
  }

  /// The only reader of a product, where it is GELU or adds another value; -1 if it is not.
  int32_t operator_after(int32_t n) const {
    const int32_t v = units_.result(n);
    if (!is_read_once(v)) return -1;
    const int32_t after = units_.readers(v)[0];
    const Node& node = units_.node(after);
    if (is_taken(after) || node.form != Node::pure || node.results[0] < 0) return -1;
    const Value &x = units_.value(v), &result = units_.value(node.results[0]);
    if (result.layout != x.layout || result.dtype != x.dtype) return -1;
    const bool fits = node.op == Op::gelu_tanh
                          ? units_.reads_whole(node.arguments[0], v)
                          : node.op == Op::add && has_few_rows(n) && units_.addend(node, v) != nullptr;
    return fits ? after : -1;
  }

  /// The node that stores columns of a product in a cache; -1 if there is none.
  int32_t write_after(int32_t n) const {
    const int32_t v = units_.result(n);
    if (!has_few_rows(n) || units_.value(v).layout.rank != 2) return -1;
    for (const int32_t after : units_.readers(v)) {
      const Node& node = units_.node(after);
      if (node.op != Op::paged_write || node.form != Node::in_place || is_taken(after)) continue;
      const auto is_contiguous = [](const Argument& x) { return x.window.layout.is_contiguous(); };
      const Argument &keys = node.arguments[2], &values = node.arguments[3];
      if (are_columns(keys, v) && are_columns(values, v) &&
          std::abs(keys.window.offset - values.window.offset) >= width_of(keys) &&
          std::all_of(node.arguments.begin() + 4, node.arguments.end(), is_contiguous))
        return after;
    }
    return -1;
  }
  /// The columns of heads [rows, heads, d].
  static int64_t width_of(const Argument& heads) { return heads.window.layout.sizes[1] * heads.window.layout.sizes[2]; }
  /// Whether heads [rows, heads, d] are neighbouring columns of a product.
  bool are_columns(const Argument& x, int32_t v) const {
    const Layout &heads = x.window.layout, &product = units_.value(v).layout;
    if (x.kind != Argument::value || x.value_index != v || heads.rank != 3) return false;
    const int64_t width = width_of(x), first = x.window.offset;
    return heads == Layout::strided({product.sizes[0], heads.sizes[1], heads.sizes[2]},
                                    {product.sizes[1], heads.sizes[2], 1}) &&
           first >= 0 && first + width <= product.sizes[1];
  }

  const Neighbours& units_;
  std::vector<bool> taken_ = std::vector<bool>(units_.graph().nodes.size());
  std::vector<std::vector<int32_t>> found_;
};

}  // namespace

std::vector<std::vector<int32_t>> products_of_rows(const Graph& graph) {
  std::vector<Unit> units(graph.nodes.size());
  for (size_t n = 0; n < units.size(); ++n) units[n].nodes = {static_cast<int32_t>(n)};
  return Finder(Neighbours(graph, units)).run();
}

bool is_product_of_rows(const Graph& graph, const Unit& unit) {
  return std::ranges::any_of(unit.nodes,
                             [&](int32_t n) { return graph.nodes[static_cast<size_t>(n)].op == Op::linear_rows; });
}

void run_product_of_rows(const Graph& graph, const Unit& unit, Evaluation& evaluation, int32_t step) {
  LinearRowsWith with;
  Tensor x, weight, bias;
  int32_t result = -1;
  for (const int32_t n : unit.nodes) {
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    const auto read = [&](size_t i) { return evaluation.read(node.arguments[i]); };
    if (is_norm(node)) {
      const bool centred = node.op == Op::layer_norm;
      x = read(0);
      with.norm = centred ? kernels::LinearRowsNeighbours::layer_norm : kernels::LinearRowsNeighbours::rms_norm;
      with.norm_weight = read(1);
      if (centred) with.norm_bias = read(2);
      with.eps = attribute<double>(node, 1);
    } else if (node.op == Op::linear_rows) {
      if (!x.defined()) x = read(0);
      weight = read(1), bias = read(2);
    } else if (node.op == Op::gelu_tanh) {
      with.gelu = true;
    } else if (node.op == Op::paged_write) {
      const std::vector<Tensor> caches = evaluation.targets(node, step);
      with.cache = {.k_cache = caches[0],
                    .v_cache = caches[1],
                    .block_table = read(4),
                    .slots = read(5),
                    .positions = read(6),
                    .k = node.arguments[2].window.offset,
                    .v = node.arguments[3].window.offset};
      continue;
    } else {
      const Argument& first = node.arguments[0];
      with.addend = read(first.kind == Argument::value && first.value_index == result ? 1 : 0);
    }
    result = node.results[0];
  }
  evaluation.store(result, linear_rows_with(x, weight, bias, with));
}

}  // namespace lorry::compiler
