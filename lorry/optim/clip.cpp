#include "lorry/optim/clip.h"

#include <cmath>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/door.h"

namespace lorry::optim {
namespace {

constexpr const char* kNormName = "clip_grad_norm_";

kernels::Norm norm_of(double type, const char* where) {
  if (type == 1) return kernels::Norm::one;
  if (type == 2) return kernels::Norm::two;
  require<ValueError>(std::isinf(type) && type > 0, "{}: norm_type is not known; got {}; expected 1, 2 or infinity", where, type);
  return kernels::Norm::inf;
}

/// The gradients there are, each without gaps; one with gaps or repeated elements is replaced by a copy.
std::vector<Tensor> gradients(const std::vector<Tensor>& parameters, const char* where) {
  std::vector<Tensor> found;
  for (const Tensor& param : parameters) {
    require_defined(param, where, "a parameter");
    Tensor grad = param.grad();
    if (!grad.defined()) continue;
    grad = grad.detach();
    if (!grad.layout().is_dense()) {
      grad = grad.contiguous();
      param.set_grad(grad);
    }
    door::require_writable(grad, where);
    if (!found.empty()) require_same_device(found[0], grad, where);
    found.push_back(grad);
  }
  return found;
}

std::vector<kernels::ListTensor> listed(const std::vector<Tensor>& tensors) {
  std::vector<kernels::ListTensor> list;
  for (const Tensor& x : tensors) list.push_back({x.data_ptr(), x.numel(), x.dtype()});
  return list;
}

Tensor norm_of(const std::vector<Tensor>& tensors, std::span<const kernels::ListTensor> list, kernels::Norm norm, const char* where) {
  const Tensor total = empty({}, {.dtype = kF64, .device = tensors.empty() ? default_device() : tensors[0].device()});
  backend(total, where).optim->norm({list, norm, total.data<double>()}, current_stream(total.device()));
  return total;
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type) {
  constexpr const char* kName = "get_total_norm";
  const NoGrad quiet;
  std::vector<Tensor> dense;
  for (const Tensor& x : tensors) {
    require_defined(x, kName, "a tensor");
    require<DTypeError>(is_floating(x.dtype()), "get_total_norm: a tensor is not floating; got {}", x);
    dense.push_back(x.layout().is_dense() ? x : x.contiguous());
    require_same_device(dense[0], x, kName);
  }
  return norm_of(dense, listed(dense), norm_of(norm_type, kName), kName);
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  const NoGrad quiet;
  const kernels::Norm norm = norm_of(norm_type, kNormName);
  require<ValueError>(max_norm >= 0, "clip_grad_norm_: max_norm is out of range; got {}; expected a number >= 0", max_norm);
  const std::vector<Tensor> grads = gradients(parameters, kNormName);
  const std::vector<kernels::ListTensor> list = listed(grads);
  const Tensor total = norm_of(grads, list, norm, kNormName);
  if (error_if_nonfinite) {
    const double value = total.item<double>();
    require<ValueError>(std::isfinite(value), "clip_grad_norm_: the norm of the gradients is {}; nothing was clipped; expected a finite norm", value);
  }
  backend(total, kNormName).optim->clip({list, total.data<double>(), max_norm}, current_stream(total.device()));
  for (const Tensor& grad : grads) grad.storage().written_by(kNormName);
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  require<ValueError>(clip_value > 0, "clip_grad_value_: clip_value is out of range; got {}; expected a number > 0", clip_value);
  const NoGrad quiet;
  for (const Tensor& grad : gradients(parameters, "clip_grad_value_")) grad.clamp_(Operand(-clip_value), Operand(clip_value));
}

}  // namespace lorry::optim
