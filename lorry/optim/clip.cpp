#include "lorry/optim/clip.h"

#include <cmath>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/door.h"

namespace lorry::optim {
namespace {

constexpr const char* kNormName = "clip_grad_norm_";

kernels::Norm norm_of(double type) {
  if (type == 1) return kernels::Norm::one;
  if (type == 2) return kernels::Norm::two;
  require<ValueError>(std::isinf(type) && type > 0, "clip_grad_norm_: norm_type is not known; got {}; expected 1, 2 or infinity", type);
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

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  const NoGrad quiet;
  const kernels::Norm norm = norm_of(norm_type);
  require<ValueError>(max_norm >= 0, "clip_grad_norm_: max_norm is out of range; got {}; expected a number >= 0", max_norm);
  const std::vector<Tensor> grads = gradients(parameters, kNormName);
  const Tensor total = empty({}, {.dtype = kF64, .device = grads.empty() ? kCPU : grads[0].device()});
  std::vector<kernels::ListTensor> list;
  for (const Tensor& grad : grads) list.push_back({grad.data_ptr(), grad.numel(), grad.dtype()});
  const kernels::OptimKernels& kernel = *backend(total, kNormName).optim;
  const Stream stream = current_stream(total.device());
  kernel.norm({list, norm, total.data<double>()}, stream);
  if (error_if_nonfinite) {
    const double value = total.item<double>();
    require<ValueError>(std::isfinite(value), "clip_grad_norm_: the norm of the gradients is {}; nothing was clipped; expected a finite norm", value);
  }
  kernel.clip({list, total.data<double>(), max_norm}, stream);
  for (const Tensor& grad : grads) grad.storage().written_by(kNormName);
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  require<ValueError>(clip_value > 0, "clip_grad_value_: clip_value is out of range; got {}; expected a number > 0", clip_value);
  const NoGrad quiet;
  for (const Tensor& grad : gradients(parameters, "clip_grad_value_")) grad.clamp_(Operand(-clip_value), Operand(clip_value));
}

}  // namespace lorry::optim
