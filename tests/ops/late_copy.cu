#include "tests/ops/late_copy.h"

#include <algorithm>

#include "lorry/base/error.h"
#include "lorry/device/cuda/launch.h"

namespace lorry::test {
namespace {

constexpr int kMost = 16;

struct Copies {
  LateCopy at[kMost];
  int count;

  void addresses(auto& visit) const {
    for (const LateCopy& copy : at) visit(copy.to, copy.from);
  }
};

__global__ void copy_by_and_by(const Copies copies) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  for (int i = 0; i < 500; ++i) __nanosleep(1000);
  for (int k = 0; k < copies.count; ++k)
    for (int64_t i = threadIdx.x; i < copies.at[k].bytes; i += blockDim.x)
      static_cast<char*>(copies.at[k].to)[i] = static_cast<const char*>(copies.at[k].from)[i];
}

__global__ void copy_at_once(char* to, const char* from) { *to = *from; }

}  // namespace

void copy_late(Stream stream, const std::vector<LateCopy>& copies) {
  if (copies.size() > kMost) throw ValueError("copy_late: more than 16 copies");
  Copies all = {};
  std::ranges::copy(copies, all.at);
  all.count = static_cast<int>(copies.size());
  cuda::launch(stream, {.grid = 1, .block = 256, .programmatic = false}, copy_by_and_by, all);
}

void copy_early(Stream stream, const LateCopy& copy) {
  cuda::launch(stream, {.grid = 1, .block = 1}, copy_at_once, static_cast<char*>(copy.to),
               static_cast<const char*>(copy.from));
}

}  // namespace lorry::test
