#pragma once

// The `foreach` execution: a rule with lists of tensors as its values, one operator call for each operation of the formula and all
// parameters together.

#include "lorry/foreach/foreach.h"
#include "lorry/optim/loop.h"

namespace lorry::optim {

/// A list of tensors, or one value for all of them, as the value type of an optimizer's formula.
class ListValue {
 public:
  ListValue() = default;
  explicit ListValue(foreach::TensorList list) : list_(std::move(list)), is_list_(true) {}
  explicit ListValue(Tensor single) : single_(std::move(single)) {}
  explicit ListValue(double number) : single_(number) {}
  /// This value once for each tensor of `like`, where it is a single one.
  foreach::TensorList as_list(const foreach::TensorList& like) const;

#define LORRY_LIST_VALUE_BINARY(symbol, name)                                   \
  friend ListValue operator symbol(const ListValue& a, const ListValue& b) {    \
    if (!a.is_list_ && !b.is_list_) return ListValue(a.single_ symbol b.single_); \
    return ListValue(foreach::name(a.as_list(b.list_), b.argument()));                \
  }
  LORRY_LIST_VALUE_BINARY(-, sub)
  LORRY_LIST_VALUE_BINARY(/, div)
  LORRY_LIST_VALUE_BINARY(<, lt)
  LORRY_LIST_VALUE_BINARY(<=, le)
  LORRY_LIST_VALUE_BINARY(>, gt)
  LORRY_LIST_VALUE_BINARY(>=, ge)
  LORRY_LIST_VALUE_BINARY(==, eq)
  LORRY_LIST_VALUE_BINARY(!=, ne)
  LORRY_LIST_VALUE_BINARY(&, logical_and)
  LORRY_LIST_VALUE_BINARY(|, logical_or)
#undef LORRY_LIST_VALUE_BINARY
  friend ListValue operator+(const ListValue& a, const ListValue& b) {
    if (!a.is_list_ && !b.is_list_) return ListValue(a.single_ + b.single_);
    return ListValue(a.is_list_ ? foreach::add(a.list_, b.argument()) : foreach::add(b.list_, a.argument()));
  }
  friend ListValue operator*(const ListValue& a, const ListValue& b) {
    if (!a.is_list_ && !b.is_list_) return ListValue(a.single_ * b.single_);
    return ListValue(a.is_list_ ? foreach::mul(a.list_, b.argument()) : foreach::mul(b.list_, a.argument()));
  }
  friend ListValue operator-(const ListValue& a) { return a.is_list_ ? ListValue(foreach::neg(a.list_)) : ListValue(-a.single_); }
  friend ListValue operator!(const ListValue& a) { return a.is_list_ ? ListValue(foreach::logical_not(a.list_)) : ListValue(!a.single_); }
  friend ListValue sqrt(const ListValue& a) { return a.is_list_ ? ListValue(foreach::sqrt(a.list_)) : ListValue(sqrt(a.single_)); }
  friend ListValue abs(const ListValue& a) { return a.is_list_ ? ListValue(foreach::abs(a.list_)) : ListValue(abs(a.single_)); }
  friend ListValue select(const ListValue& mask, const ListValue& a, const ListValue& b);

 private:
  explicit ListValue(Value single) : single_(std::move(single)) {}
  foreach::Argument argument() const { return is_list_ ? foreach::Argument(list_) : single_.argument<foreach::Argument>(); }

  foreach::TensorList list_;
  Value single_;
  bool is_list_ = false;
};

/// The step of parameters that share a clock: the members of ByOperators, as lists.
struct ByLists {
  foreach::TensorList param, grad, kept;
  foreach::TensorList states[kMaxStates];
  Tensor numbers;
  Tensor grad_factor;
  kernels::Kept kept_as = kernels::Kept::nothing;
  bool zero_grads = false;
  Storing storing = {};
  std::vector<uint32_t> number = {};
};

namespace detail {
foreach::TensorList wide_parameters(const ByLists& work);
foreach::TensorList wide_gradients(const ByLists& work);
foreach::TensorList wide_states(const ByLists& work, int k);
void store(const ByLists& work, const ListValue& param, const ListValue* states, int count);
}  // namespace detail

/// settings: of the rule.
template <class Rule>
void step_by_lists(const ByLists& work, const void* settings) {
  const ComputedIn type(!work.param.empty() && work.param[0].dtype() == kF64 ? kF64 : kF32);
  formula::ProgressOf<Rule> progress;  // flags are the same at every step
  const auto flags = Rule::advance(progress, *static_cast<const formula::SettingsOf<Rule>*>(settings));
  int64_t next = 0;
  const auto hyper = flags.template map<ListValue>([&](double) { return ListValue(work.numbers.select(0, next++)); });
  ListValue param(detail::wide_parameters(work)), states[Rule::kStates > 0 ? Rule::kStates : 1];
  for (int k = 0; k < Rule::kStates; ++k) states[k] = ListValue(detail::wide_states(work, k));
  Rule()(param, ListValue(detail::wide_gradients(work)), states, hyper);
  detail::store(work, param, states, Rule::kStates);
}

}  // namespace lorry::optim
