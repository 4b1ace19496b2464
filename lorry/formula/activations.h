#pragma once

// Activations and their derivatives. A derivative takes the gradient of the result first, then what it is computed
// from.

#include "lorry/formula/comparison.h"

namespace lorry::formula {

// clang-format off

struct Sigmoid {
  static constexpr LongIn kLongIn = LongIn::f64;
  static constexpr bool kFastMath = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return V(1) / (V(1) + exp(-x)); }
};
struct SigmoidBackward {
  template <class V> LORRY_INLINE V operator()(V grad, V output) const { return grad * (output * (V(1) - output)); }
};
struct TanhBackward {
  template <class V> LORRY_INLINE V operator()(V grad, V output) const { return grad * (V(1) - output * output); }
};

/// NaN stays NaN.
struct Relu {
  static constexpr bool kExact = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return select(x <= V(0), V(0), x); }
};
struct ReluBackward {
  template <class V> LORRY_INLINE V operator()(V grad, V output) const { return select(output <= V(0), V(0), grad); }
};

/// x times the normal distribution function. Hendrycks and Gimpel 2016.
struct Gelu {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x) const {
      return V(0.5) * x * (V(1) + erf(x * V(0.70710678118654752440))); }
};
/// The distribution function plus x times its density.
struct GeluBackward {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V grad, V x) const {
    const V cdf = V(0.5) * (V(1) + erf(x * V(0.70710678118654752440)));
    const V density = V(0.39894228040143267794) * exp(V(-0.5) * x * x);
    return grad * (cdf + x * density);
  }
};

/// gelu with 0.5 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), for the distribution function; that is sigmoid(2
/// u), which keeps its relative accuracy for negative x.
struct GeluTanh {
  static constexpr LongIn kLongIn = LongIn::f64;
  static constexpr bool kFastMath = true;
  template <class V> static LORRY_INLINE V gate(V x) {
    const V twice_u = V(1.59576912160573071175) * x * (V(1) + V(0.044715) * x * x);
    return V(1) / (V(1) + exp(-twice_u));
  }
  template <class V> LORRY_INLINE V operator()(V x) const { return x * gate(x); }
};
struct GeluTanhBackward {
  static constexpr LongIn kLongIn = LongIn::f64;
  static constexpr bool kFastMath = true;
  template <class V> LORRY_INLINE V operator()(V grad, V x) const {
    const V gate = GeluTanh::gate(x);
    const V slope = V(1.59576912160573071175) * (V(1) + V(3 * 0.044715) * x * x);
    return grad * (gate + x * (gate * (V(1) - gate)) * slope);
  }
};

/// x * sigmoid(x). Elfwing et al. 2017.
struct Silu {
  static constexpr LongIn kLongIn = LongIn::f64;
  static constexpr bool kFastMath = true;
  template <class V> LORRY_INLINE V operator()(V x) const { return x / (V(1) + exp(-x)); }
};
struct SiluBackward {
  static constexpr LongIn kLongIn = LongIn::f64;
  static constexpr bool kFastMath = true;
  template <class V> LORRY_INLINE V operator()(V grad, V x) const {
    const V gate = Sigmoid()(x);
    return grad * (gate * (V(1) + x * (V(1) - gate)));
  }
};

/// log(1 + exp(beta x)) / beta, from the exponential that cannot overflow; x itself where beta x > threshold.
struct Softplus {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x, V beta, V threshold) const {
    const V scaled = x * beta;
    const V smooth = Maximum()(scaled, V(0)) + log1p(exp(-abs(scaled)));
    return select(scaled > threshold, x, smooth / beta);
  }
};
struct LeakyRelu {
  template <class V> LORRY_INLINE V operator()(V x, V slope) const { return select(x > V(0), x, x * slope); }
};
/// Clevert, Unterthiner, Hochreiter 2015.
struct Elu {
  static constexpr LongIn kLongIn = LongIn::f64;
  template <class V> LORRY_INLINE V operator()(V x, V alpha) const { return select(x > V(0), x, alpha * expm1(x)); }
};

// clang-format on

}  // namespace lorry::formula
