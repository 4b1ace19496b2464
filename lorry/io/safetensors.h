#pragma once

// Tensors in safetensors files. Loading maps the file and gives views of it: nothing is read before it is used, and a
// file of any size opens at once. Saving writes beside the final name and renames, one tensor after the other, so that
// it needs no second copy of the weights and a crash leaves the former file. The same tensors always give the same
// bytes.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::io {

using TensorMap = std::map<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

/// What a file says of a tensor whose dtype is not one of Lorry's.
struct UnreadTensor {
  std::string name, dtype;  ///< dtype as the file spells it
};
/// Why it was not read: "tensor 'w' has a dtype that this reader does not take; got 'F8_E4M3'; expected one of ...".
std::string why_unread(const UnreadTensor& tensor);

/// The tensors of a file, on the CPU. A tensor whose data is aligned for its elements shows the mapped file, privately:
/// writing to it is allowed and never reaches the file; another one is copied. The file stays mapped while any tensor
/// uses it. Throws IoError when it cannot be read, FormatError when it is malformed (nothing is loaded then). A tensor
/// of a dtype that Lorry does not have is refused by name: it is listed in `unread` and the others load; without that
/// list, FormatError.
TensorMap load_safetensors(const std::filesystem::path& path, Metadata* metadata = nullptr,
                           std::vector<UnreadTensor>* unread = nullptr);

/// Writes tensors of any strides and device. Larger elements come first, then names in order, as the reference writer
/// does. Throws ValueError for an undefined tensor or a name that no reader takes, IoError when the disk refuses.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata = {});

/// Copies `loaded` into `targets` by name. Before anything is copied the two must have the same names, shapes and
/// dtypes: throws FormatError, ShapeError or DTypeError "<where>: ..." naming the first tensor that differs, with both
/// sides.
void restore(const TensorMap& targets, const TensorMap& loaded, std::string_view where);

}  // namespace lorry::io
