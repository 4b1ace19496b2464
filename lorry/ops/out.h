#pragma once

// The end of every out= form that computes its result first: the checks that PyTorch makes, then one copy.

#include "lorry/base/modes.h"
#include "lorry/ops/array.h"

namespace lorry {

/// Throws DeviceError when `out` is on another device, ShapeError when the sizes differ, DTypeError when `out` cannot store the
/// result's kind of number, GradError when gradients are being recorded.
inline void require_out(const Tensor& out, const Tensor& result, const char* where) {
  require_defined(out, where, "out");
  require_same_device(out, result, where);
  require<GradError>(!(mode(kGradMode) && (out.requires_grad() || result.requires_grad())),
                     "{}: out= cannot be differentiated; got out: {}; call the form that returns its result, or use NoGrad", where, out);
  require<ShapeError>(out.sizes() == result.sizes(), "{}: out has other sizes than the result; got {}; expected {}", where, out, result.sizes());
  require<DTypeError>(can_store(result.dtype(), out.dtype()), "{}: out cannot store the result; got {}; expected {} or a wider kind", where, out,
                      result.dtype());
}

/// Copies `result` into `out`.
inline const Tensor& write_out(const Tensor& out, const Tensor& result, const char* where) {
  require_out(out, result, where);
  out.copy_(result);
  return out;
}

/// The same for operators that return values and where they were. Nothing is written unless both fit.
inline std::tuple<Tensor, Tensor> write_out(const Tensor& values, const Tensor& indices, const std::tuple<Tensor, Tensor>& result, const char* where) {
  require_out(values, std::get<0>(result), where);
  require_out(indices, std::get<1>(result), where);
  values.copy_(std::get<0>(result));
  indices.copy_(std::get<1>(result));
  return {values, indices};
}

}  // namespace lorry
