#include "lorry/cli/utf8.h"

#include <string_view>

namespace lorry::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The length of a character by its first byte; 0 if no character begins with it.
size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

/// Whether `second` may follow `first`. Overlong forms, surrogates and numbers above U+10FFFF are refused here.
bool may_follow(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return second >= 0x80 && second <= 0xBF;
  }
}

}  // namespace

std::string Utf8Stream::push(unsigned char byte) {
  std::string out;
  if (!pending_.empty()) {
    const auto first = static_cast<unsigned char>(pending_[0]);
    const bool continues = pending_.size() == 1 ? may_follow(first, byte) : (byte & 0xC0) == 0x80;
    if (continues) {
      pending_.push_back(static_cast<char>(byte));
      if (pending_.size() == length_of(first)) out.swap(pending_);
      return out;
    }
    out = kReplacement;
    pending_.clear();
  }
  switch (length_of(byte)) {
    case 0:
      out += kReplacement;
      break;
    case 1:
      out.push_back(static_cast<char>(byte));
      break;
    default:
      pending_.push_back(static_cast<char>(byte));
  }
  return out;
}

std::string Utf8Stream::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

}  // namespace lorry::cli
