#include "lorry/compile/joined.h"

#include <algorithm>

#include "lorry/compile/joined_rows.h"
#include "lorry/compile/neighbours.h"
#include "lorry/ops/internal.h"

namespace lorry::compiler {
namespace {

using namespace trace;

/// Whether an argument is a result of a node; where the node has none, whether it is undefined.
bool is_result(const Argument& x, const Node& node, size_t i, const Graph& graph) {
  const int32_t v = node.results[i];
  if (v < 0) return x.kind == Argument::undefined;
  return x.kind == Argument::value && x.value_index == v && is_whole(x.window, graph.values[static_cast<size_t>(v)]);
}

// ---- cross entropy --------------------------------------------------------------------------------------------------

/// Whether `backward` computes the gradient of `loss`, with respect to all of x.
bool is_gradient_of(const Node& backward, const Node& loss, const Graph& graph) {
  const auto& a = backward.arguments;
  if (!is_same(a[1], loss.arguments[0]) || !is_same(a[2], loss.arguments[1]) || !is_same(a[3], loss.arguments[2]) ||
      !is_result(a[4], loss, 1, graph) || !is_result(a[5], loss, 2, graph))
    return false;
  return attribute<int64_t>(backward, 0) == attribute<int64_t>(loss, 0) &&
         attribute<int64_t>(backward, 1) == attribute<int64_t>(loss, 1) &&
         attribute<double>(backward, 2) == attribute<double>(loss, 2);
}

void join_cross_entropy(Neighbours& units, int32_t n) {
  const Node& loss = units.node(n);
  const Argument& x = loss.arguments[0];
  if (loss.op != Op::cross_entropy || x.kind != Argument::value || loss.results[1] < 0 ||
      !has_cross_entropy_with_gradient(x.device))
    return;
  const int32_t backward = units.free_reader(x.value_index, Op::cross_entropy_backward, [&](const Node& node) {
    return node.results[0] >= 0 && is_gradient_of(node, loss, units.graph());
  });
  if (backward < 0) return;
  const char* const why = units.host_is_called_between({n, backward}) ? "the host is called between the loss and it"
                          : units.may_join({n, backward})             ? nullptr
                                                          : "what multiplies the gradient is not known before the loss";
  if (why != nullptr) {
    units.unit(backward).refused = why;
    return;
  }
  Unit& unit = units.join({n, backward});
  unit.kind = Unit::joined;
  unit.bytes_saved = units.bytes(x);
}

void run_cross_entropy(const Node& loss, const Node& backward, Evaluation& evaluation, int32_t step) {
  const Tensor grad = evaluation.read(backward.arguments[0]), target = evaluation.read(loss.arguments[1]),
               weight = evaluation.read(loss.arguments[2]);
  auto made = cross_entropy_with_gradient(grad, evaluation.read_last(loss.arguments[0], step), target, weight,
                                          attribute<int64_t>(loss, 0), Reduction(attribute<int64_t>(loss, 1)),
                                          attribute<double>(loss, 2), attribute<DType>(loss, 3));
  for (size_t i = 0; i < loss.results.size(); ++i)
    if (loss.results[i] >= 0) evaluation.store(loss.results[i], std::move(made[i]));
  evaluation.store(backward.results[0], std::move(made[3]));
}

// ---- gradients of norms ---------------------------------------------------------------------------------------------

/// The number of elements of a row of a norm.
int64_t row_length(const Node& norm, const Layout& x) {
  int64_t n = 1;
  for (int64_t d = x.rank - attribute<int64_t>(norm, 0); d < x.rank; ++d) n *= x.sizes[d];
  return n;
}

/// Whether a unit is an addition and the sum of its results over the rows of a norm.
bool is_summed_addition(const Neighbours& units, const Unit& unit, const Node& norm) {
  return unit.kind == Unit::map && unit.nodes.size() == 2 && units.node(unit.nodes[1]).op == Op::sum &&
         unit.rows.n == row_length(norm, units.value(norm.results[0]).layout) &&
         units.value(units.result(unit.nodes[1])).dtype == units.value(norm.results[0]).dtype;
}

void join_norm_backward(Neighbours& units, int32_t n) {
  const Node& norm = units.node(n);
  if (norm.op != Op::layer_norm_backward || norm.results[0] < 0) return;
  const int32_t gradient = norm.results[0];
  if (units.readers(gradient).size() != 1 || units.outlives(gradient)) return;
  const int32_t add = units.readers(gradient)[0];
  const bool has_sum = is_summed_addition(units, units.unit(add), norm);
  if (units.node(add).op != Op::add || units.node(add).form != Node::pure || (!units.is_free(add) && !has_sum) ||
      units.addend(units.node(add), gradient) == nullptr ||
      !has_layer_norm_backward_with_addend(units.value(gradient).device, has_sum))
    return;
  std::vector<int32_t> nodes{n};
  nodes.insert(nodes.end(), units.unit(add).nodes.begin(), units.unit(add).nodes.end());
  if (units.host_is_called_between(nodes) || !units.may_join(nodes)) return;
  const int64_t bytes_saved = units.unit(add).bytes_saved + 2 * units.bytes(gradient);
  Unit& unit = units.join(nodes);
  unit.kind = Unit::joined;
  unit.bytes_saved = bytes_saved;
}

/// sum: null if there is none.
void run_norm_backward(const Graph& graph, const Node& norm, const Node& add, const Node* sum, Evaluation& evaluation) {
  const bool is_first = is_result(add.arguments[0], norm, 0, graph);
  const Tensor addend = evaluation.read(add.arguments[is_first ? 1 : 0]);
  Tensor inputs[5];
  for (size_t i = 0; i < 5; ++i) inputs[i] = evaluation.read(norm.arguments[i]);
  NormGradsWithSum made = layer_norm_backward_with_addend(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], addend,
                                                          attribute<int64_t>(norm, 0), attribute<bool>(norm, 2),
                                                          attribute<bool>(norm, 3), sum != nullptr);
  evaluation.store(add.results[0], std::move(made.x));
  if (norm.results[1] >= 0) evaluation.store(norm.results[1], std::move(made.weight));
  if (norm.results[2] >= 0) evaluation.store(norm.results[2], std::move(made.bias));
  if (sum != nullptr) {
    const int32_t v = sum->results[0];
    const Layout& layout = graph.values[static_cast<size_t>(v)].layout;
    if (made.sum.layout() != layout) made.sum = made.sum.view(layout.size_list());
    evaluation.store(v, std::move(made.sum));
  }
}

// ---- gradients of embeddings ----------------------------------------------------------------------------------------

void join_embedding_backward(Neighbours& units, int32_t n) {
  const Node& embedding = units.node(n);
  if (embedding.op != Op::embedding_backward || embedding.results[0] < 0 || attribute<int64_t>(embedding, 1) >= 0)
    return;
  const int32_t gradient = embedding.results[0];
  const Value& table = units.value(gradient);
  if (units.readers(gradient).size() != 1 || units.outlives(gradient) ||
      !has_embedding_backward_onto(table.dtype, table.device, embedding.arguments[1].window.layout.numel()))
    return;
  const int32_t add =
      units.free_reader(gradient, Op::add, [&](const Node& node) { return units.addend(node, gradient) != nullptr; });
  if (add < 0 || units.host_is_called_between({n, add}) || !units.may_join({n, add})) return;
  Unit& unit = units.join({n, add});
  unit.kind = Unit::joined;
  unit.bytes_saved = 3 * units.bytes(gradient);
}

void run_embedding_backward(const Graph& graph, const Node& embedding, const Node& add, Evaluation& evaluation,
                            int32_t step) {
  const bool is_first = is_result(add.arguments[0], embedding, 0, graph);
  const Tensor grad = evaluation.read(embedding.arguments[0]), indices = evaluation.read(embedding.arguments[1]);
  evaluation.store(add.results[0],
                   embedding_backward_onto(grad, indices, evaluation.read_last(add.arguments[is_first ? 1 : 0], step)));
}

}  // namespace

