#pragma once

// An optimizer's rule as a list of operations, which the executions loop, foreach and compiled run. The rule's update
// is called once with Symbols as its values, and each operation of the formula becomes a Node. Nothing is computed
// here: optim/execution/program.h turns the nodes into kernel calls, recorded_rule.h into a kernel of its own.

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "lorry/formula/pointwise.h"
#include "lorry/formula/rule.h"
#include "lorry/layout/dtype.h"

namespace lorry::kernels::recording {

/// An operand: the value of a node, or a constant.
struct Term {
  int node = -1;  ///< -1: the constant
  double constant = 0;
  DType as = kF32;  ///< the type in which the node's bits are read; it has the width of the node's dtype

  bool is_constant() const { return node < 0; }
  bool operator==(const Term&) const = default;
};

struct Node {
  enum class From : uint8_t { param, grad, master, state, hyper, setting, factor, operation };
  From from = From::operation;
  int index = 0;         ///< number of a state, a hyper-parameter or a setting
  bool array = true;     ///< false: one number for all elements
  DType dtype = kF32;    ///< of the value in memory
  Pointwise op = {};     ///< of an operation
  bool blends = false;   ///< the operation is formula::Blend instead of `op`
  DType compute = kF32;  ///< the type in which it is computed: kF32, kF64 or kI64
  int arity = 0;
  std::array<Term, 4> in = {};

  bool operator==(const Node&) const = default;
};

/// Collects the nodes of one rule. During its lifetime it is the thread's current recorder, to which Symbols add nodes.
class Recorder {
 public:
  /// compute: the type of the formula, kF32 or kF64.
  explicit Recorder(DType compute) : compute_(compute), outer_(t_current) { t_current = this; }
  ~Recorder() { t_current = outer_; }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  static Recorder& current() { return *t_current; }
  DType compute() const { return compute_; }
  std::vector<Node>& nodes() { return nodes_; }
  /// If true, equal operations share one node. Returns the old value.
  bool share_nodes(bool shares) { return std::exchange(shares_, shares); }

  Term input(Node::From from, int index, DType dtype, bool array);
  /// An operation in the formula's type; result: that type, or kBool.
  Term operation(Pointwise op, DType result, std::initializer_list<Term> in) {
    return operation(op, compute_, result, in);
  }
  Term operation(Pointwise op, DType compute, DType result, std::initializer_list<Term> in);
  /// Rounds a constant to the formula's type, in which kernels compute. A double has more than twice the bits of a
  /// float, so this second rounding does not change the result.
  double rounded(double x) const { return compute_ == kF32 ? static_cast<float>(x) : x; }

 private:
  Term add(const Node& node);

