#pragma once

// The only functions that enqueue work on a stream: kernels, library calls, copies, fills and graphs. Each throws an
// error that an earlier kernel has reported, notes the running operator for the message of a later fault, enqueues the
// work, and describes it to the thread's observers (device/launches.h). This adds a few nanoseconds to the driver's
// call.

#include <cuda_runtime_api.h>

#include <span>
#include <tuple>
#include <utility>

#include "lorry/base/modes.h"
#include "lorry/device/cuda/begin_programmatic.h"
#include "lorry/device/cuda/capability.h"
#include "lorry/device/cuda/device_assert.h"
#include "lorry/device/cuda/parameters.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/launches.h"

namespace lorry::cuda {

/// The grid and the attributes of a kernel launch.
struct Shape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  ///< dynamic shared memory; above 48 KB call allow_shared first
  dim3 cluster = {1, 1, 1};
  /// The kernel may start before the work in front of it on the stream ends, where device and code are of compute
  /// capability 9.0 or later. All blocks must call begin_programmatic() before they touch memory that any other work
  /// may write, even if they use nothing of the kernel in front: that kernel, too, may still be waiting, and the next
  /// one waits for this one only. If they do not call it: false.
  bool programmatic = true;
};

/// Must be called before any work is enqueued: throws an error that an earlier kernel has reported, and notes the
/// operator for the message of a fault. The stream's device is current during the guard's lifetime.
inline DeviceGuard prepare(Stream stream) {
  throw_assert(stream.device.index);
  detail::g_in_flight.note(t_operator);
  return DeviceGuard(stream.device.index);
}

namespace detail {
/// values: the addresses of `count` parameters of these types. capability: what the kernel is compiled for.
void launch(Stream stream, const Shape& shape, const void* kernel, void** values, const ParameterType* types, int count,
            int capability);
void announce_library(Stream stream, const char* function, std::span<const void* const> addresses);

/// One element more than parameters, because an array needs at least one.
template <class... Parameters>
inline constexpr ParameterType kParameterTypes[] = {parameter_type<Parameters>()..., {}};
}  // namespace detail

/// Launches a kernel with arguments of exactly its parameter types. They are not copied first: some are 32 KB large.
template <int kCompiled = kCompiledFor, class... Parameters>
void launch_with(Stream stream, const Shape& shape, void (*kernel)(Parameters...),
                 const std::remove_cv_t<Parameters>&... arguments) {
  void* values[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  detail::launch(stream, shape, reinterpret_cast<const void*>(kernel), values,
                 detail::kParameterTypes<std::remove_cv_t<Parameters>...>, sizeof...(Parameters), kCompiled);
}

/// Launches a kernel; arguments are converted to the parameter types.
template <int kCompiled = kCompiledFor, class... Parameters, class... Arguments>
void launch(Stream stream, const Shape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  const std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  std::apply([&](const auto&... value) { launch_with<kCompiled>(stream, shape, kernel, value...); }, values);
}

/// A kernel compiled at run time, with the types of its parameters. function: a cudaKernel_t.
template <class... Parameters>
struct CompiledKernel {
  const void* function = nullptr;
};
template <class... Parameters>
void launch_with(Stream stream, const Shape& shape, const CompiledKernel<Parameters...>& kernel,
                 const Parameters&... arguments) {
  void* values[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  detail::launch(stream, shape, kernel.function, values, detail::kParameterTypes<Parameters...>, sizeof...(Parameters),
                 INT_MAX);
}

/// Launches a kernel compiled at run time that has one parameter. kernel: a cudaKernel_t. type: the parameter's size,
/// and where it holds addresses.
inline void launch_compiled(Stream stream, const Shape& shape, const void* kernel, void* argument,
                            const ParameterType& type) {
  void* values[] = {argument, nullptr};
  detail::launch(stream, shape, kernel, values, &type, 1, INT_MAX);
}

/// Runs `call`, in which a library enqueues work on the stream; returns its result: whether it succeeded.
/// function: the library function's name. addresses: all that are passed to it; null for an absent operand.
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

/// Fills `count` bytes, starting at `to`.
void fill_bytes(Stream stream, void* to, unsigned char byte, int64_t count);
/// The same for callers that must not throw.
cudaError_t try_fill_bytes(Stream stream, void* to, unsigned char byte, int64_t count) noexcept;

/// See device::copy.
void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, Stream stream);
cudaError_t try_copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes,
                     Stream stream) noexcept;

/// Runs a graph.
void launch_graph(Stream stream, cudaGraphExec_t graph);

/// Allows a kernel this much dynamic shared memory. Call once per kernel and device.
template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), size_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
}

/// The number of blocks of `block` threads for one thread per item: at least 1, at most `waves` times as many as the
/// device runs at once.
inline unsigned blocks_for(int64_t items, int block, int device, int waves = 8) {
  const int64_t needed = (items + block - 1) / block;
  const int64_t most = int64_t{1} * properties(device).multiprocessors * (2048 / block) * waves;
  return static_cast<unsigned>(needed < 1 ? 1 : needed < most ? needed : most);
}

}  // namespace lorry::cuda
