#include "lorry/io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>

namespace lorry::io {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kSpelling[] = {
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) safetensors,
#include "lorry/layout/dtypes.def"
};

/// Receives the parser's events and builds the entries. There are three levels: the header, a tensor (or the metadata),
/// and the two lists of a tensor. Anything unexpected is refused at once, so hostile nesting costs no memory.
class Reader {
 public:
  Reader(SafetensorsHeader& header, std::string_view source) : header_(header), source_(source) {}

  bool start_object(std::size_t) {
    switch (state_) {
      case State::start:
        state_ = State::header;
        break;
      case State::tensor_value:
        state_ = State::tensor;
        break;
      case State::metadata_value:
        state_ = State::metadata;
        break;
      default:
        unexpected("an object");
    }
    return true;
  }

  bool key(std::string& key) {
    switch (state_) {
      case State::header:
        fail_unless(names_.insert(key).second, "duplicate key '{}'; expected every name once", printable(key));
        if (key == kMetadataKey) {
          state_ = State::metadata_value;
        } else {
          header_.entries.emplace_back().name = key;
          seen_ = 0;
          state_ = State::tensor_value;
        }
        break;
      case State::tensor:
        begin_field(key);
        break;
      default:
        fail_unless(!header_.metadata.contains(key), "duplicate key '{}' in __metadata__; expected every key once",
                    printable(key));
        metadata_key_ = key;
        state_ = State::metadata_text;
    }
    return true;
  }

  bool end_object() {
    if (state_ == State::tensor) {
      fail_unless(seen_ == kAllFields, "tensor '{}' lacks {}; expected dtype, shape and data_offsets", shown(),
                  !(seen_ & kDType)   ? "dtype"
                  : !(seen_ & kShape) ? "shape"
                                      : "data_offsets");
      state_ = State::header;
    } else {
      state_ = state_ == State::metadata ? State::header : State::end;
    }
    return true;
  }

  bool start_array(std::size_t) {
    switch (state_) {
      case State::shape:
        state_ = State::size;
        break;
      case State::offsets:
        state_ = State::offset;
        break;
      default:
        unexpected("a list");
    }
    return true;
  }

