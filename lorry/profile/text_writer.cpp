#include "lorry/profile/text_writer.h"

#include <fmt/format.h>

namespace lorry::profile {
namespace {

/// How many bytes the UTF-8 character at the start of the text has; 0: it is none.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool is_short = first == 0xe0 && byte(1) < 0xa0, is_surrogate = first == 0xed && byte(1) > 0x9f;
    return follows(1) && follows(2) && !is_short && !is_surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool is_short = first == 0xf0 && byte(1) < 0x90, is_beyond = first == 0xf4 && byte(1) > 0x8f;
    return follows(1) && follows(2) && follows(3) && !is_short && !is_beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const size_t length = character(text);
    const char c = text[0];
    if (length == 0)
      json += "\\ufffd";
    else if (c == '"' || c == '\\')
      (json += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      json += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return json += '"';
}

}  // namespace lorry::profile
