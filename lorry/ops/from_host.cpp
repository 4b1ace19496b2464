// Factories whose values or memory come from the host program.

#include <cstring>

#include "lorry/device/device.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"

namespace lorry {

detail::NestedNumbers::NestedNumbers(std::initializer_list<NestedNumbers> list) {
  const Running running("tensor");
  sizes_.push_back(static_cast<int64_t>(list.size()));
  const NestedNumbers* first = list.begin();
  for (const NestedNumbers& item : list) {
    require<ShapeError>(item.sizes_ == first->sizes_,
                        "nested lists differ in shape; got {} beside {}; expected one shape", item.sizes_,
                        first->sizes_);
    values_.insert(values_.end(), item.values_.begin(), item.values_.end());
  }
  if (first != list.end())
    for (const int64_t size : first->sizes_) sizes_.push_back(size);
}

Tensor tensor(const detail::NestedNumbers& numbers) {
  const Running running("tensor");
  DType dtype = numbers.values().empty() ? kF32 : kBool;
  for (const Scalar& v : numbers.values()) dtype = promote(dtype, v.dtype());
  return tensor(numbers, {.dtype = dtype});
}

Tensor tensor(const detail::NestedNumbers& numbers, const Options& options) {
  const Running running("tensor");
  const Tensor host = empty(numbers.sizes(), {options.dtype, kCPU});
  detail::note_host_write(host);
  visit(options.dtype, [&]<class T>(Type<T>) {
    T* to = static_cast<T*>(host.data_ptr());
    for (const Scalar& v : numbers.values()) {
      if constexpr (std::is_same_v<Accumulate<T>, T>) {
        *to++ = v.to<T>();
      } else {
        *to++ = T(v.to<float>());
      }
    }
  });
  return host.to(options.device);
}

Tensor detail::from_bytes(const void* data, int64_t count, DType dtype, const Dims& sizes, Device device) {
  const Running running("from_data");
  require<ShapeError>(checked_numel(sizes) == count, "sizes do not fit; got {} for {} elements", sizes, count);
  const Tensor host = empty(sizes, {dtype, kCPU});
  note_host_write(host);
  if (count > 0) std::memcpy(host.data_ptr(), data, static_cast<size_t>(host.nbytes()));
  return host.to(device);
}

Tensor from_blob(void* data, const Dims& sizes, const Options& options, std::function<void(void*)> deleter) {
  return from_blob(data, sizes, Layout::contiguous(sizes).stride_list(), options, std::move(deleter));
}

Tensor from_blob(void* data, const Dims& sizes, const Dims& strides, const Options& options,
                 std::function<void(void*)> deleter) {
  const Running running("from_blob");
  device::require_device(options.device, "from_blob");
  require<DeviceError>(!options.device.is_meta(),
                       "memory on meta has no elements; got {}; expected cpu or cuda; make "
                       "the tensor with empty_strided",
                       options.device);
  require_dtype(options.dtype);
  for (const int64_t s : strides)
    require<ShapeError>(s >= 0, "negative stride; got {}; expected every stride >= 0", strides);
  const Layout layout = Layout::strided(sizes, strides);
  require<ValueError>(data != nullptr || layout.numel() == 0, "null address; got sizes {}", sizes);
  const auto address = reinterpret_cast<uintptr_t>(data);
  require<ValueError>(address % static_cast<uintptr_t>(size_of(options.dtype)) == 0,
                      "address is not aligned for {}; got {:#x}", options.dtype, address);
  struct Owner {
    std::function<void(void*)> deleter;
    void* data;
  };
  auto owner = std::unique_ptr<Owner>(new Owner{std::move(deleter), data});
  auto storage = Storage::foreign(
      options.device, data, layout.extent() * size_of(options.dtype),
      [](void* context) {
        const std::unique_ptr<Owner> last(static_cast<Owner*>(context));
        if (last->deleter) last->deleter(last->data);
      },
      owner.get());
  owner.release();
  return Tensor(make_counted<detail::TensorNode>(std::move(storage), layout, 0, options.dtype));
}

}  // namespace lorry