void join_operators(const Graph& graph, std::vector<Unit>& units, const std::vector<std::vector<int32_t>>& products,
                    bool keeps_bits) {
  Neighbours all(graph, units);
  for (const std::vector<int32_t>& nodes : products) {
    if (!all.may_join(nodes)) continue;  // other units have been made since they were found
    int64_t bytes_saved = 0;
    for (size_t i = 0; i + 1 < nodes.size(); ++i)
      if (all.node(nodes[i + 1]).op != Op::paged_write) bytes_saved += 2 * all.bytes(all.result(nodes[i]));
    Unit& unit = all.join(nodes);
    unit.kind = Unit::joined;
    unit.bytes_saved = bytes_saved;
  }
  for (int32_t n = 0; n < static_cast<int32_t>(graph.nodes.size()); ++n) {
    if (!all.is_free(n) || all.node(n).form != Node::pure) continue;
    join_cross_entropy(all, n);
    join_norm_backward(all, n);
    if (!keeps_bits) join_embedding_backward(all, n);
  }
  all.finish();
}

void run_joined(const Graph& graph, const Unit& unit, Evaluation& evaluation, int32_t step) {
  const auto node = [&](size_t i) { return &graph.nodes[static_cast<size_t>(unit.nodes[i])]; };
  if (is_product_of_rows(graph, unit))
    run_product_of_rows(graph, unit, evaluation, step);
  else if (node(0)->op == Op::cross_entropy)
    run_cross_entropy(*node(0), *node(1), evaluation, step);
  else if (node(0)->op == Op::embedding_backward)
    run_embedding_backward(graph, *node(0), *node(1), evaluation, step);
  else
    run_norm_backward(graph, *node(0), *node(1), unit.nodes.size() > 2 ? node(2) : nullptr, evaluation);
}

}  // namespace lorry::compiler
