#include "lorry/ops/out.h"

#include "lorry/base/modes.h"
#include "lorry/tensor/changes.h"

namespace lorry {

void require_no_gradient(const Tensor& out, bool differentiable, const char* where) {
  require<GradError>(
      !(mode(kGradMode) && (differentiable || out.requires_grad())),
      "{}: out= cannot be differentiated; got out: {}; call the form that returns its result, or use NoGrad", where,
      out);
}

void require_storable(const Tensor& out, DType result, const char* where) {
  require<DTypeError>(
      can_store(result, out.dtype()),
      "{}: the written tensor cannot store the result; got {} for a result of {}; expected {} or a wider kind", where,
      out, result, result);
}

void require_fitting(const Tensor& out, const Dims& sizes, const char* where) {
  require<ShapeError>(out.sizes() == sizes || (out.numel() == 0 && !out.is_view() && !out.requires_grad()),
                      "{}: out has other sizes than the result; got out: {}; expected {}, or an empty tensor that is "
                      "no view and requires "
                      "no gradient",
                      where, out, sizes);
}

namespace {

void require_out(const Tensor& out, const OutResult& result, bool differentiable, const char* where) {
  require_defined(out, where, "out");
  require<DeviceError>(out.device() == result.device,
                       "{}: out is on another device than the result; got out: {}; expected {}", where, out,
                       result.device);
  require_no_gradient(out, differentiable, where);
  require_storable(out, result.dtype, where);
  require_fitting(out, result.sizes, where);
  door::require_writable(out, where);
}

OutResult like(const Tensor& x) { return {x.sizes(), x.dtype(), x.device()}; }

}  // namespace

void fit_out(const Tensor& out, const Dims& sizes, const char* where) {
  require_fitting(out, sizes, where);
  if (out.sizes() != sizes) take_over(*out.node(), *empty(sizes, out.options()).node());
}

void prepare_out(const Tensor& out, const OutResult& result, bool differentiable, const char* where) {
  require_out(out, result, differentiable, where);
  fit_out(out, result.sizes, where);
}

const Tensor& write_out(const Tensor& out, const Tensor& result, const char* where) {
  prepare_out(out, like(result), result.requires_grad(), where);
  return out.copy_(result);
}

std::tuple<Tensor, Tensor> write_out(const Tensor& values, const Tensor& indices,
                                     const std::tuple<Tensor, Tensor>& result, const char* where) {
  const auto& [computed, found] = result;
  require_out(values, like(computed), computed.requires_grad(), where);
  require_out(indices, like(found), false, where);
  return {write_out(values, computed, where), write_out(indices, found, where)};
}

}  // namespace lorry
