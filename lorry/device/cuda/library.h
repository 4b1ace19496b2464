#pragma once

// Libraries of CUDA that are opened only when they are first needed.

#include <string>

namespace lorry::cuda {

/// What dlopen gives for a file name, as the loader finds it or else from library_folder(). Null: `why` is the loader's
/// word.
struct Library {
  void* handle;
  std::string why;
};
Library open_library(const std::string& file);

/// Where the toolkit of the build keeps its libraries.
const char* library_folder();

}  // namespace lorry::cuda
