#include "lorry/kernels/cuda/fused/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <memory>
#include <type_traits>

#include "lorry/base/error.h"
#include "lorry/device/cuda/library.h"

namespace lorry::kernels::cuda {

const Nvrtc& Nvrtc::get() {
  // Never destroyed, because a thread may still compile while the process ends.
  static const Nvrtc& kNvrtc = *new Nvrtc;
  return kNvrtc;
}

Nvrtc::Nvrtc() {
  const auto [handle, why] = lorry::cuda::open_library(fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000));
  if (handle == nullptr) {
    missing_ = why;
    return;
  }
  const auto find = [&, library = handle](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) missing_ = fmt::format("libnvrtc has no {}", name);
  };
  find(version_of_, "nvrtcVersion");
  find(create_, "nvrtcCreateProgram");
  find(compile_, "nvrtcCompileProgram");
  find(destroy_, "nvrtcDestroyProgram");
  find(log_size_, "nvrtcGetProgramLogSize");
  find(log_, "nvrtcGetProgramLog");
  find(cubin_size_, "nvrtcGetCUBINSize");
  find(cubin_, "nvrtcGetCUBIN");
  if (!missing_.empty()) return;
  int major = 0, minor = 0;
  if (version_of_(&major, &minor) != 0) missing_ = "libnvrtc does not report its version";
  version_ = fmt::format("nvrtc {}.{}", major, minor);
}

std::string Nvrtc::text_of(Program program, Size size, Text text) {
  size_t bytes = 0;
  if (size(program, &bytes) != 0) return {};
  std::string result(bytes, '\0');
  if (bytes == 0 || text(program, result.data()) != 0) return {};
  return result;
}

Compiled Nvrtc::compile(const std::string& source, const std::vector<Header>& headers,
                        const std::vector<std::string>& options) const {
  require<Error>(missing_.empty(), "nvrtc: kernels cannot be compiled; got '{}'; expected NVRTC of CUDA {}", missing_,
                 CUDART_VERSION / 1000);
  std::vector<const char*> names, texts, flags;
  for (const Header& header : headers) names.push_back(header.name.c_str()), texts.push_back(header.text.c_str());
  for (const std::string& option : options) flags.push_back(option.c_str());
  Program program = nullptr;
  if (create_(&program, source.c_str(), "fused.cu", static_cast<int>(names.size()), texts.data(), names.data()) != 0)
    return {.cubin = {}, .log = "the program cannot be created"};
  const auto destroy = [this](Program made) { destroy_(&made); };
  const std::unique_ptr<struct OpaqueProgram, decltype(destroy)> owner(program, destroy);
  const bool accepted = compile_(program, static_cast<int>(flags.size()), flags.data()) == 0;
  Compiled result;
  result.log = text_of(program, log_size_, log_);
  while (!result.log.empty() && (result.log.back() == '\0' || result.log.back() == '\n')) result.log.pop_back();
  if (accepted) result.cubin = text_of(program, cubin_size_, cubin_);
  if (result.cubin.empty() && result.log.empty()) result.log = "refused without a word";
  return result;
}

}  // namespace lorry::kernels::cuda
