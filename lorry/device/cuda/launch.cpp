#include "lorry/device/cuda/launch.h"

#include <algorithm>
#include <array>
#include <vector>

namespace lorry::cuda {
namespace {

using device::Launch, device::LaunchAddress, device::LaunchParameter;

/// Collects the addresses of one parameter after the other.
class Collector final : public AddressVisitor {
 public:
  void take(int32_t parameter, const void* value, const ParameterType& type) {
    if (type.addresses == nullptr) return;
    parameter_ = parameter;
    value_ = static_cast<const char*>(value);
    type.addresses(value, *this);
  }
  const std::vector<LaunchAddress>& addresses() const { return addresses_; }

 private:
  void found(const void* const* address) override {
    if (*address == nullptr) return;
    const auto offset = reinterpret_cast<const char*>(address) - value_;
    addresses_.push_back({*address, parameter_, static_cast<uint32_t>(offset)});
  }

  int32_t parameter_ = 0;
  const char* value_ = nullptr;
  std::vector<LaunchAddress> addresses_;
};

const char* symbol_of(const void* kernel) {
#if CUDART_VERSION >= 12030
  const char* name = nullptr;
  if (cudaFuncGetName(&name, kernel) == cudaSuccess) return name;
  cudaGetLastError();
#endif
  return "kernel";
}

void put(uint32_t (&to)[3], dim3 from) { to[0] = from.x, to[1] = from.y, to[2] = from.z; }

[[gnu::cold, gnu::noinline]] void announce_kernel(Stream stream, const Shape& shape, const void* kernel,
                                                  void* const* values, const ParameterType* types, int count) {
  Collector collector;
  std::vector<LaunchParameter> parameters;
  for (int i = 0; i < count; ++i) {
    parameters.push_back({values[i], types[i].bytes});
    collector.take(i, values[i], types[i]);
  }
  Launch launch{.stream = stream,
                .operator_name = t_operator,
                .function = symbol_of(kernel),
                .addresses = collector.addresses(),
                .kernel = kernel,
                .shared_bytes = static_cast<int64_t>(shape.shared_bytes),
                .programmatic = shape.programmatic,
                .parameters = parameters};
  put(launch.grid, shape.grid), put(launch.block, shape.block), put(launch.cluster, shape.cluster);
  device::announce(launch);
}

[[gnu::cold, gnu::noinline]] void announce_bytes(Launch::Kind kind, Stream stream, const char* function,
                                                 std::span<const LaunchAddress> addresses, int64_t bytes) noexcept {
  device::announce({.kind = kind,
                    .stream = stream,
                    .operator_name = t_operator,
                    .function = function,
                    .addresses = addresses,
                    .bytes = bytes});
}

constexpr int kProgrammaticCapability = 90;  ///< the least that has programmatic dependent launch

}  // namespace

void detail::launch(Stream stream, const Shape& shape, const void* kernel, void** values, const ParameterType* types,
                    int count, int capability) {
  const DeviceGuard guard = prepare(stream);
  std::array<cudaLaunchAttribute, 2> attributes;
  unsigned set = 0;
  const int usable = std::min(capability, properties(stream.device.index).compute_capability);
  if (shape.programmatic && usable >= kProgrammaticCapability) {
    attributes[set].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[set++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster.x != 1 || shape.cluster.y != 1 || shape.cluster.z != 1) {
    attributes[set].id = cudaLaunchAttributeClusterDimension;
    attributes[set++].val.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
  }
  const cudaLaunchConfig_t configuration{.gridDim = shape.grid,
                                         .blockDim = shape.block,
                                         .dynamicSmemBytes = shape.shared_bytes,
                                         .stream = handle(stream),
                                         .attrs = attributes.data(),
                                         .numAttrs = set};
  check(cudaLaunchKernelExC(&configuration, kernel, values), "cudaLaunchKernelExC");
  if (device::launches_observed()) [[unlikely]]
    announce_kernel(stream, shape, kernel, values, types, count);
  if (g_blocking) [[unlikely]]
    wait_after_launch(stream);
}

void detail::announce_library(Stream stream, const char* function, std::span<const void* const> addresses) {
  std::vector<LaunchAddress> known;
  for (const void* address : addresses)
    if (address != nullptr) known.push_back({.address = address});
  announce_bytes(Launch::Kind::library, stream, function, known, 0);
}

// These two must not throw, so they describe the launch without allocating.

cudaError_t try_fill_bytes(Stream stream, void* to, unsigned char byte, int64_t count) noexcept {
  const cudaError_t error = cudaMemsetAsync(to, byte, static_cast<size_t>(count), handle(stream));
  if (error == cudaSuccess && device::launches_observed()) [[unlikely]] {
    const LaunchAddress target{.address = to};
    announce_bytes(Launch::Kind::fill, stream, "cudaMemsetAsync", {&target, 1}, count);
  }
  return error;
}

void fill_bytes(Stream stream, void* to, unsigned char byte, int64_t count) {
  const DeviceGuard guard = prepare(stream);
  check(try_fill_bytes(stream, to, byte, count), "cudaMemsetAsync");
}

cudaError_t try_copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes,
                     Stream stream) noexcept {
  const bool peers = to_device.is_cuda() && from_device.is_cuda() && to_device != from_device;
  const auto count = static_cast<size_t>(bytes);
  const cudaError_t error =
      peers ? cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, count, handle(stream))
            : cudaMemcpyAsync(to, from, count, cudaMemcpyDefault, handle(stream));
  if (error == cudaSuccess && device::launches_observed()) [[unlikely]] {
    const LaunchAddress ends[] = {{.address = to}, {.address = from}};
    announce_bytes(Launch::Kind::copy, stream, peers ? "cudaMemcpyPeerAsync" : "cudaMemcpyAsync", ends, bytes);
  }
  return error;
}

void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, Stream stream) {
  const DeviceGuard guard = prepare(stream);
  check(try_copy(to, to_device, from, from_device, bytes, stream), "cudaMemcpyAsync");
}

void launch_graph(Stream stream, cudaGraphExec_t graph) {
  const DeviceGuard guard = prepare(stream);
  check(cudaGraphLaunch(graph, handle(stream)), "cudaGraphLaunch");
  if (device::launches_observed()) [[unlikely]]
    announce_bytes(Launch::Kind::graph, stream, "cudaGraphLaunch", {}, 0);
  if (detail::g_blocking) [[unlikely]]
    detail::wait_after_launch(stream);
}

}  // namespace lorry::cuda
