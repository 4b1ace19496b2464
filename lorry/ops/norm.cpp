#include "lorry/ops/norm.h"

#include <limits>

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"

namespace lorry {
namespace {

void check(const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias) {
  require_defined(x, "x");
  require<DTypeError>(is_floating(x.dtype()), "the input is not floating; got {}; expected one of {}", x,
                      kFloatingNames);
  bool trailing = !shape.empty() && shape.size() <= x.dim();
  for (int i = 0; trailing && i < shape.size(); ++i) trailing = x.size(x.dim() - shape.size() + i) == shape[i];
  require<ShapeError>(
      trailing,
      "normalized_shape is not x's last sizes; got {}, normalized_shape {}; expected at least one trailing size of x",
      x, shape);
  for (const auto& [operand, what] : {std::pair{&weight, "weight"}, std::pair{&bias, "bias"}}) {
    if (!operand->defined()) continue;
    require<ShapeError>(operand->sizes() == shape, "{} has other sizes than normalized_shape; got {}; expected {}",
                        what, *operand, shape);
    require<DTypeError>(operand->dtype() == x.dtype(), "{} has another dtype than x; got {}; expected {}", what,
                        *operand, x.dtype());
    require_same_device(x, *operand);
  }
}

/// x as the kernels read it: contiguous [rows, n].
kernels::Array matrix(const Tensor& x, int64_t n) {
  return {x.data_ptr(), x.dtype(), Layout::contiguous({n ? x.numel() / n : 0, n})};
}
kernels::Array vector(const Tensor& x) {
  return x.defined() ? kernels::Array{x.data_ptr(), x.dtype(), Layout::contiguous({x.numel()})} : kernels::Array{};
}

/// out, rstd and (for layer_norm) mean.
template <size_t kOutputs>
std::array<Tensor, kOutputs> normalise(const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias,
                                       double eps) {
  const int64_t n = checked_numel(shape);
  const Tensor from = x.contiguous(), w = contiguous_or_none(weight), b = contiguous_or_none(bias);
  Dims statistics;
  for (int d = 0; d < x.dim(); ++d) statistics.push_back(d < x.dim() - shape.size() ? x.size(d) : 1);
  std::array<Tensor, kOutputs> out;
  const Options wide{x.dtype() == kF64 ? kF64 : kF32, x.device()};
  out[0] = empty(x.sizes(), x.options());
  for (size_t i = 1; i < kOutputs; ++i) out[i] = empty(statistics, wide);
  if (x.numel() == 0) return out;
  const kernels::Array mean = kOutputs == 3 ? vector(out[kOutputs - 1]) : kernels::Array{};
  backend(x).norm->layer_norm({matrix(out[0], n), matrix(from, n), vector(w), vector(b), mean, vector(out[1]), eps},
                              current_stream(x.device()));
  return out;
}

/// Of the type in which a dtype is computed.
double machine_epsilon(DType t) {
  return t == kF64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

/// The gradients of x, weight and bias, and the sum of the first over the rows, those that are wanted.
std::array<Tensor, 4> gradients(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                const Tensor& rstd, const Tensor& addend, int64_t normalized_dims,
                                const std::array<bool, 4>& wanted) {
  Dims shape;
  for (int64_t d = x.dim() - normalized_dims; d < x.dim(); ++d) shape.push_back(x.size(d));
  const int64_t n = checked_numel(shape);
  const Tensor g = grad.contiguous(), from = x.contiguous(), w = contiguous_or_none(weight),
               added = contiguous_or_none(addend);
  std::array<Tensor, 4> out;
  if (wanted[0]) out[0] = empty(x.sizes(), x.options());
  if (wanted[1]) out[1] = empty(shape, x.options());
  if (wanted[2]) out[2] = empty(shape, x.options());
  if (wanted[3]) out[3] = empty(shape, x.options());
  if (n == 0) return out;
  backend(x).norm->layer_norm_backward(
      {wanted[0] ? matrix(out[0], n) : kernels::Array{}, vector(out[1]), vector(out[2]), matrix(g, n), matrix(from, n),
       vector(w), vector(mean), vector(rstd), added.defined() ? matrix(added, n) : kernels::Array{}, vector(out[3])},
      current_stream(x.device()));
  return out;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias, double eps) {
  const Running running("layer_norm");
  check(x, shape, weight, bias);
  return door::call(
      Op::layer_norm, {&x, &weight, &bias}, [&] { return normalise<3>(x, shape, weight, bias, eps); },
      static_cast<int64_t>(shape.size()), eps)[0];
}

Tensor rms_norm(const Tensor& x, const Dims& shape, const Tensor& weight, std::optional<double> eps) {
  const Running running("rms_norm");
  check(x, shape, weight, {});
  const double epsilon = eps.value_or(machine_epsilon(x.dtype()));
  return door::call(
      Op::rms_norm, {&x, &weight}, [&] { return normalise<2>(x, shape, weight, {}, epsilon); },
      static_cast<int64_t>(shape.size()), epsilon)[0];
}

NormGrads layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                              const Tensor& rstd, int64_t normalized_dims, bool want_x, bool want_weight,
                              bool want_bias) {
  const Running running("layer_norm_backward");
  const auto result = door::call(
      Op::layer_norm_backward, {&grad, &x, &weight, &mean, &rstd},
      [&] {
        return gradients(grad, x, weight, mean, rstd, {}, normalized_dims, {want_x, want_weight, want_bias, false});
      },
      normalized_dims, want_x, want_weight, want_bias);
  return {result[0], result[1], result[2]};
}

bool has_layer_norm_backward_with_addend(Device device, bool with_sum) {
  const kernels::NormKernels& norm = *kernels::backend(device).norm;
  return norm.takes_addend && (norm.gives_sum || !with_sum);
}

NormGradsWithSum layer_norm_backward_with_addend(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                 const Tensor& mean, const Tensor& rstd, const Tensor& addend,
                                                 int64_t normalized_dims, bool want_weight, bool want_bias,
                                                 bool want_sum) {
  const Running running("layer_norm_backward");
  const auto result =
      gradients(grad, x, weight, mean, rstd, addend, normalized_dims, {true, want_weight, want_bias, want_sum});
  return {{result[0], result[1], result[2]}, result[3]};
}

}  // namespace lorry
