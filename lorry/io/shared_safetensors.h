#pragma once

// A safetensors file that several processes write together, each some elements of its tensors. The file is the one that
// save_safetensors writes of the whole tensors.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lorry/io/file.h"
#include "lorry/io/safetensors.h"
#include "lorry/io/safetensors_header.h"

namespace lorry::io {

class SharedSafetensors {
 public:
  /// tensors: all of the file, of which sizes and dtypes count; they may be on Device meta. One process creates the
  /// file with its header and its size; the others open it afterwards. Throws IoError, also for a file that was created
  /// for other tensors; ValueError as save_safetensors does.
  SharedSafetensors(std::filesystem::path path, const TensorMap& tensors, const Metadata& metadata, bool creates);
  /// Writes the elements of a tensor from `first` on, as they lie in the order of its sizes. Throws ValueError for more
  /// elements than there are, or of another dtype.
  void write(const std::string& name, int64_t first, const Tensor& elements);
  /// Brings what was written to the disk. Throws IoError.
  void commit();

 private:
  void write_at(uint64_t offset, const void* data, std::size_t bytes);

  const std::filesystem::path path_;
  std::vector<SafetensorsEntry> entries_;  ///< by name
  Descriptor file_;
};

}  // namespace lorry::io
