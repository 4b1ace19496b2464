#include "lorry/layout/device.h"

#include <charconv>
#include <ostream>

#include "lorry/base/modes.h"

namespace lorry {

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::cuda:
      return fmt::format("cuda:{}", device.index);
    case DeviceType::meta:
      return device.index == 0 ? "meta" : fmt::format("meta:{}", device.index);
  }
  return fmt::format("device type {}", static_cast<int>(device.type));
}
std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

Device Device::parse(std::string_view text) {
  if (text == "cpu") return kCPU;
  if (text == "cuda") return kCUDA;
  if (text == "meta") return kMeta;
  if (text.starts_with("cuda:")) {
    int index = 0;
    const auto [end, error] = std::from_chars(text.data() + 5, text.data() + text.size(), index);
    if (error == std::errc() && end == text.data() + text.size() && index >= 0 && index < 128)
      return {DeviceType::cuda, static_cast<int8_t>(index)};
  }
  raise<ValueError>("device: unknown name; got '{}'; expected cpu, cuda, cuda:N or meta", text);
}

void detail::raise_no_elements(const char* where) {
  raise_as<DeviceError>(running_or(where),
                        "the elements are needed; got a tensor on meta, which has no elements; expected one on another "
                        "device");
}

}  // namespace lorry
