#pragma once

// The header of a safetensors file: 8 bytes of little-endian length, JSON with every tensor's dtype, shape and byte
// range, then the data. Parsing trusts nothing: a header that passes describes tensors that lie inside the file, cover
// its data without holes or overlap, and have exactly the bytes that their shapes need.
// Format: https://github.com/huggingface/safetensors. This reader is at least as strict as the reference reader.

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
  uint64_t begin = 0, end = 0;  ///< byte range, from the start of the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their data
  std::vector<UnreadTensor> unread;       ///< tensors that are not in `entries`
  Metadata metadata;
};

/// The maximum size of a header in bytes.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// The format's name of a dtype: "F32" for kF32.
std::string_view safetensors_name(DType dtype);

/// A tensor name for error messages: control characters and quotes escaped, cut after 100 bytes.
std::string printable(std::string_view name);

/// Reads and checks the header of a whole file. A tensor with a dtype that Lorry does not support is listed as unread;
/// only the place of its data is checked. Throws FormatError "safetensors '<source>': ..." that names the tensor.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view source);

/// The entries of a file with these tensors, in the order of their data: larger elements first, then by name. Throws
/// ValueError for an undefined tensor.
std::vector<SafetensorsEntry> safetensors_entries(const TensorMap& tensors);

/// The first bytes of a file with the data of `entries` in their order: length and JSON, padded with spaces so that the
/// data starts at a multiple of 8. Sets begin and end. Throws ValueError for duplicate or reserved names, or text that
/// is not UTF-8.
std::string format_safetensors_header(std::vector<SafetensorsEntry>& entries, const Metadata& metadata);

}  // namespace lorry::io
