#include "lorry/profile/cuda/cupti.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "lorry/device/cuda/library.h"

namespace lorry::profile {
namespace {

template <class F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  return function != nullptr;
}

/// In the loader's path, beside the other CUDA libraries, or where a toolkit has it.
void* open_library(std::string& why_not) {
  const std::string file = fmt::format("libcupti.so.{}", CUDART_VERSION / 1000);
  const cuda::Library found = cuda::open_library(file);
  if (found.handle != nullptr) return found.handle;
  why_not = found.why;
  const auto toolkit = std::filesystem::path(cuda::library_folder()).parent_path();
  for (const char* folder : {"extras/CUPTI/lib64", "../../extras/CUPTI/lib64"})
    if (void* handle = dlopen((toolkit / folder / file).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  return nullptr;
}

bool fill(Cupti& f, void* library, std::string& why_not) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    if (!find(library, name, function) && missing == nullptr) missing = name;
  };
  need("cuptiGetTimestamp", f.get_timestamp);
  need("cuptiActivityEnable", f.enable);
  need("cuptiActivityDisable", f.disable);
  need("cuptiActivityRegisterCallbacks", f.register_callbacks);
  need("cuptiActivityFlushAll", f.flush_all);
  need("cuptiActivityGetNextRecord", f.next_record);
  need("cuptiActivityGetNumDroppedRecords", f.dropped_records);
  need("cuptiActivityPushExternalCorrelationId", f.push_external);
  need("cuptiActivityPopExternalCorrelationId", f.pop_external);
  need("cuptiGetCallbackName", f.callback_name);
  need("cuptiGetResultString", f.result_string);
  need("cuptiSetThreadIdType", f.set_thread_id_type);
  find(library, "cuptiActivityRegisterTimestampCallback", f.register_timestamp);
  find(library, "cuptiActivityEnableDriverApi", f.enable_driver_api);
  find(library, "cuptiActivityEnableRuntimeApi", f.enable_runtime_api);
  if (missing != nullptr) why_not = fmt::format("the library has no {}", missing);
  return missing == nullptr;
}

}  // namespace

const Cupti* Cupti::open(std::string& why_not) {
  struct Opened {
    Cupti functions{};
    std::string why_not;
    bool is_open;
    Opened() {
      void* const library = open_library(why_not);
      is_open = library != nullptr && fill(functions, library, why_not);
    }
  };
  static const Opened& opened = *new Opened;
  if (opened.is_open) return &opened.functions;
  why_not = "CUPTI cannot be opened: " + opened.why_not;
  return nullptr;
}

}  // namespace lorry::profile