  bool end_array() {
    if (state_ == State::offset)
      fail_unless(offsets_ == 2, "tensor '{}' has {} data_offsets; expected 2", shown(), offsets_);
    state_ = State::tensor;
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (state_ == State::size) {
      fail_unless(entry().sizes.size() < kMaxRank, "tensor '{}' has too many dimensions; expected at most {}", shown(),
                  kMaxRank);
      fail_unless(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
                  "tensor '{}' has a size of {}; expected less than 2^63", shown(), value);
      entry().sizes.push_back(static_cast<int64_t>(value));
    } else if (state_ == State::offset) {
      fail_unless(offsets_ < 2, "tensor '{}' has more than 2 data_offsets; expected 2", shown());
      (offsets_++ == 0 ? entry().begin : entry().end) = value;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(std::string& text) {
    if (state_ == State::metadata_text) {
      header_.metadata.emplace(std::move(metadata_key_), std::move(text));
      state_ = State::metadata;
    } else if (state_ == State::dtype) {
      if (const auto* found = std::ranges::find(kSpelling, text); found != std::end(kSpelling))
        entry().dtype = kDTypes[found - kSpelling];
      else
        unread_.emplace(entry().name, std::move(text));
      state_ = State::tensor;
    } else {
      unexpected("a string");
    }
    return true;
  }

  /// Names and dtypes of the tensors with unknown dtypes.
  const std::map<std::string, std::string>& unread() const { return unread_; }

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a boolean"); }
  bool number_integer(int64_t value) { unexpected(fmt::format("the negative number {}", value)); }
  bool number_float(double, const std::string& text) { unexpected(fmt::format("the number {}", printable(text))); }
  bool binary(Json::binary_t&) { unexpected("binary data"); }
  bool parse_error(std::size_t at, const std::string&, const Json::exception& error) {
    // The library's text repeats the position before the reason, and quotes the file's bytes after it.
    std::string_view text = error.what();
    if (const auto dash = text.rfind("- "); dash != text.npos) text.remove_prefix(dash + 2);
    text = text.substr(0, text.find("; last read"));
    fail_unless(false, "header is not JSON at byte {}: {}", at, text);
    return false;
  }

 private:
  enum class State {
    start,
    header,
    tensor_value,
    tensor,
    dtype,
    shape,
    size,
    offsets,
    offset,
    metadata_value,
    metadata,
    metadata_text,
    end
  };
  enum Field : unsigned { kDType = 1, kShape = 2, kOffsets = 4, kAllFields = 7 };

  SafetensorsEntry& entry() { return header_.entries.back(); }
  std::string shown() { return printable(entry().name); }

  template <class... Args>
  void fail_unless(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition)
      raise<FormatError>("safetensors '{}': {}", source_, fmt::format(format, std::forward<Args>(args)...));
  }

  void begin_field(const std::string& key) {
    const Field field = key == "dtype" ? kDType : key == "shape" ? kShape : key == "data_offsets" ? kOffsets : Field{};
    fail_unless(field != 0, "tensor '{}' has the unknown key '{}'; expected dtype, shape and data_offsets", shown(),
                printable(key));
    fail_unless((seen_ & field) == 0, "tensor '{}' has {} twice", shown(), key);
    seen_ |= field;
    offsets_ = 0;
    state_ = field == kDType ? State::dtype : field == kShape ? State::shape : State::offsets;
  }

  [[noreturn]] void unexpected(std::string_view what) {
    const std::string where = [this]() -> std::string {
      switch (state_) {
        case State::dtype:
          return fmt::format("as the dtype of '{}'; expected a string", shown());
        case State::shape:
          return fmt::format("as the shape of '{}'; expected a list of sizes", shown());
        case State::size:
          return fmt::format("in the shape of '{}'; expected whole numbers from 0 to 2^63 - 1", shown());
        case State::offsets:
          return fmt::format("as the data_offsets of '{}'; expected a list of 2 offsets", shown());
        case State::offset:
          return fmt::format("in the data_offsets of '{}'; expected whole numbers from 0 to 2^64 - 1", shown());
        case State::tensor_value:
          return fmt::format("as tensor '{}'; expected an object", shown());
        case State::metadata_value:
          return "as __metadata__; expected an object of strings";
        case State::metadata_text:
          return fmt::format("as '{}' in __metadata__; expected a string", printable(metadata_key_));
        default:
          return "outside a tensor; expected an object";
      }
    }();
    raise<FormatError>("safetensors '{}': header has {} {}", source_, what, where);
  }

  SafetensorsHeader& header_;
  std::string_view source_;
  State state_ = State::start;
  std::unordered_set<std::string> names_;
  std::map<std::string, std::string> unread_;
  std::string metadata_key_;
  unsigned seen_ = 0;
  int offsets_ = 0;
};

uint64_t little_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint64_t>(bytes[i]);
  return value;
}

/// The bytes that shape and dtype need. Returns false if they exceed 63 bits. All sizes are multiplied even if one is
/// 0, because the strides of an empty tensor are products of them.
bool bytes_needed(const SafetensorsEntry& e, uint64_t& bytes) {
  int64_t total = size_of(e.dtype);
  bool overflow = false, empty = false;
  for (const int64_t size : e.sizes) {
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(total, std::max<int64_t>(size, 1), &total);
  }
  bytes = empty ? 0 : static_cast<uint64_t>(total);
  return !overflow;
}

/// A JSON string with escapes. Throws ValueError if `text` is not UTF-8.
std::string json_string(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    raise<ValueError>("safetensors: a name is not UTF-8; got '{}'", printable(text));
  }
}

}  // namespace

std::string why_unread(const UnreadTensor& tensor) {
  return fmt::format("tensor '{}' has a dtype that this reader does not take; got '{}'; expected one of {}",
                     printable(tensor.name), printable(tensor.dtype), fmt::join(kSpelling, ", "));
}

std::string_view safetensors_name(DType dtype) { return kSpelling[static_cast<int>(dtype)]; }

