#pragma once

// From tensors to what kernels take.

#include "lorry/kernels/backend.h"
#include "lorry/kernels/common/array.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

inline kernels::Array array(const Tensor& x) { return {x.data_ptr(), x.dtype(), x.node()->layout}; }

/// The elements of an f64 tensor on any device; null for an undefined one.
inline double* doubles(const Tensor& x) { return x.defined() ? static_cast<double*>(x.data_ptr()) : nullptr; }

/// The kernels for x's device. Throws DeviceError.
inline const kernels::Backend& backend(const Tensor& x) { return kernels::backend(x.device()); }

/// Refuses an undefined operand and operands on different devices.
inline void require_defined(const Tensor& x, const char* operand) {
  require<ValueError>(x.defined(), "{} is an undefined tensor; expected a tensor", operand);
}
/// Refuses a value that is none of the dtypes, such as a wrong number converted to one.
inline void require_dtype(DType t) {
  const int number = static_cast<int>(t);
  require<DTypeError>(number < kDTypeCount, "no such dtype; got number {}; expected one of the {}, from bool to f64",
                      number, kDTypeCount);
}
inline void require_same_device(const Tensor& a, const Tensor& b) {
  require<DeviceError>(a.device() == b.device(),
                       "operands are on different devices; got {} and {}; move one with to(device)", a, b);
}

}  // namespace lorry
