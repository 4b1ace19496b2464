#include "lorry/ops/creation.h"

#include "lorry/base/macros.h"
#include "lorry/ops/array.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"

namespace lorry {
namespace {

int64_t bytes_of(const Layout& layout, DType dtype) {
  require_dtype(dtype);
  return layout.extent() * size_of(dtype);
}

// Inlined: part of every call that makes a tensor.
LORRY_INLINE Tensor allocate(const Layout& layout, const Options& options) {
  return door::call(
      Op::empty, {},
      [&] {
        return Tensor(make_counted<detail::TensorNode>(
            Storage::allocate(options.device, bytes_of(layout, options.dtype)), layout, 0, options.dtype));
      },
      [&] { return layout.size_list(); }, [&] { return layout.stride_list(); }, options.dtype, options.device);
}

}  // namespace

Tensor empty(const Dims& sizes, const Options& options) {
  const Running running("empty");
  return allocate(Layout::contiguous(sizes), options);
}

Tensor empty_pinned(const Dims& sizes, DType dtype) {
  const Running running("empty_pinned");
  const Layout layout = Layout::contiguous(sizes);
  return Tensor(make_counted<detail::TensorNode>(Storage::allocate_pinned(bytes_of(layout, dtype)), layout, 0, dtype));
}

Tensor empty_managed(const Dims& sizes, const Options& options) {
  const Running running("empty_managed");
  const Layout layout = Layout::contiguous(sizes);
  return Tensor(make_counted<detail::TensorNode>(
      Storage::allocate_managed(options.device, bytes_of(layout, options.dtype)), layout, 0, options.dtype));
}

Tensor empty_like(const Tensor& x) {
  const Running running("empty_like");
  require_defined(x, "x");
  return empty_like(x, x.dtype());
}

Tensor empty_like(const Tensor& x, DType dtype) {
  const Running running("empty_like");
  require_defined(x, "x");
  const Layout& from = x.layout();
  return allocate(from.is_dense() ? from : Layout::contiguous(from.size_list()), {dtype, x.device()});
}

Tensor empty_strided(const Dims& sizes, const Dims& strides, const Options& options) {
  const Running running("empty_strided");
  return allocate(Layout::strided(sizes, strides), options);
}

Tensor detail::empty_of(const Layout& layout, const Options& options) {
  const Running running("empty_strided");
  return allocate(layout, options);
}

Tensor wrapped_number(const Scalar& value) {
  Tensor x = empty({}, {value.is_floating() ? kF64 : value.dtype(), kCPU});
  detail::note_host_write(x);
  if (value.is_floating()) {
    *static_cast<double*>(x.data_ptr()) = value.to<double>();
  } else if (value.is_boolean()) {
    *static_cast<bool*>(x.data_ptr()) = value.to<bool>();
  } else {
    *static_cast<int64_t*>(x.data_ptr()) = value.to<int64_t>();
  }
  x.node()->wrapped_number = true;
  return x;
}

}  // namespace lorry
