#pragma once

// The end of every out= form that computes its result first: the checks that PyTorch makes, then one copy.

#include "lorry/base/modes.h"
#include "lorry/ops/array.h"

namespace lorry {

/// Copies `result` into `out`. Throws ShapeError when the sizes differ, DTypeError when out cannot store the result's kind of
/// number, GradError when gradients are being recorded for out.
inline const Tensor& write_out(const Tensor& out, const Tensor& result, const char* where) {
  require_defined(out, where, "out");
  require<GradError>(!(mode(kGradMode) && (out.requires_grad() || result.requires_grad())),
                     "{}: out= cannot be differentiated; got out: {}; call the form that returns its result, or use NoGrad", where, out);
  require<ShapeError>(out.sizes() == result.sizes(), "{}: out has other sizes than the result; got {}; expected {}", where, out, result.sizes());
  require<DTypeError>(can_store(result.dtype(), out.dtype()), "{}: out cannot store the result; got {}; expected {} or a wider kind", where, out, result.dtype());
  out.copy_(result);
  return out;
}

}  // namespace lorry
