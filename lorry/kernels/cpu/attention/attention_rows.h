#pragma once

// Vector loops over one row of attention scores. Rows lie in buffers padded to whole vectors: kRowPadding elements may
// be written past n.

#include <cstdint>

namespace lorry::kernels::cpu {

inline constexpr int64_t kRowPadding = 16;

/// s = scale * s + bias (bias null: nothing added). Returns the largest, -infinity for none; what follows in the last
/// vector becomes -infinity.
float scale_and_max(float* s, const float* bias, int64_t n, float scale);
double scale_and_max(double* s, const double* bias, int64_t n, double scale);
/// s = exp(s - shift). Returns the sum. The last vector is whole, as scale_and_max left it.
float exp_and_sum(float* s, int64_t n, float shift);
double exp_and_sum(double* s, int64_t n, double shift);
/// s = exp(scale * s + bias - shift).
void attention_weights(float* s, const float* bias, int64_t n, float scale, float shift);
void attention_weights(double* s, const double* bias, int64_t n, double scale, double shift);
/// dp = scale * p * (dp - delta): from the gradient of the weights to that of the products q k^T.
void score_gradient(float* dp, const float* p, int64_t n, float delta, float scale);
void score_gradient(double* dp, const double* p, int64_t n, double delta, double scale);
/// The sum of a * b, over plain rows.
float row_dot(const float* a, const float* b, int64_t n);
double row_dot(const double* a, const double* b, int64_t n);

}  // namespace lorry::kernels::cpu
