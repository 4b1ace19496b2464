#pragma once

// Tensors in safetensors files. Loading maps the file and returns views of it: data are read only when used, so a file
// of any size opens at once. Saving writes one tensor after the other under a temporary name and renames, so it needs
// no second copy of the weights, and a crash leaves the old file. The same tensors always give the same bytes.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::io {

using TensorMap = std::map<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

/// A tensor with a dtype that Lorry does not support.
struct UnreadTensor {
  std::string name, dtype;  ///< dtype as in the file
};
/// Why it was not read: "tensor 'w' has a dtype that this reader does not take; got 'F8_E4M3'; expected one of ...".
std::string why_unread(const UnreadTensor& tensor);

/// The tensors of a file, on the CPU. If its data is aligned for its elements, a tensor is a private view of the mapped
/// file: writing to it is allowed and never changes the file. Otherwise it is a copy. The file stays mapped while any
/// tensor uses it. Throws IoError if the file cannot be read, FormatError if it is malformed (nothing is loaded then).
/// Tensors with unsupported dtypes are listed in `unread` and the others are loaded; if `unread` is null, they are a
/// FormatError.
TensorMap load_safetensors(const std::filesystem::path& path, Metadata* metadata = nullptr,
                           std::vector<UnreadTensor>* unread = nullptr);

/// Writes tensors of any strides and device. Larger elements come first, then names in order, like the reference
/// writer. Throws ValueError for an undefined tensor or an invalid name, IoError if writing fails.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata = {});

/// Copies `loaded` into `targets` by name. Names, shapes and dtypes must be equal; this is checked before anything is
/// copied. Throws FormatError, ShapeError or DTypeError "<where>: ..." that names the first tensor that differs, with
/// both sides.
void restore(const TensorMap& targets, const TensorMap& loaded, std::string_view where);

}  // namespace lorry::io
