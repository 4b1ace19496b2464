#pragma once

// The one place that puts work on a stream: kernels, calls of libraries, copies, fills and graphs. Each throws
// what an earlier kernel met with, notes the running operator for the message of a fault, enqueues, and describes what
// it enqueued to the thread's observers (device/launches.h). On top of the driver's call that is a few nanoseconds.

#include <cuda_runtime_api.h>

#include <span>
#include <tuple>
#include <utility>

#include "lorry/base/modes.h"
#include "lorry/device/cuda/device_assert.h"
#include "lorry/device/cuda/parameters.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/launches.h"

namespace lorry::cuda {

/// How a kernel is launched.
struct Shape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  ///< dynamic shared memory; above 48 KB call allow_shared first
  dim3 cluster = {1, 1, 1};
  /// May start before the kernel ahead of it on the stream ends (programmatic dependent launch). The kernel calls
  /// cudaGridDependencySynchronize() before it touches what that one wrote.
  bool programmatic = false;
};

/// What comes before any work on a stream: throws what an earlier kernel met with, and notes the operator for the
/// message of a fault. The stream's device is current while the guard lives.
inline DeviceGuard prepare(Stream stream) {
  throw_assert(stream.device.index);
  detail::g_in_flight.note(t_operator);
  return DeviceGuard(stream.device.index);
}

namespace detail {
/// values: the addresses of `count` parameters of these types.
void launch(Stream stream, const Shape& shape, const void* kernel, void** values, const ParameterType* types,
            int count);
void announce_library(Stream stream, const char* function, std::span<const void* const> addresses);

/// One more than there are parameters: an array has at least one element.
template <class... Parameters>
inline constexpr ParameterType kParameterTypes[] = {parameter_type<Parameters>()..., {}};
}  // namespace detail

/// Arguments of exactly the kernel's parameter types, which are not copied on the way: some fill 32 KB.
template <class... Parameters>
void launch_with(Stream stream, const Shape& shape, void (*kernel)(Parameters...),
                 const std::remove_cv_t<Parameters>&... arguments) {
  void* values[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  detail::launch(stream, shape, reinterpret_cast<const void*>(kernel), values,
                 detail::kParameterTypes<std::remove_cv_t<Parameters>...>, sizeof...(Parameters));
}

/// The same with arguments that are converted to the parameters' types.
template <class... Parameters, class... Arguments>
void launch(Stream stream, const Shape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  const std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  std::apply([&](const auto&... value) { launch_with(stream, shape, kernel, value...); }, values);
}

/// A kernel that was compiled at run time, whose parameters have these types. function: a cudaKernel_t.
template <class... Parameters>
struct CompiledKernel {
  const void* function = nullptr;
};
template <class... Parameters>
void launch_with(Stream stream, const Shape& shape, const CompiledKernel<Parameters...>& kernel,
                 const Parameters&... arguments) {
  void* values[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  detail::launch(stream, shape, kernel.function, values, detail::kParameterTypes<Parameters...>, sizeof...(Parameters));
}

/// A kernel that was compiled at run time, with one parameter. `kernel`: a cudaKernel_t. type: of the parameter's
/// bytes, and where addresses are among them.
inline void launch_compiled(Stream stream, const Shape& shape, const void* kernel, void* argument,
                            const ParameterType& type) {
  void* values[] = {argument, nullptr};
  detail::launch(stream, shape, kernel, values, &type, 1);
}

/// Runs `call`, which has a library enqueue work on the stream, and returns what it returns: whether that succeeded.
/// function: the library's. addresses: all that it is handed, null where an operand is left out.
template <class Call>
bool library(Stream stream, const char* function, std::span<const void* const> addresses, const Call& call) {
  const DeviceGuard guard = prepare(stream);
  if (!call()) return false;
  if (device::launches_observed()) [[unlikely]]
    detail::announce_library(stream, function, addresses);
  if (detail::g_blocking) [[unlikely]]
    detail::wait_after_launch(stream);
  return true;
}

/// Fills `count` bytes from `to` on.
void fill_bytes(Stream stream, void* to, unsigned char byte, int64_t count);
/// The same for those who must not throw.
cudaError_t try_fill_bytes(Stream stream, void* to, unsigned char byte, int64_t count) noexcept;

/// See device::copy.
void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, Stream stream);
cudaError_t try_copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes,
                     Stream stream) noexcept;

/// Runs a graph.
void launch_graph(Stream stream, cudaGraphExec_t graph);

/// Lets a kernel use this much dynamic shared memory. Once a kernel and device.
template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), size_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
}

/// Blocks of `block` threads that give each of `items` a thread, at least 1 and at most `waves` full loads of the
/// device.
inline unsigned blocks_for(int64_t items, int block, int device, int waves = 8) {
  const int64_t wanted = (items + block - 1) / block;
  const int64_t most = int64_t{1} * properties(device).multiprocessors * (2048 / block) * waves;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

}  // namespace lorry::cuda
