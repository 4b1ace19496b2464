#include "lorry/ops/dispatch/out.h"

#include "lorry/base/modes.h"
#include "lorry/tensor/changes.h"

namespace lorry {

void require_no_gradient(const Tensor& out, bool differentiable) {
  require<GradError>(!(mode(kGradMode) && (differentiable || out.requires_grad())),
                     "out= cannot be differentiated; got out: {}; call the form that returns its result, or use NoGrad",
                     out);
}

void require_storable(const Tensor& out, DType result) {
  require<DTypeError>(
      can_store(result, out.dtype()),
      "the written tensor cannot store the result; got {} for a result of {}; expected {} or a wider kind", out, result,
      result);
}

void require_fitting(const Tensor& out, const Dims& sizes) {
  require<ShapeError>(out.sizes() == sizes || (out.numel() == 0 && !out.is_view() && !out.requires_grad()),
                      "out has other sizes than the result; got out: {}; expected {}, or an empty tensor that is "
                      "no view and requires "
                      "no gradient",
                      out, sizes);
}

namespace {

void require_out(const Tensor& out, const OutResult& result, bool differentiable) {
  require_defined(out, "out");
  require<DeviceError>(out.device() == result.device,
                       "out is on another device than the result; got out: {}; expected {}", out, result.device);
  require_no_gradient(out, differentiable);
  require_storable(out, result.dtype);
  require_fitting(out, result.sizes);
  door::require_writable(out);
}

OutResult like(const Tensor& x) { return {x.sizes(), x.dtype(), x.device()}; }

}  // namespace

void fit_out(const Tensor& out, const Dims& sizes) {
  require_fitting(out, sizes);
  if (out.sizes() != sizes) take_over(*out.node(), *empty(sizes, out.options()).node());
}

void prepare_out(const Tensor& out, const OutResult& result, bool differentiable) {
  require_out(out, result, differentiable);
  fit_out(out, result.sizes);
}

const Tensor& write_out(const Tensor& out, const Tensor& result) {
  prepare_out(out, like(result), result.requires_grad());
  return out.copy_(result);
}

std::tuple<Tensor, Tensor> write_out(const Tensor& values, const Tensor& indices,
                                     const std::tuple<Tensor, Tensor>& result) {
  const auto& [computed, found] = result;
  require_out(values, like(computed), computed.requires_grad());
  require_out(indices, like(found), false);
  return {write_out(values, computed), write_out(indices, found)};
}

}  // namespace lorry
