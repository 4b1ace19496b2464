#include "lorry/device/cuda/library.h"

#include <dlfcn.h>

namespace lorry::cuda {

Library open_library(const std::string& file) {
  if (void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, ""};
  const std::string why = dlerror();
  return {dlopen((library_folder() + ("/" + file)).c_str(), RTLD_NOW | RTLD_LOCAL), why};
}

const char* library_folder() { return LORRY_CUDA_LIBRARY_DIR; }

}  // namespace lorry::cuda
