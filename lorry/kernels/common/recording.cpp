#include "lorry/kernels/common/recording.h"

#include <algorithm>

#include "lorry/kernels/common/recorded_rule.h"

namespace lorry::kernels::recording {

Term Recorder::input(Node::From from, int index, DType dtype, bool array) {
  return add({.from = from, .index = index, .array = array, .dtype = dtype});
}

Term Recorder::add(const Node& node) {
  size_t at = nodes_.size();
  if (shares_) at = static_cast<size_t>(std::ranges::find(nodes_, node) - nodes_.begin());
  if (at == nodes_.size()) nodes_.push_back(node);
  return {.node = static_cast<int>(at), .as = node.dtype};
}

Term Recorder::operation(Pointwise op, DType compute, DType result, std::initializer_list<Term> in) {
  Node node{.array = false, .dtype = result, .op = op, .compute = compute};
  for (const Term& x : in) {
    node.array = node.array || (!x.is_constant() && nodes_[static_cast<size_t>(x.node)].array);
    node.in[static_cast<size_t>(node.arity++)] = x;
  }
  return add(node);
}

}  // namespace lorry::kernels::recording

std::vector<bool> lorry::kernels::RecordedUpdate::needed() const {
  std::vector<bool> needed(nodes.size());
  const auto need = [&](const recording::Term& x) {
    if (!x.is_constant()) needed[static_cast<size_t>(x.node)] = true;
  };
  for (const recording::Term& x : results) need(x);
  for (size_t n = nodes.size(); n-- > 0;)
    if (needed[n])
      for (int k = 0; k < nodes[n].arity; ++k) need(nodes[n].in[static_cast<size_t>(k)]);
  return needed;
}
