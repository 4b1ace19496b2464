#pragma once

// The one place that launches kernels. A launch runs on the stream it is given, with the arguments converted to the
// kernel's parameter types; it throws what the launch or an earlier kernel met with, and costs the driver's launch and
// a few nanoseconds.

#include <cuda_runtime_api.h>

#include <tuple>
#include <utility>

#include "lorry/base/modes.h"
#include "lorry/device/cuda/device_assert.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/launches.h"

namespace lorry::cuda {

struct Shape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  ///< dynamic shared memory; above 48 KB call allow_shared first
};

/// What comes before any work on a stream, a library's too: throws what an earlier kernel met with, and notes the
/// operator for the message of a fault. The stream's device is current while the guard lives.
inline DeviceGuard prepare(Stream stream) {
  throw_assert(stream.device.index);
  detail::g_in_flight.note(t_operator);
  return DeviceGuard(stream.device.index);
}

template <class... Parameters, class... Arguments>
void launch(Stream stream, const Shape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  const DeviceGuard guard = prepare(stream);
  std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  const cudaError_t error = std::apply(
      [&](auto&... value) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&value))..., nullptr};
        return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), shape.grid, shape.block, pointers,
                                shape.shared_bytes, handle(stream));
      },
      values);
  check(error, "cudaLaunchKernel");
  ++device::t_launches;
  if (detail::g_blocking) [[unlikely]]
    detail::wait_after_launch(stream);
}

/// The same for arguments of exactly the kernel's parameter types, which are not copied on the way: some fill 32 KB.
template <class... Parameters>
void launch_with(Stream stream, const Shape& shape, void (*kernel)(Parameters...),
                 const std::remove_cv_t<Parameters>&... arguments) {
  const DeviceGuard guard = prepare(stream);
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), shape.grid, shape.block, pointers, shape.shared_bytes,
                         handle(stream)),
        "cudaLaunchKernel");
  ++device::t_launches;
  if (detail::g_blocking) [[unlikely]]
    detail::wait_after_launch(stream);
}

/// Fills `count` bytes from `to` on.
inline void fill_bytes(Stream stream, void* to, unsigned char byte, int64_t count) {
  const DeviceGuard guard = prepare(stream);
  check(cudaMemsetAsync(to, byte, static_cast<size_t>(count), handle(stream)), "cudaMemsetAsync");
}

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
