#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/attention/attention_rows.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "lorry/kernels/cpu/attention/attention_rows.h"

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls f(i, inside) for each vector; `inside` masks the elements before n.
template <class D, class F>
HWY_INLINE void each_vector(D d, int64_t n, F f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) f(i, hn::FirstN(d, static_cast<size_t>(std::min(lanes, n - i))));
}

/// e^x. NaN for NaN, for which Highway's Exp gives 0.
template <class D, class V>
HWY_INLINE V exponential(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

template <class D, class V, class T>
HWY_INLINE V scaled(D d, V s, const T* bias, V scale) {
  const V product = hn::Mul(s, scale);
  return bias == nullptr ? product : hn::Add(product, hn::LoadU(d, bias));
}

template <class T>
T scale_and_max_of(T* s, const T* bias, int64_t n, T scale) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, scale), none = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto most = none;
  each_vector(d, n, [&](int64_t i, auto inside) HWY_ATTR {
    const auto x = hn::IfThenElse(inside, scaled(d, hn::LoadU(d, s + i), bias ? bias + i : nullptr, factor), none);
    hn::StoreU(x, d, s + i);
    most = hn::Max(most, x);
  });
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

template <class T>
T exp_and_sum_of(T* s, int64_t n, T shift) {
  const hn::ScalableTag<T> d;
  const auto by = hn::Set(d, shift);
  auto sum = hn::Zero(d);
  each_vector(d, n, [&](int64_t i, auto) HWY_ATTR {
    const auto x = exponential(d, hn::Sub(hn::LoadU(d, s + i), by));
    hn::StoreU(x, d, s + i);
    sum = hn::Add(sum, x);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class T>
void weights_of(T* s, const T* bias, int64_t n, T scale, T shift) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, scale), by = hn::Set(d, shift);
  each_vector(d, n, [&](int64_t i, auto) HWY_ATTR {
    const auto x = scaled(d, hn::LoadU(d, s + i), bias ? bias + i : nullptr, factor);
    hn::StoreU(exponential(d, hn::Sub(x, by)), d, s + i);
  });
}

template <class T>
void score_gradient_of(T* dp, const T* p, int64_t n, T delta, T scale) {
  const hn::ScalableTag<T> d;
  const auto less = hn::Set(d, delta), factor = hn::Set(d, scale);
  each_vector(d, n, [&](int64_t i, auto) HWY_ATTR {
    const auto weight = hn::Mul(hn::LoadU(d, p + i), factor);
    hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, dp + i), less)), d, dp + i);
  });
}

template <class T>
T row_dot_of(const T* a, const T* b, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  T total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

template <class T>
void add_scaled_of(T* sum, const T* x, T factor, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::MulAdd(by, hn::LoadU(d, x + i), hn::LoadU(d, sum + i)), d, sum + i);
  for (; i < n; ++i) sum[i] += factor * x[i];
}

float scale_and_max_f32(float* s, const float* bias, int64_t n, float scale) {
  return scale_and_max_of(s, bias, n, scale);
}
double scale_and_max_f64(double* s, const double* bias, int64_t n, double scale) {
  return scale_and_max_of(s, bias, n, scale);
}
float exp_and_sum_f32(float* s, int64_t n, float shift) { return exp_and_sum_of(s, n, shift); }
double exp_and_sum_f64(double* s, int64_t n, double shift) { return exp_and_sum_of(s, n, shift); }
void weights_f32(float* s, const float* bias, int64_t n, float scale, float shift) {
  weights_of(s, bias, n, scale, shift);
}
void weights_f64(double* s, const double* bias, int64_t n, double scale, double shift) {
  weights_of(s, bias, n, scale, shift);
}
void score_gradient_f32(float* dp, const float* p, int64_t n, float delta, float scale) {
  score_gradient_of(dp, p, n, delta, scale);
}
void score_gradient_f64(double* dp, const double* p, int64_t n, double delta, double scale) {
  score_gradient_of(dp, p, n, delta, scale);
}
float row_dot_f32(const float* a, const float* b, int64_t n) { return row_dot_of(a, b, n); }
double row_dot_f64(const double* a, const double* b, int64_t n) { return row_dot_of(a, b, n); }
void add_scaled_f32(float* sum, const float* x, float factor, int64_t n) { add_scaled_of(sum, x, factor, n); }
void add_scaled_f64(double* sum, const double* x, double factor, int64_t n) { add_scaled_of(sum, x, factor, n); }

}  // namespace
}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lorry::kernels::cpu {

HWY_EXPORT(scale_and_max_f32);
HWY_EXPORT(scale_and_max_f64);
HWY_EXPORT(exp_and_sum_f32);
HWY_EXPORT(exp_and_sum_f64);
HWY_EXPORT(weights_f32);
HWY_EXPORT(weights_f64);
HWY_EXPORT(score_gradient_f32);
HWY_EXPORT(score_gradient_f64);
HWY_EXPORT(row_dot_f32);
HWY_EXPORT(row_dot_f64);
HWY_EXPORT(add_scaled_f32);
HWY_EXPORT(add_scaled_f64);

float scale_and_max(float* s, const float* bias, int64_t n, float scale) {
  return HWY_DYNAMIC_DISPATCH(scale_and_max_f32)(s, bias, n, scale);
}
double scale_and_max(double* s, const double* bias, int64_t n, double scale) {
  return HWY_DYNAMIC_DISPATCH(scale_and_max_f64)(s, bias, n, scale);
}
float exp_and_sum(float* s, int64_t n, float shift) { return HWY_DYNAMIC_DISPATCH(exp_and_sum_f32)(s, n, shift); }
double exp_and_sum(double* s, int64_t n, double shift) { return HWY_DYNAMIC_DISPATCH(exp_and_sum_f64)(s, n, shift); }
void attention_weights(float* s, const float* bias, int64_t n, float scale, float shift) {
  HWY_DYNAMIC_DISPATCH(weights_f32)(s, bias, n, scale, shift);
}
void attention_weights(double* s, const double* bias, int64_t n, double scale, double shift) {
  HWY_DYNAMIC_DISPATCH(weights_f64)(s, bias, n, scale, shift);
}
void score_gradient(float* dp, const float* p, int64_t n, float delta, float scale) {
  HWY_DYNAMIC_DISPATCH(score_gradient_f32)(dp, p, n, delta, scale);
}
void score_gradient(double* dp, const double* p, int64_t n, double delta, double scale) {
  HWY_DYNAMIC_DISPATCH(score_gradient_f64)(dp, p, n, delta, scale);
}
float row_dot(const float* a, const float* b, int64_t n) { return HWY_DYNAMIC_DISPATCH(row_dot_f32)(a, b, n); }
double row_dot(const double* a, const double* b, int64_t n) { return HWY_DYNAMIC_DISPATCH(row_dot_f64)(a, b, n); }
void add_scaled(float* sum, const float* x, float factor, int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_scaled_f32)(sum, x, factor, n);
}
void add_scaled(double* sum, const double* x, double factor, int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_scaled_f64)(sum, x, factor, n);
}

}  // namespace lorry::kernels::cpu
#endif
