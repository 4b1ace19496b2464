// Divisions and roots that do not branch round as the compiler's do wherever they raise no doubt, and raise none where
// they said so.

#include "lorry/kernels/cuda/optim/branch_free.h"

#include "lorry/formula/random.h"
#include "tests/support/on_cuda.h"

namespace lorry::kernels::cuda {
namespace {

using lorry::test::Copied;
using lorry::test::kGPU;

enum Count { wrong, needless };

__device__ void judge(unsigned long long (&own)[2], BranchFree got, float want, bool common) {
  if (got.doubt())
    own[needless] += common;
  else
    own[wrong] += __float_as_uint(got.value()) != __float_as_uint(want);
}

/// Every float there is.
__global__ void roots(unsigned long long* counts) {
  unsigned long long own[2] = {};
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < uint64_t{1} << 32; i += threads) {
    const float x = __uint_as_float(static_cast<uint32_t>(i));
    judge(own, sqrt(BranchFree(x)), __fsqrt_rn(x), x >= 0x1p-100f && x <= 0x1p127f);
  }
  for (const int c : {wrong, needless}) atomicAdd(&counts[c], own[c]);
}

/// Every float for which the formula of the random numbers' radius is made.
__global__ void moderate_roots(unsigned long long* counts) {
  unsigned long long wrong_ones = 0;
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x, end = __float_as_uint(0x1p60f);
  for (uint64_t i = __float_as_uint(0x1p-60f) + uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i <= end;
       i += threads) {
    const float x = __uint_as_float(static_cast<uint32_t>(i));
    wrong_ones += __float_as_uint(formula::moderate_sqrt(x)) != __float_as_uint(__fsqrt_rn(x));
  }
  atomicAdd(&counts[wrong], wrong_ones);
}

__device__ uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

/// Every mantissa of a divisor, 256 times: with any dividend, with any that is common, with those nearest to the middle
/// between two quotients, and with a power of two.
__global__ void quotients(unsigned long long* counts) {
  unsigned long long own[2] = {};
  const uint32_t threads = gridDim.x * blockDim.x;
  for (uint32_t mantissa = blockIdx.x * blockDim.x + threadIdx.x; mantissa < 1u << 23; mantissa += threads)
    for (uint32_t turn = 0; turn < 256; ++turn) {
      const uint32_t bits = mixed(mantissa * 256 + turn), more = mixed(bits + 1);
      float a = __uint_as_float(bits), b = __uint_as_float(mantissa | more << 23);
      const bool power = turn >= 240;
      if (turn % 3 > 0 || power) b = __uint_as_float(mantissa | (127 - 60 + more % 80) << 23);
      if (turn % 3 == 1) a = __uint_as_float((bits & 0x807fffffu) | (127 - 100 + (more >> 8) % 160) << 23);
      if (turn % 3 == 2) {
        const double quotient = __uint_as_float(0x3f800000u | (bits & 0x7fffffu)), middle = quotient + 0x1p-24;
        a = __uint_as_float(__float_as_uint(static_cast<float>(b * middle)) + (more >> 8) % 3 - 1);
      }
      if (power) a = __uint_as_float((bits & 0x80000000u) | (127 - 100 + (more >> 8) % 160) << 23);
      judge(own, BranchFree(a) / BranchFree(b), __fdiv_rn(a, b),
            b >= 0x1p-60f && b <= 0x1p20f && fabsf(a) >= 0x1p-100f && fabsf(a) <= 0x1p60f);
    }
  for (const int c : {wrong, needless}) atomicAdd(&counts[c], own[c]);
}

void expect_right(void (*kernel)(unsigned long long*)) {
  const Copied<uint64_t> counts(kGPU, {0, 0});
  kernel<<<2'048, 256>>>(reinterpret_cast<unsigned long long*>(counts.data()));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(counts.read(), (std::vector<uint64_t>{0, 0})) << "wrong bits, doubts about common arguments";
}

TEST(BranchFree, roots_are_rounded_as_the_compiler_rounds_them) {
  LORRY_SKIP_WITHOUT_CUDA();
  expect_right(roots);
}

TEST(BranchFree, roots_of_moderate_numbers_are_rounded_as_the_compiler_rounds_them) {
  LORRY_SKIP_WITHOUT_CUDA();
  expect_right(moderate_roots);
}

TEST(BranchFree, quotients_are_rounded_as_the_compiler_rounds_them) {
  LORRY_SKIP_WITHOUT_CUDA();
  expect_right(quotients);
}

}  // namespace
}  // namespace lorry::kernels::cuda
