#pragma once

// What a kernel sees of a tensor: an address, an element type and a layout. Kernels never see Tensor, never allocate
// results, and never check user input: operators have done both before they call.

#include "lorry/layout/dtype.h"
#include "lorry/layout/layout.h"

namespace lorry::kernels {

struct Array {
  void* data = nullptr;  ///< the address of the first element (the offset is already added)
  DType dtype = kF32;
  Layout layout;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int64_t numel() const { return layout.numel(); }
  int64_t size(int dim) const { return layout.sizes[dim]; }
  int64_t stride(int dim) const { return layout.strides[dim]; }
};

}  // namespace lorry::kernels
