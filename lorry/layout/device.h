#pragma once

// Device: where a tensor's elements live, as a type and an index.

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "lorry/base/error.h"

namespace lorry {

enum class DeviceType : uint8_t { cpu, cuda, meta };
inline constexpr int kDeviceTypeCount = 3;

/// Where a tensor's bytes live. A name converts to its device: x.to("cuda:1"). Tensors on `meta` have sizes, strides,
/// dtypes and storages, but no elements: operators compute nothing and return other tensors on meta.
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;

  constexpr Device() = default;
  constexpr Device(DeviceType t, int8_t i = 0) : type(t), index(i) {}
  /// "cpu", "cuda" (its first device), "cuda:N" or "meta". Throws ValueError.
  template <class Name>
  requires std::convertible_to<const Name&, std::string_view> Device(const Name& name) : Device(parse(name)) {}

  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  constexpr bool is_meta() const { return type == DeviceType::meta; }
  friend constexpr bool operator==(Device, Device) = default;

 private:
  static Device parse(std::string_view name);
};

inline constexpr Device kCPU{};
/// The first GPU.
inline constexpr Device kCUDA{DeviceType::cuda};
/// Tensors without elements.
inline constexpr Device kMeta{DeviceType::meta};

/// "cpu", "cuda:N" or "meta".
std::string to_string(Device device);
std::ostream& operator<<(std::ostream& out, Device device);

namespace detail {
/// The error of a call that must read elements, for a tensor on meta. `where` names the call if no operator is running.
[[noreturn, gnu::cold]] void raise_no_elements(const char* where);
}  // namespace detail

}  // namespace lorry

template <>
struct fmt::formatter<lorry::Device> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(lorry::Device d, Context& context) const {
    return fmt::format_to(context.out(), "{}", lorry::to_string(d));
  }
};
