#pragma once

// NVRTC, the run-time compiler of kernels. The library is opened when first needed. Compiling needs no GPU.

#include <cstddef>
#include <string>
#include <vector>

namespace lorry::kernels::cuda {

/// A header that a program can include by name.
struct Header {
  std::string name, text;
};

struct Compiled {
  std::string cubin;  ///< empty: compilation failed
  std::string log;    ///< the compiler's messages
};

/// Thread-safe.
class Nvrtc {
 public:
  /// The NVRTC of the toolkit that Lorry is built with. The first call opens it.
  static const Nvrtc& get();

  /// Why there is no compiler; empty if there is one.
  const std::string& missing() const { return missing_; }
  /// "nvrtc 13.0": the compiler in a KernelKey.
  const std::string& version() const { return version_; }
  /// Compiles to a cubin; the options must name an architecture ("--gpu-architecture=sm_90"). Throws Error if there is
  /// no compiler.
  Compiled compile(const std::string& source, const std::vector<Header>& headers,
                   const std::vector<std::string>& options) const;

 private:
  using Program = struct OpaqueProgram*;
  using Size = int (*)(Program, size_t*);
  using Text = int (*)(Program, char*);

  Nvrtc();
  static std::string text_of(Program program, Size size, Text text);

  // Declared here because a toolkit may lack nvrtc.h. 0 is success.
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
