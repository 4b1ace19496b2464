#pragma once

// The header of a safetensors file: 8 bytes of little-endian length, JSON that names every tensor's dtype, shape and
// byte range, then the data. Parsing believes nothing: a header that passes describes tensors that lie inside the file,
// tile its data without holes or overlap, and have exactly the bytes that their shapes need.
// Format: https://github.com/huggingface/safetensors, whose reader this one matches in strictness or exceeds.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lorry/io/safetensors.h"
#include "lorry/layout/dtype.h"
#include "lorry/layout/layout.h"

namespace lorry::io {

struct SafetensorsEntry {
  std::string name;
  DType dtype = kF32;
  Dims sizes;
  uint64_t begin = 0, end = 0;  ///< bytes of the file, counted from its start
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their data
  std::vector<UnreadTensor> unread;       ///< not among the entries
  Metadata metadata;
};

/// The longest header that a reader takes, in bytes.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// "F32" for kF32 and so on: the format's spelling.
std::string_view safetensors_name(DType dtype);

/// A tensor name as an error message shows it: control characters and quotes escaped, cut after 100 bytes.
std::string printable(std::string_view name);

/// Reads and checks the header of a whole file. A tensor of another dtype than Lorry's is listed as unread; of its data
/// only the place is checked. Throws FormatError "safetensors '<source>': ..." that names the tensor.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view source);

/// The first bytes of a file whose data holds `entries` in their order: length and JSON, padded with spaces so that the
/// data starts at a multiple of 8. Fills in begin and end. Throws ValueError for duplicate or reserved names, or text
/// that is not UTF-8.
std::string format_safetensors_header(std::vector<SafetensorsEntry>& entries, const Metadata& metadata);

}  // namespace lorry::io
