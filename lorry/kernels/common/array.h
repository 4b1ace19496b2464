#pragma once

// A tensor's memory as kernels get it: an address, an element type and a layout. Kernels never see a Tensor, never
// allocate results, and never check user input: the operators have done this before.

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
