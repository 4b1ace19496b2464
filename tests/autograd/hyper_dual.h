#pragma once

// Exact derivatives of a calculation, without a tape: a number that carries its derivatives in two directions and the
// mixed second one. Fike and Alonso 2011, "The development of hyper-dual numbers for exact second-derivative
// calculations".

#include <cmath>

namespace lorry::test {

struct HyperDual {
  double value = 0, a = 0, b = 0, ab = 0;

  friend HyperDual operator+(const HyperDual& x, const HyperDual& y) {
    return {x.value + y.value, x.a + y.a, x.b + y.b, x.ab + y.ab};
  }
  friend HyperDual operator*(const HyperDual& x, const HyperDual& y) {
    return {x.value * y.value, x.a * y.value + x.value * y.a, x.b * y.value + x.value * y.b,
            x.ab * y.value + x.a * y.b + x.b * y.a + x.value * y.ab};
  }
  friend HyperDual operator*(const HyperDual& x, double k) { return {x.value * k, x.a * k, x.b * k, x.ab * k}; }
  friend HyperDual operator-(const HyperDual& x, const HyperDual& y) { return x + y * -1.0; }
};

/// f(x), given f and its first two derivatives at x.value.
inline HyperDual chain(const HyperDual& x, double f, double first, double second) {
  return {f, first * x.a, first * x.b, first * x.ab + second * x.a * x.b};
}
inline HyperDual sin(const HyperDual& x) { return chain(x, std::sin(x.value), std::cos(x.value), -std::sin(x.value)); }
inline HyperDual cos(const HyperDual& x) { return chain(x, std::cos(x.value), -std::sin(x.value), -std::cos(x.value)); }
inline HyperDual tanh(const HyperDual& x) {
  const double t = std::tanh(x.value), first = 1 - t * t;
  return chain(x, t, first, -2 * t * first);
}

}  // namespace lorry::test
