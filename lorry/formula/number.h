#pragma once

// Number<T>: a float or double as the value type of users' rules. In C++ 0.9 * x with a float x is computed in double;
// here 0.9 is rounded to T first, so that a rule gives the same bits as in vectors and by operators.

#include <concepts>
#include <type_traits>

#include "lorry/formula/rule.h"

namespace lorry::formula {

template <std::floating_point T>
struct Number {
  T value;

  Number() = default;
  template <class N>
  requires std::is_arithmetic_v<N> LORRY_INLINE Number(N x) : value(static_cast<T>(x)) {}

  LORRY_INLINE Number& operator+=(Number b) { return *this = *this + b; }
  LORRY_INLINE Number& operator-=(Number b) { return *this = *this - b; }
  LORRY_INLINE Number& operator*=(Number b) { return *this = *this * b; }
  LORRY_INLINE Number& operator/=(Number b) { return *this = *this / b; }
  friend LORRY_INLINE Number operator+(Number a, Number b) { return a.value + b.value; }
  friend LORRY_INLINE Number operator-(Number a, Number b) { return a.value - b.value; }
  friend LORRY_INLINE Number operator*(Number a, Number b) { return a.value * b.value; }
  friend LORRY_INLINE Number operator/(Number a, Number b) { return a.value / b.value; }
  friend LORRY_INLINE Number operator-(Number a) { return -a.value; }
  friend LORRY_INLINE bool operator<(Number a, Number b) { return a.value < b.value; }
  friend LORRY_INLINE bool operator<=(Number a, Number b) { return a.value <= b.value; }
  friend LORRY_INLINE bool operator>(Number a, Number b) { return a.value > b.value; }
  friend LORRY_INLINE bool operator>=(Number a, Number b) { return a.value >= b.value; }
  friend LORRY_INLINE bool operator==(Number a, Number b) { return a.value == b.value; }
  friend LORRY_INLINE bool operator!=(Number a, Number b) { return a.value != b.value; }
  friend LORRY_INLINE Number select(bool mask, Number a, Number b) { return mask ? a : b; }
  friend LORRY_INLINE Number abs(Number a) { return formula::abs(a.value); }
  friend LORRY_INLINE Number sqrt(Number a) { return formula::sqrt(a.value); }
};

/// A user's rule, whose update sees Numbers where kernels have floats and doubles.
template <class Rule>
struct ByNumbers : Rule {
  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    if constexpr (std::floating_point<V>) {
      Number<V> own = param, own_states[Rule::kStates > 0 ? Rule::kStates : 1] = {};
      for (int k = 0; k < Rule::kStates; ++k) own_states[k] = states[k];
      Rule::operator()(own, Number<V>(grad), own_states, cast_hyper<Number<V>>(h));
      param = own.value;
      for (int k = 0; k < Rule::kStates; ++k) states[k] = own_states[k].value;
    } else {
      Rule::operator()(param, grad, states, h);
    }
  }
};

}  // namespace lorry::formula