std::string printable(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  std::string text;
  for (const char c : name.substr(0, kLongest)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\'' || c == '\\') {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  if (name.size() <= kLongest) return text;
  // never cut a character in half
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
  if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0x80) text.pop_back();
  return text + "...";
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view source) {
  const auto check = [source]<class... Args>(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition)
      raise<FormatError>("safetensors '{}': {}", source, fmt::format(format, std::forward<Args>(args)...));
  };
  check(file.size() >= 8, "file is too short for a header length; got {} bytes; expected at least 8", file.size());
  const uint64_t length = little_endian(file), size = file.size();
  check(length <= kMaxSafetensorsHeader, "header is too large; got {} bytes; expected at most {}", length,
        kMaxSafetensorsHeader);
  check(length <= size - 8, "header reaches past the end of the file; got {} bytes of header in a file of {}", length,
        size);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  check(text.starts_with('{'), "header does not begin with '{{'");
  // The parser treats a NUL as the end of its input and would not read what follows.
  const auto control = std::ranges::find_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t'; });
  check(control == text.end(), "header has a control character at byte {}", control - text.begin());

  SafetensorsHeader header;
  Reader reader(header, source);
  Json::sax_parse(text.begin(), text.end(), &reader);

  auto& entries = header.entries;
  // Tensors without elements have no bytes: sort them before the tensor that begins at the same place.
  std::ranges::sort(entries, {}, [](const SafetensorsEntry& e) { return std::tie(e.begin, e.end, e.name); });
  const uint64_t data = 8 + length;
  uint64_t at = 0;
  for (SafetensorsEntry& e : entries) {
    uint64_t needed = 0;
    check(e.begin <= e.end, "data_offsets of '{}' run backwards; got [{}, {}]", printable(e.name), e.begin, e.end);
    check(e.begin == at, "data of '{}' leaves a hole or overlaps; got an offset of {}; expected {}", printable(e.name),
          e.begin, at);
    at = e.end;
    check(at <= size - data, "data of '{}' reaches past the end of the file; got an offset of {} in {} bytes of data",
          printable(e.name), at, size - data);
    e.begin += data;
    e.end += data;
    if (reader.unread().contains(e.name)) continue;
    check(bytes_needed(e, needed), "shape of '{}' is too large; got {} {}; expected less than 2^63 bytes",
          printable(e.name), e.sizes, e.dtype);
    check(needed == e.end - e.begin, "shape and data of '{}' disagree; got {} {} in {} bytes; expected {}",
          printable(e.name), e.sizes, e.dtype, e.end - e.begin, needed);
  }
  check(at == size - data, "file is longer than its tensors; got {} bytes of data; expected {}", size - data, at);
  std::erase_if(entries, [&](const SafetensorsEntry& e) { return reader.unread().contains(e.name); });
  for (const auto& [name, dtype] : reader.unread()) header.unread.push_back({name, dtype});
  return header;
}

std::string format_safetensors_header(std::vector<SafetensorsEntry>& entries, const Metadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    for (const auto& [key, value] : metadata)
      text +=
          fmt::format("{}{}:{}", text.size() == 1 ? "\"__metadata__\":{" : ",", json_string(key), json_string(value));
    text += '}';
  }
  std::unordered_set<std::string_view> names;
  uint64_t at = 0;
  for (SafetensorsEntry& e : entries) {
    require<ValueError>(e.name != kMetadataKey, "safetensors: tensor name '{}' is reserved", e.name);
    require<ValueError>(names.insert(e.name).second, "safetensors: tensor name '{}' is there twice", printable(e.name));
    uint64_t bytes = 0;
    require<ShapeError>(bytes_needed(e, bytes) && !__builtin_add_overflow(at, bytes, &bytes),
                        "safetensors: tensor '{}' is too large; got {} {}", printable(e.name), e.sizes, e.dtype);
    e.begin = at;
    e.end = at = bytes;
    text +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", text.size() == 1 ? "" : ",",
                    json_string(e.name), safetensors_name(e.dtype), fmt::join(e.sizes, ","), e.begin, e.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  require<ValueError>(text.size() <= kMaxSafetensorsHeader,
                      "safetensors: header would be too large; got {} bytes; expected at most {}", text.size(),
                      kMaxSafetensorsHeader);
  std::string head(8, '\0');
  for (int i = 0; i < 8; ++i) head[i] = static_cast<char>(text.size() >> (8 * i));
  for (SafetensorsEntry& e : entries) {
    e.begin += 8 + text.size();
    e.end += 8 + text.size();
  }
  return head + text;
}

}  // namespace lorry::io
