#include "lorry/layout/device.h"

#include <charconv>
#include <ostream>

namespace lorry {

std::string to_string(Device device) { return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", device.index); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

Device Device::parse(std::string_view text) {
  if (text == "cpu") return kCPU;
  if (text == "cuda") return kCUDA;
  if (text.starts_with("cuda:")) {
    int index = 0;
    const auto [end, error] = std::from_chars(text.data() + 5, text.data() + text.size(), index);
    if (error == std::errc() && end == text.data() + text.size() && index >= 0 && index < 128)
      return {DeviceType::cuda, static_cast<int8_t>(index)};
  }
  raise<ValueError>("device: unknown name; got '{}'; expected cpu, cuda or cuda:N", text);
}

}  // namespace lorry
