#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace lorry::kernels::cuda::test {

/// The kernels of many samples as one library, by the host's compiler.
class HostLibrary {
 public:
  /// kernels: those of EmittedMap and the like; runner: of cuda_on_host.h.
  template <class Emitted>
  HostLibrary(const std::vector<Emitted>& kernels, const char* header, const char* runner) {
    std::ofstream file(folder_ / "kernels.cpp");
    file << "#include \"tests/support/cuda_on_host.h\"\n"
         << fmt::format("#include \"lorry/formula/formulas.h\"\n#include \"lorry/kernels/cuda/fused/{}\"\n", header);
    for (size_t k = 0; k < kernels.size(); ++k) {
      std::string source = kernels[k].source;
      const std::string name = kernels[k].name + "(";
      source.replace(source.find(name), name.size(), fmt::format("kernel{}(", k));
      file << fmt::format(
          "namespace n{0} {{\n{1}\nextern \"C\" void run{0}(const void* argument, unsigned blocks, unsigned threads) "
          "{{\n"
          "  {2}(kernel{0}, *static_cast<const Arguments*>(argument), blocks, threads);\n}}\n}}\n",
          k, source, runner);
    }
    file.close();
    const std::string command = fmt::format(
        "{} -std=c++20 -O1 -w -ffp-contract=off -fPIC -shared -I{}/tests/support/on_host -I{} {}/kernels.cpp -o "
        "{}/kernels.so",
        LORRY_HOST_COMPILER, LORRY_SOURCE_DIR, LORRY_SOURCE_DIR, folder_.root().string(), folder_.root().string());
    if (std::system(command.c_str()) != 0) throw std::runtime_error("the host's compiler refuses kernels.cpp");
    library_ = ::dlopen((folder_ / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
  }
  ~HostLibrary() {
    if (library_ != nullptr) ::dlclose(library_);
  }
  using Run = void (*)(const void* argument, unsigned blocks, unsigned threads);
  Run run(size_t k) const { return reinterpret_cast<Run>(::dlsym(library_, fmt::format("run{}", k).c_str())); }

 private:
  lorry::test::ScratchFolder folder_;
  void* library_ = nullptr;
};

}  // namespace lorry::kernels::cuda::test
