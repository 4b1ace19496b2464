#pragma once

// Writes text to a file or into a string, through a buffer of its own: ten million events are two gigabytes.

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace lorry::profile {

class TextWriter {
 public:
  /// To the file, which the caller closes.
  explicit TextWriter(std::FILE* file) : file_(file) {}
  explicit TextWriter(std::string& text) : text_(&text) {}

  TextWriter& operator<<(std::string_view text) {
    if (text.size() > kBytes - used_) [[unlikely]] {
      flush();
      if (text.size() > kBytes) {
        put(text.data(), text.size());
        return *this;
      }
    }
    std::memcpy(buffer_.get() + used_, text.data(), text.size());
    used_ += text.size();
    return *this;
  }
  template <class Int>
  requires std::is_integral_v<Int> TextWriter& operator<<(Int number) {
    if (kBytes - used_ < 32) [[unlikely]]
      flush();
    used_ =
        static_cast<size_t>(std::to_chars(buffer_.get() + used_, buffer_.get() + kBytes, number).ptr - buffer_.get());
    return *this;
  }
  /// Nanoseconds as microseconds, exactly.
  TextWriter& microseconds(int64_t ns) {
    const bool negative = ns < 0;
    const uint64_t size = negative ? uint64_t{0} - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
    if (negative) *this << "-";
    *this << size / 1000;
    const auto rest = static_cast<unsigned>(size % 1000);
    const char digits[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
    return *this << std::string_view(digits, sizeof digits);
  }
  /// Whether everything so far has been written.
  bool flush() {
    put(buffer_.get(), used_);
    used_ = 0;
    return good_;
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 20;
  void put(const char* data, size_t bytes) {
    if (text_ != nullptr)
      text_->append(data, bytes);
    else
      good_ = good_ && std::fwrite(data, 1, bytes, file_) == bytes;
  }

  std::FILE* file_ = nullptr;
  std::string* text_ = nullptr;
  const std::unique_ptr<char[]> buffer_{new char[kBytes]};
  size_t used_ = 0;
  bool good_ = true;
};

/// The text as a JSON string, with quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace lorry::profile
