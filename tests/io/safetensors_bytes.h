#pragma once

// Safetensors files as text: a header and data, put together byte by byte.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace lorry::io::test {

inline std::string with_length(uint64_t length, const std::string& header, const std::string& data = "") {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i));
  return file + header + data;
}

inline std::string file_of(const std::string& header, const std::string& data = "") {
  return with_length(header.size(), header, data);
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace lorry::io::test
