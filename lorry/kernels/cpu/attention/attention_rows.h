#pragma once

// Vector loops over one row of attention scores. Buffers of rows are padded to whole vectors: up to kRowPadding
// elements may be written beyond n.

#include <cstdint>

namespace lorry::kernels::cpu {

inline constexpr int64_t kRowPadding = 16;

/// s = scale * s + bias (null: no bias). Returns the largest, -infinity if there is none. The elements beyond n in the
/// last vector become -infinity.
float scale_and_max(float* s, const float* bias, int64_t n, float scale);
double scale_and_max(double* s, const double* bias, int64_t n, double scale);
/// s = exp(s - shift). Returns the sum. Processes the whole last vector, as padded by scale_and_max.
float exp_and_sum(float* s, int64_t n, float shift);
double exp_and_sum(double* s, int64_t n, double shift);
/// s = exp(scale * s + bias - shift).
void attention_weights(float* s, const float* bias, int64_t n, float scale, float shift);
void attention_weights(double* s, const double* bias, int64_t n, double scale, double shift);
/// dp = scale * p * (dp - delta): the gradient of the products q k^T from the gradient of the weights.
void score_gradient(float* dp, const float* p, int64_t n, float delta, float scale);
void score_gradient(double* dp, const double* p, int64_t n, double delta, double scale);
/// The sum of a * b. The rows need no padding.
float row_dot(const float* a, const float* b, int64_t n);
double row_dot(const double* a, const double* b, int64_t n);
/// sum += factor * x. The rows need no padding.
void add_scaled(float* sum, const float* x, float factor, int64_t n);
void add_scaled(double* sum, const double* x, double factor, int64_t n);

}  // namespace lorry::kernels::cpu
