// Backward rules of the matrix products: products themselves, with transposes as views.

#include "lorry/autograd/rules.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

/// [..., n] as [rows, n]. Rows may be empty, so they are counted rather than divided out.
Tensor as_matrix(const Tensor& x) {
  if (x.dim() == 2) return x;
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) rows *= x.size(d);
  return x.reshape({rows, x.size(-1)});
}

Tensor scaled(const Tensor& x, const Scalar& by) { return by.to<double>() == 1 ? x : x.mul(by); }

/// a^T g summed over the batches that b does not have: one product of tall matrices when b has none.
Tensor right_gradient(const Tensor& a, const Tensor& g, const Dims& sizes_b) {
  if (sizes_b.size() == 2 && a.dim() > 2 && a.numel() > 0 && g.numel() > 0) return mm(as_matrix(a).t(), as_matrix(g));
  return sum_to_size(matmul(a.mT(), g), sizes_b);
}

Grads matmul_gradient(const Call& c, const Grads& grads) {
  // Vectors become matrices first, so that only products of matrices are left.
  const Tensor a = c.input(0).dim() == 1 ? c.input(0).unsqueeze(0) : c.input(0);
  const Tensor b = c.input(1).dim() == 1 ? c.input(1).unsqueeze(1) : c.input(1);
  Tensor g = grads[0];
  if (c.sizes(1).size() == 1) g = g.unsqueeze(-1);
  if (c.sizes(0).size() == 1) g = g.unsqueeze(-2);
  Grads result(2);
  if (c.needs(0)) result[0] = sum_to_size(matmul(g, b.mT()), a.sizes()).reshape(c.sizes(0));
  if (c.needs(1)) result[1] = right_gradient(a, g, b.sizes()).reshape(c.sizes(1));
  return result;
}

Grads addmm_gradient(const Call& c, const Grads& grads) {
  const Tensor& g = grads[0];
  const Scalar beta = c.attribute<Scalar>(0), alpha = c.attribute<Scalar>(1);
  Grads result(3);
  if (c.needs(0)) result[0] = scaled(sum_to_size(g, c.sizes(0)), beta);
  if (c.needs(1)) result[1] = scaled(matmul(g, c.input(2).mT()), alpha);
  if (c.needs(2)) result[2] = scaled(matmul(c.input(1).mT(), g), alpha);
  return result;
}

/// a b, where the gradient of input i is wanted if that is known.
Tensor product_at(const Call& c, int i, const Tensor& a, const Tensor& b) {
  const bool fits = a.dtype() == c.dtype(i) && b.dtype() == c.dtype(i);
  const Tensor to = fits ? c.destination(i) : Tensor();
  return to.defined() ? mm_out(to, a, b) : mm(a, b);
}

Grads linear_gradient(const Call& c, const Grads& grads) {
  const Tensor& g = grads[0];
  const Tensor rows = g.dim() == 1 ? g.unsqueeze(0) : as_matrix(g);
  Grads result(3);
  if (c.needs(0)) result[0] = matmul(g, c.input(1));
  if (c.needs(1))
    result[1] = product_at(c, 1, rows.t(), c.sizes(0).size() == 1 ? c.input(0).unsqueeze(0) : as_matrix(c.input(0)));
  if (c.needs(2)) result[2] = rows.sum({0});
  return result;
}

constexpr Rule kRules[] = {
    {Op::matmul, kInput0 | kInput1, matmul_gradient},      {Op::addmm, kInput1 | kInput2, addmm_gradient},
    {Op::baddbmm, kInput1 | kInput2, addmm_gradient},      {Op::linear, kInput0 | kInput1, linear_gradient},
    {Op::linear_rows, kInput0 | kInput1, linear_gradient},
};

}  // namespace

std::span<const Rule> matmul_rules() { return kRules; }

}  // namespace lorry::autograd
