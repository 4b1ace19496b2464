#pragma once

// NVRTC, the compiler of kernels at run time, opened when it is first needed. No GPU is needed to compile.

#include <cstddef>
#include <string>
#include <vector>

namespace lorry::kernels::cuda {

/// A source that a program includes by name.
struct Header {
  std::string name, text;
};

struct Compiled {
  std::string cubin;  ///< empty: refused
  std::string log;    ///< what the compiler says
};

/// From any thread, from several at a time.
class Nvrtc {
 public:
  /// The library of the toolkit that Lorry is built with, opened by the first call.
  static const Nvrtc& get();

  /// Why there is no compiler; empty where there is one.
  const std::string& missing() const { return missing_; }
  /// "nvrtc 13.0"; what a KernelKey calls the compiler.
  const std::string& version() const { return version_; }
  /// A cubin, where options name an architecture ("--gpu-architecture=sm_90"). Throws Error if there is no compiler.
  Compiled compile(const std::string& source, const std::vector<Header>& headers,
                   const std::vector<std::string>& options) const;

 private:
  using Program = struct OpaqueProgram*;
  using Size = int (*)(Program, size_t*);
  using Text = int (*)(Program, char*);

  Nvrtc();
  static std::string text_of(Program program, Size size, Text text);

  // Declared here: a toolkit may come without nvrtc.h. 0 is success.
  int (*version_of_)(int*, int*) = nullptr;
  int (*create_)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                 const char* const* names) = nullptr;
  int (*compile_)(Program, int count, const char* const* options) = nullptr;
  int (*destroy_)(Program*) = nullptr;
  Size log_size_ = nullptr, cubin_size_ = nullptr;
  Text log_ = nullptr, cubin_ = nullptr;
  std::string missing_, version_;
};

}  // namespace lorry::kernels::cuda
