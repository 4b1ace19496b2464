// Kernels that are compiled at run time include formulas and the device headers of kernels as they are: each must
// compile with NVRTC, with the stand-ins of lorry/base/nvrtc for the standard library. No GPU is needed.

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lorry/device/cuda/library.h"
#include "lorry/kernels/cuda/fused/embedded.h"

namespace lorry {
namespace {

constexpr const char* kRoot = LORRY_SOURCE_DIR;

/// NVRTC, opened when it is first needed; `why` says why there is none. Declared here: a toolkit may come without its
/// header.
struct Nvrtc {
  using Program = struct Opaque*;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*, const char* const*);
  int (*compile)(Program, int count, const char* const* options);  // 0: success
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*destroy)(Program*);
  std::string why;
};
const Nvrtc& nvrtc() {
  static const Nvrtc kNvrtc = [] {
    Nvrtc made{};
    const auto [handle, why] = cuda::open_library("libnvrtc.so." + std::to_string(CUDART_VERSION / 1000));
    if (handle == nullptr) return made.why = why, made;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      if (function == nullptr) made.why = std::string("no ") + name;
    };
    find(made.create, "nvrtcCreateProgram"), find(made.compile, "nvrtcCompileProgram");
    find(made.log_size, "nvrtcGetProgramLogSize"), find(made.log, "nvrtcGetProgramLog");
    find(made.destroy, "nvrtcDestroyProgram");
    return made;
  }();
  return kNvrtc;
}

/// What the compiler says of a program: empty when it has nothing to say.
std::string said_of(const std::string& source) {
  Nvrtc::Program program = nullptr;
  nvrtc().create(&program, source.c_str(), "program.cu", 0, nullptr, nullptr);
  const std::string root = std::string("-I") + kRoot, standard = root + "/lorry/base/nvrtc";
  const char* const options[] = {"--std=c++20",
                                 "--gpu-architecture=compute_80",
                                 "--device-as-default-execution-space",
                                 "--fmad=false",
                                 root.c_str(),
                                 standard.c_str()};
  const int result = nvrtc().compile(program, static_cast<int>(std::size(options)), options);
  size_t length = 0;
  nvrtc().log_size(program, &length);
  std::string log(length, '\0');
  nvrtc().log(program, log.data());
  nvrtc().destroy(&program);
  log.resize(log.find_last_not_of(std::string("\n\0", 2)) + 1);
  return result == 0 || !log.empty() ? log : "failed without a word";
}

/// What the library carries for generated kernels.
std::vector<std::string> headers() {
  std::vector<std::string> all;
  for (const kernels::cuda::Header& header : kernels::cuda::embedded_headers())
    if (header.name.ends_with(".h")) all.push_back(header.name);
  return all;
}

class Nvrtcs : public testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc().why.empty()) GTEST_SKIP() << "no NVRTC: " << nvrtc().why;
  }
};

TEST_F(Nvrtcs, every_formula_and_device_header_compiles_by_itself) {
  const std::vector<std::string> all = headers();
  EXPECT_GT(all.size(), 20u);
  for (const std::string& header : all) EXPECT_EQ(said_of("#include \"" + header + "\"\n"), "") << header;
}

TEST_F(Nvrtcs, errors_are_seen) { EXPECT_NE(said_of("int f() { return unknown; }"), ""); }

TEST_F(Nvrtcs, a_kernel_over_a_list_that_uses_elements_fast_math_and_a_rule_compiles) {
  EXPECT_EQ(said_of(R"(
#include "lorry/formula/adamw.h"
#include "lorry/formula/philox.h"
#include "lorry/formula/random.h"
#include "lorry/kernels/cuda/common/fast_math.h"
#include "lorry/kernels/cuda/list/list.h"
using namespace lorry;
using namespace lorry::kernels::cuda;
struct Body {
  static constexpr int kArrays = 2, kTile = 1024, kRunLength = 4, kBlocks = 4;
  formula::RandomKey key;
  __device__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    auto* const out = static_cast<float*>(entry.at[0]) + tile.first;
    const auto* const x = static_cast<const BFloat16*>(entry.at[1]) + tile.first;
    for (int i = lane; i < tile.count; i += 32)
      out[i] = cast<float, BFloat16>(x[i]) + formula::unit_f32(formula::random_block(key, i).word[0]);
  }
};
template __global__ void lorry::kernels::cuda::over_tiles<Body, Table<2>>(
    const __grid_constant__ Body, const Ending, const __grid_constant__ Table<2>);
template __global__ void lorry::kernels::cuda::over_tiles<Body, Arguments4K<2>>(
    const __grid_constant__ Body, const Ending, const __grid_constant__ Arguments4K<2>);

using Rule = formula::AdamW<false>;
extern "C" __global__ void step(float* param, const float* grad, float* mean, float* var,
                                formula::HyperOf<Rule, float> hyper, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float states[] = {mean[i], var[i]};
  Rule()(param[i], grad[i], states, hyper);
  mean[i] = states[0], var[i] = states[1];
}
)"),
            "");
}

}  // namespace
}  // namespace lorry
