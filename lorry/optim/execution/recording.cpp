#include "lorry/optim/execution/recording.h"

namespace lorry::optim::detail {

Term Recorder::input(Node::From from, int index, DType dtype, bool array) {
  nodes_.push_back({.from = from, .index = index, .array = array, .dtype = dtype});
  return {.node = static_cast<int>(nodes_.size()) - 1, .as = dtype};
}

Term Recorder::operation(Pointwise op, DType compute, DType result, std::initializer_list<Term> in) {
  Node node{.array = false, .dtype = result, .op = op, .compute = compute};
  for (const Term& x : in) {
    node.array = node.array || (!x.is_constant() && nodes_[static_cast<size_t>(x.node)].array);
    node.in[static_cast<size_t>(node.arity++)] = x;
  }
  nodes_.push_back(node);
  return {.node = static_cast<int>(nodes_.size()) - 1, .as = result};
}

}  // namespace lorry::optim::detail
