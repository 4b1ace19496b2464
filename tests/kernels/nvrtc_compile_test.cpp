#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lorry/kernels/cuda/fused/nvrtc.h"

namespace lorry::kernels::cuda::test {
namespace {

const std::vector<std::string> kOptions = {"--std=c++20", "--gpu-architecture=sm_90", "--fmad=false"};

class NvrtcCompile : public testing::Test {
 protected:
  void SetUp() override {
    if (!Nvrtc::get().missing().empty()) GTEST_SKIP() << "no NVRTC: " << Nvrtc::get().missing();
  }
};

TEST_F(NvrtcCompile, makes_a_cubin_with_the_headers_it_is_given) {
  const Compiled made = Nvrtc::get().compile(
      "#include \"twice.h\"\nextern \"C\" __global__ void kernel(float* x) { x[threadIdx.x] = twice(x[threadIdx.x]); }",
      {{"twice.h", "__device__ float twice(float x) { return 2 * x; }"}}, kOptions);
  EXPECT_EQ(made.cubin.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(made.log, "");
}

TEST_F(NvrtcCompile, says_why_a_source_is_refused) {
  const Compiled made = Nvrtc::get().compile("__global__ void kernel() { unknown(); }", {}, kOptions);
  EXPECT_TRUE(made.cubin.empty());
  EXPECT_NE(made.log.find("unknown"), std::string::npos) << made.log;
}

TEST_F(NvrtcCompile, says_why_options_are_refused) {
  const Compiled made = Nvrtc::get().compile("", {}, {"--no-such-option"});
  EXPECT_TRUE(made.cubin.empty());
  EXPECT_FALSE(made.log.empty());
}

TEST_F(NvrtcCompile, tells_its_version) { EXPECT_EQ(Nvrtc::get().version().substr(0, 6), "nvrtc "); }

}  // namespace
}  // namespace lorry::kernels::cuda::test
