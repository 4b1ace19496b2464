#include "lorry/layout/device.h"

#include <charconv>

namespace lorry {

std::string to_string(Device device) { return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", device.index); }

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCPU;
  if (text == "cuda") return {DeviceType::cuda, 0};
  if (text.starts_with("cuda:")) {
    int index = 0;
    const auto [end, error] = std::from_chars(text.data() + 5, text.data() + text.size(), index);
    if (error == std::errc() && end == text.data() + text.size() && index >= 0 && index < 128) return {DeviceType::cuda, static_cast<int8_t>(index)};
  }
  raise<ValueError>("device: unknown name; got '{}'; expected cpu, cuda or cuda:N", text);
}

}  // namespace lorry