  static inline constinit thread_local Recorder* t_current = nullptr;
  DType compute_;
  bool shares_ = false;
  Recorder* outer_;
  std::vector<Node> nodes_;
};

/// The value type with which a formula is recorded.
class Symbol {
 public:
  Symbol() = default;
  Symbol(double number) { term_.constant = Recorder::current().rounded(number); }
  explicit Symbol(const Term& term) : term_(term) {}
  const Term& term() const { return term_; }
  Symbol& operator+=(const Symbol& b) { return *this = *this + b; }
  Symbol& operator-=(const Symbol& b) { return *this = *this - b; }
  Symbol& operator*=(const Symbol& b) { return *this = *this * b; }
  Symbol& operator/=(const Symbol& b) { return *this = *this / b; }

#define LORRY_SYMBOL_BINARY(symbol, name, is_truth)                                 \
  friend Symbol operator symbol(const Symbol& a, const Symbol& b) {                 \
    if (a.is_constant() && b.is_constant())                                         \
      return Symbol(static_cast<double>(a.term_.constant symbol b.term_.constant)); \
    return operation(Pointwise::name, is_truth, {a.term_, b.term_});                \
  }
  LORRY_SYMBOL_BINARY(+, add, false)
  LORRY_SYMBOL_BINARY(-, sub, false)
  LORRY_SYMBOL_BINARY(*, mul, false)
  LORRY_SYMBOL_BINARY(/, div, false)
  LORRY_SYMBOL_BINARY(<, lt, true)
  LORRY_SYMBOL_BINARY(<=, le, true)
  LORRY_SYMBOL_BINARY(>, gt, true)
  LORRY_SYMBOL_BINARY(>=, ge, true)
  LORRY_SYMBOL_BINARY(==, eq, true)
  LORRY_SYMBOL_BINARY(!=, ne, true)
#undef LORRY_SYMBOL_BINARY
  friend Symbol operator&(const Symbol& a, const Symbol& b) {
    if (a.is_constant()) return a.term_.constant != 0 ? b : a;
    if (b.is_constant()) return b.term_.constant != 0 ? a : b;
    return operation(Pointwise::logical_and, true, {a.term_, b.term_});
  }
  friend Symbol operator|(const Symbol& a, const Symbol& b) {
    if (a.is_constant()) return a.term_.constant != 0 ? a : b;
    if (b.is_constant()) return b.term_.constant != 0 ? b : a;
    return operation(Pointwise::logical_or, true, {a.term_, b.term_});
  }
  friend Symbol operator-(const Symbol& a) {
    return a.is_constant() ? Symbol(-a.term_.constant) : operation(Pointwise::neg, false, {a.term_});
  }
  friend Symbol operator!(const Symbol& a) {
    return a.is_constant() ? Symbol(double(a.term_.constant == 0)) : operation(Pointwise::logical_not, true, {a.term_});
  }
  friend Symbol sqrt(const Symbol& a) {
    return a.is_constant() ? Symbol(std::sqrt(a.term_.constant)) : operation(Pointwise::sqrt, false, {a.term_});
  }
  friend Symbol abs(const Symbol& a) {
    return a.is_constant() ? Symbol(std::fabs(a.term_.constant)) : operation(Pointwise::abs, false, {a.term_});
  }
  friend Symbol select(const Symbol& mask, const Symbol& a, const Symbol& b) {
    if (mask.is_constant()) return mask.term_.constant != 0 ? a : b;
    return operation(Pointwise::where, false, {mask.term_, a.term_, b.term_});
  }

 private:
  bool is_constant() const { return term_.is_constant(); }
  static Symbol operation(Pointwise op, bool is_truth, std::initializer_list<Term> in) {
    Recorder& recorder = Recorder::current();
    return Symbol(recorder.operation(op, is_truth ? kBool : recorder.compute(), in));
  }
  Term term_;
};

/// Calls a rule's update with symbols: values[0] is the parameter, [1] the gradient, [2 + k] state k. On return, values
/// holds the new parameter and states. `flags` supplies the flags; its numbers become inputs from the hyper block.
template <class Rule>
void record(const formula::HyperOf<Rule, double>& flags, Symbol* values) {
  Recorder& recorder = Recorder::current();
  int next = 0;
  const auto hyper = flags.template map<Symbol>(
      [&](double) { return Symbol(recorder.input(Node::From::hyper, next++, recorder.compute(), false)); });
  Rule()(values[0], values[1], values + 2, hyper);
}

/// The same with the flags that follow from settings.
template <class Rule>
void record(const typename Rule::Settings& settings, Symbol* values) {
  typename Rule::Progress progress;  // flags are the same at every step
  record<Rule>(Rule::advance(progress, settings), values);
}

/// The same for a rule with settings in device tensors. A flag may depend on whether such a number is 0, which only the
/// device knows. In that case both updates are recorded, and a select on the number chooses between their results.
template <class Rule>
void record(const typename Rule::Settings& settings, std::span<const int> in_tensors, Symbol* values) {
  if (in_tensors.empty()) return record<Rule>(settings, values);
  Recorder& recorder = Recorder::current();
  const bool shared = recorder.share_nodes(true);
  constexpr int kValues = 2 + Rule::kStates;
  Symbol results[2][kValues];  // if the number is 0; if it is not
  for (const int other : {0, 1}) {
    typename Rule::Settings assumed = settings;
    assumed.*formula::SettingList<Rule>::all()[static_cast<size_t>(in_tensors[0])].number = other;
    std::copy(values, values + kValues, results[other]);
    record<Rule>(assumed, in_tensors.subspan(1), results[other]);
  }
  for (int k = 0; k < kValues; ++k) {
    values[k] = results[1][k];
    if (results[0][k].term() == results[1][k].term()) continue;
    const Term number = recorder.input(Node::From::setting, in_tensors[0], kF64, false);
    const Symbol other(recorder.operation(Pointwise::ne, kF64, kBool, {number, {.constant = 0}}));
    values[k] = select(other, results[1][k], results[0][k]);
  }
  recorder.share_nodes(shared);
}

}  // namespace lorry::kernels::recording
