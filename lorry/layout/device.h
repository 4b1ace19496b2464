#pragma once

#include <cstdint>
#include <string>

#include "lorry/base/error.h"

namespace lorry {

enum class DeviceType : uint8_t { cpu, cuda };
inline constexpr int kDeviceTypeCount = 2;

/// Where a tensor's bytes live.
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;

  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  friend constexpr bool operator==(Device, Device) = default;
};

inline constexpr Device kCPU{};

/// "cpu", "cuda" or "cuda:N". Throws ValueError.
Device parse_device(std::string_view text);
std::string to_string(Device device);

}  // namespace lorry

template <>
struct fmt::formatter<lorry::Device> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(lorry::Device d, Context& context) const {
    return fmt::format_to(context.out(), "{}", lorry::to_string(d));
  }
};
