#pragma once

// Factories. Every one takes a device and makes its tensor there; nothing passes through the host, but for from_data,
// whose values come from it.

#include <initializer_list>
#include <span>

#include "lorry/tensor/tensor.h"

namespace lorry {

/// Uninitialised, row-major. Throws ShapeError, OutOfMemory.
Tensor empty(const Dims& sizes, const Options& options = {});
/// The same in host memory that a GPU reads at the speed of the link. Throws OutOfMemory.
Tensor empty_pinned(const Dims& sizes, DType dtype);
/// The same in memory of the device that moves to whoever touches it, page by page. Throws OutOfMemory.
Tensor empty_managed(const Dims& sizes, const Options& options = {});
/// Uninitialised with x's sizes and, when x is dense, its strides.
Tensor empty_like(const Tensor& x);
Tensor empty_like(const Tensor& x, DType dtype);
/// Uninitialised memory just large enough for the layout.
Tensor empty_strided(const Dims& sizes, const Dims& strides, const Options& options = {});

Tensor zeros(const Dims& sizes, const Options& options = {});
Tensor ones(const Dims& sizes, const Options& options = {});
/// Without options the dtype is that of the value: bool, i64 or f32.
Tensor full(const Dims& sizes, const Scalar& value);
Tensor full(const Dims& sizes, const Scalar& value, const Options& options);
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype = {});
Tensor ones_like(const Tensor& x, std::optional<DType> dtype = {});
Tensor full_like(const Tensor& x, const Scalar& value, std::optional<DType> dtype = {});

/// start, start + step, ... before end. Without options i64 when all three are whole, else f32; floating values are
/// computed as start + i step in f64. In a dtype of whole numbers start and step first lose their fractions. Throws
/// ValueError when step is 0 or leads away from end.
Tensor arange(const Scalar& end);
Tensor arange(const Scalar& end, const Options& options);
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step = 1);
Tensor arange(const Scalar& start, const Scalar& end, const Options& options);
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const Options& options);
/// `steps` values from start to end, both included. In a dtype of whole numbers the ends first lose their fractions,
/// then the values between; throws ValueError for an end that the dtype does not hold.
Tensor linspace(double start, double end, int64_t steps, const Options& options = {});
/// base to the power of `steps` values from start to end, computed in f64.
Tensor logspace(double start, double end, int64_t steps, double base = 10.0, const Options& options = {});
/// Ones on the main diagonal.
Tensor eye(int64_t n, const Options& options = {});
Tensor eye(int64_t n, int64_t m, const Options& options = {});

// The same into `out`, which has the result's sizes, in its dtype.
const Tensor& empty_out(const Tensor& out, const Dims& sizes);
const Tensor& zeros_out(const Tensor& out, const Dims& sizes);
const Tensor& ones_out(const Tensor& out, const Dims& sizes);
const Tensor& full_out(const Tensor& out, const Dims& sizes, const Scalar& value);
const Tensor& arange_out(const Tensor& out, const Scalar& start, const Scalar& end, const Scalar& step = 1);
const Tensor& arange_out(const Tensor& out, const Scalar& end);
const Tensor& linspace_out(const Tensor& out, double start, double end, int64_t steps);
const Tensor& logspace_out(const Tensor& out, double start, double end, int64_t steps, double base = 10.0);
const Tensor& eye_out(const Tensor& out, int64_t n);
const Tensor& eye_out(const Tensor& out, int64_t n, int64_t m);
/// A 1 at the place each class number names, in a new last dimension. x: i64; num_classes of -1 means the largest + 1.
Tensor one_hot(const Tensor& x, int64_t num_classes = -1);

/// Keeps the elements on and below the diagonal (tril) or on and above it (triu) of the last two dimensions; the rest
/// is 0.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
const Tensor& tril_out(const Tensor& out, const Tensor& x, int64_t diagonal = 0);
const Tensor& triu_out(const Tensor& out, const Tensor& x, int64_t diagonal = 0);

// ---- from the host --------------------------------------------------------------------------------------------------

namespace detail {
/// Numbers in nested braces: {1, 2, 3}, {{1.5, 2}, {3, 4}}. All lists of one level have the same length.
class NestedNumbers {
 public:
  template <class N>
  requires std::is_arithmetic_v<N> NestedNumbers(N number) : values_{Scalar(number)} {}
  NestedNumbers(std::initializer_list<NestedNumbers> list);

  const Dims& sizes() const { return sizes_; }
  const std::vector<Scalar>& values() const { return values_; }

 private:
  Dims sizes_;
  std::vector<Scalar> values_;
};
}  // namespace detail

/// A tensor of numbers in nested braces: tensor({{1.5, 2}, {3, 4}}). Without options bool when all are, i64 when all
/// are whole, else f32. Throws ShapeError for lists of one level that differ in length.
Tensor tensor(const detail::NestedNumbers& numbers);
Tensor tensor(const detail::NestedNumbers& numbers, const Options& options);

namespace detail {
/// A copy of `count` elements of `dtype` in host memory.
Tensor from_bytes(const void* data, int64_t count, DType dtype, const Dims& sizes, Device device);
}  // namespace detail

/// A copy of elements in host memory; their number is the product of sizes. T is any type that a DType stores.
template <class T>
Tensor from_data(const T* data, const Dims& sizes, Device device = default_device()) {
  return detail::from_bytes(data, checked_numel(sizes), dtype_of<T>, sizes, device);
}
template <class T>
Tensor from_data(const std::vector<T>& data, const Dims& sizes, Device device = default_device()) {
  if constexpr (std::is_same_v<T, bool>) {  // std::vector<bool> has no array of bool inside
    const std::vector<uint8_t> bytes(data.begin(), data.end());
    return detail::from_bytes(bytes.data(), static_cast<int64_t>(bytes.size()), kBool, sizes, device);
  } else {
    return detail::from_bytes(data.data(), static_cast<int64_t>(data.size()), dtype_of<T>, sizes, device);
  }
}
template <class T>
Tensor from_data(const std::vector<T>& data, Device device = default_device()) {
  return from_data(data, {static_cast<int64_t>(data.size())}, device);
}

/// A tensor over memory of the caller's, which stays valid until `deleter(data)` is called, once, when the last view is
/// gone. Strides are row-major unless given, in elements and >= 0. The memory is the CPU's unless the options say
/// otherwise.
Tensor from_blob(void* data, const Dims& sizes, const Options& options = {.device = kCPU},
                 std::function<void(void*)> deleter = {});
Tensor from_blob(void* data, const Dims& sizes, const Dims& strides, const Options& options = {.device = kCPU},
                 std::function<void(void*)> deleter = {});

namespace detail {
/// empty_strided without checks, for a layout that some tensor has.
Tensor empty_of(const Layout& layout, const Options& options);
}  // namespace detail

}  // namespace lorry
