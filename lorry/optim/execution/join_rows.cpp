#include "lorry/optim/execution/program_step.h"

namespace lorry::optim::detail {
namespace {

/// Replaces operations by one row that gives the same roundings. By IEEE 754 x - y is x + (-y), a sign may move through
/// products and quotients, and a factor of 1 changes nothing.
class Fuser {
 public:
  explicit Fuser(RecordedStep& step) : nodes_(step.nodes), results_(step.results) {}

  void run() {
    count_uses();
    for (size_t n = 0, end = nodes_.size(); n < end; ++n) {
      if (uses_[n] == 0 || !nodes_[n].array || nodes_[n].from != Node::From::operation) continue;
      fuse_sum(n) || fuse_maximum(n);
    }
    count_uses();
  }
  /// How often each node is read.
  const std::vector<int>& uses() const { return uses_; }

 private:
  void count_uses() {
    uses_.assign(nodes_.size(), 0);
    std::vector<int> open;
    const auto use = [&](const Term& x) {
      if (!x.is_constant() && uses_[static_cast<size_t>(x.node)]++ == 0) open.push_back(x.node);
    };
    for (const Result& result : results_) use(result.value);
    while (!open.empty()) {
      const Node node = nodes_[static_cast<size_t>(open.back())];
      open.pop_back();
      for (int k = 0; k < node.arity; ++k) use(node.in[k]);
    }
  }

  /// The node that computes x by `op`; null if it does not, if other nodes read it, or if its bits are read as another
  /// type.
  const Node* only_for(const Term& x, Pointwise op) const {
    if (x.is_constant() || uses_[static_cast<size_t>(x.node)] != 1) return nullptr;
    const Node& node = nodes_[static_cast<size_t>(x.node)];
    return node.from == Node::From::operation && node.op == op && node.array && node.compute != kI64 &&
                   node.dtype == x.as
               ? &node
               : nullptr;
  }
  bool is_array(const Term& x) const { return !x.is_constant() && nodes_[static_cast<size_t>(x.node)].array; }

  /// -x, of a number that is the same for all elements.
  Term negative(const Term& x, DType dtype) {
    if (x.is_constant()) return {.constant = -x.constant};
    nodes_.push_back({.array = false, .dtype = dtype, .op = Pointwise::neg, .compute = dtype, .arity = 1, .in = {{x}}});
    uses_.push_back(1);
    return {.node = static_cast<int>(nodes_.size()) - 1, .as = dtype};
  }

  void replace(size_t n, Pointwise op, std::initializer_list<Term> in) {
    Node& node = nodes_[n];
    node.op = op;
    node.arity = 0;
    for (const Term& x : in) node.in[static_cast<size_t>(node.arity++)] = x;
  }

  /// x +- s a, x +- s a b, x +- a b, x +- s a / b, x +- a / b.
  bool fuse_sum(size_t n) {
    const Node sum = nodes_[n];
    if ((sum.op != Pointwise::add && sum.op != Pointwise::sub) || sum.compute == kI64) return false;
    const bool minus = sum.op == Pointwise::sub;
    const auto signed_number = [&](const Term& s) { return minus ? negative(s, sum.compute) : s; };
    const Term one{.constant = minus ? -1.0 : 1.0};
    for (const int side : {1, 0}) {
      if (side == 0 && minus) break;
      const Term x = sum.in[1 - side];
      if (const Node* found = only_for(sum.in[side], Pointwise::mul)) {
        const Term a = found->in[0], b = found->in[1];
        const Term &array = is_array(a) ? a : b, &number = is_array(a) ? b : a;
        if (const Node* const way = only_for(array, Pointwise::sub);
            way != nullptr && !is_array(number) && !minus && way->in[1] == x) {
          replace(n, Pointwise::add, {x, way->in[0], number});
          nodes_[n].blends = true;
        } else if (!is_array(a) || !is_array(b)) {
          replace(n, Pointwise::add_scaled, {x, array, signed_number(number)});
        } else if (const Scaled scaled = scale_of(a); scaled.found) {
          replace(n, Pointwise::addcmul, {x, scaled.array, b, signed_number(scaled.by)});
        } else if (const Scaled other = scale_of(b); other.found) {
          replace(n, Pointwise::addcmul, {x, other.array, a, signed_number(other.by)});
        } else {
          replace(n, Pointwise::addcmul, {x, a, b, one});
        }
        return true;
      }
      if (const Node* found = only_for(sum.in[side], Pointwise::div)) {
        const Term a = found->in[0], b = found->in[1];
        if (const Scaled scaled = scale_of(a); scaled.found)
          replace(n, Pointwise::addcdiv, {x, scaled.array, b, signed_number(scaled.by)});
        else
          replace(n, Pointwise::addcdiv, {x, a, b, one});
        return true;
      }
    }
    return false;
  }
  /// x as the product of an array and a number that is the same for all elements.
  struct Scaled {
    bool found = false;
    Term by, array;
  };
  Scaled scale_of(const Term& x) const {
    const Node* const product = only_for(x, Pointwise::mul);
    if (product == nullptr || is_array(product->in[0]) == is_array(product->in[1])) return {};
    const int by = is_array(product->in[0]) ? 1 : 0;
    return {true, product->in[by], product->in[1 - by]};
  }

  /// select((a > b) | (a != a), a, b) is maximum(a, b), with a NaN if there is one.
  bool fuse_maximum(size_t n) {
    const Node choice = nodes_[n];
    if (choice.op != Pointwise::where || choice.compute == kI64) return false;
    const Node* const either = only_for(choice.in[0], Pointwise::logical_or);
    if (either == nullptr) return false;
    const Term a = choice.in[1], b = choice.in[2];
    const Node *const larger = only_for(either->in[0], Pointwise::gt), *const nan =
                                                                           only_for(either->in[1], Pointwise::ne);
    if (larger == nullptr || nan == nullptr || larger->in[0] != a || larger->in[1] != b || nan->in[0] != a ||
        nan->in[1] != a)
      return false;
    replace(n, Pointwise::maximum, {a, b});
    return true;
  }

  std::vector<Node>& nodes_;
  const std::vector<Result>& results_;
  std::vector<int> uses_;
};

}  // namespace

std::vector<int> join_rows(RecordedStep& step) {
  Fuser fuser(step);
  fuser.run();
  return fuser.uses();
}

}  // namespace lorry::optim::detail
