#include <gtest/gtest.h>

#include <sstream>

#include "lorry/ops/ops.h"
#include "tests/support/message.h"

namespace lorry {
namespace {

template <class... T>
std::string streamed(const T&... x) {
  std::ostringstream out;
  (out << ... << x);
  return out.str();
}

TEST(StreamOutput, writes_sizes_dtypes_and_devices_as_messages_do) {
  const Tensor x = zeros({2, 3}, {kBF16, kCPU});
  EXPECT_EQ(streamed(x.sizes(), x.dtype(), x.device()), "[2, 3]bf16cpu");
  EXPECT_EQ(streamed(Device("cuda:1")), "cuda:1");
  EXPECT_EQ(streamed(Dims{}), "[]");
}

TEST(DeviceNames, stand_for_devices) {
  EXPECT_EQ(Device("cpu"), kCPU);
  EXPECT_EQ(Device("cuda"), kCUDA);
  EXPECT_EQ(Device(std::string("cuda:1")), (Device{DeviceType::cuda, 1}));
  EXPECT_EQ(kCUDA, (Device{DeviceType::cuda, 0}));
  const Tensor x = ones({2}, {.device = "cpu"});
  EXPECT_TRUE(x.to("cpu").is_same(x));
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:-1", "cuda:128", "cuda:1x"})
    EXPECT_THROW(Device{wrong}, ValueError) << wrong;
}

}  // namespace
}  // namespace lorry
