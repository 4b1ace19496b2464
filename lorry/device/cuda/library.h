#pragma once

// Opening CUDA libraries at run time, when they are first needed.

#include <string>

namespace lorry::cuda {

/// The result of dlopen for a file name, first in the loader's own search path, then in library_folder(). If `handle`
/// is null, `why` is the loader's message.
struct Library {
  void* handle;
  std::string why;
};
Library open_library(const std::string& file);

/// The folder of the CUDA libraries that Lorry was built with.
const char* library_folder();

}  // namespace lorry::cuda
