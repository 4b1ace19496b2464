#pragma once

// layer_norm and rms_norm over contiguous rows. rms_norm is layer_norm that does not centre: `mean` is then absent.

#include "lorry/device/stream.h"
#include "lorry/kernels/array.h"

namespace lorry::kernels {

struct NormArgs {
  Array out, x;        ///< contiguous [rows, n]
  Array weight, bias;  ///< contiguous [n], dtype of x; each may be absent (null data)
  Array mean, rstd;    ///< [rows], written: f64 for f64, else f32
  double eps = 0;
};

struct NormBackwardArgs {
  Array grad_x, grad_weight, grad_bias;  ///< written; each may be absent
  Array grad, x;                         ///< contiguous [rows, n]
  Array weight;                          ///< [n], may be absent
  Array mean, rstd;                      ///< [rows], as layer_norm left them
};

struct NormKernels {
  void (*layer_norm)(const NormArgs&, const Stream&) = nullptr;
  void (*layer_norm_backward)(const NormBackwardArgs&, const Stream&) = nullptr;
};

}  // namespace lorry::kernels
