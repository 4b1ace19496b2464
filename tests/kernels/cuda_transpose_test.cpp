// Copies of 16-bit elements between layouts whose rows run along different dimensions: every element, around the sides
// of tiles and where 16-byte accesses are not possible.

#include "lorry/ops/ops.h"
#include "tests/support/on_cuda.h"

namespace lorry {
namespace {

using test::kGPU;

/// Different in every element as far as 16 bits go.
Tensor numbered(const Dims& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return arange(count, {.dtype = kI64, .device = kCPU}).mul(40'503).remainder(65'536).sub(32'768).to(kI16).view(sizes);
}

void expect_same(const Tensor& x, const char* what) {
  const Tensor there = x.to(kGPU);
  EXPECT_TRUE(there.transpose(-1, -2).contiguous().cpu().equal(x.transpose(-1, -2))) << what << " " << describe(x);
}

TEST(CudaTranspose, moves_every_element_whatever_the_sides) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const int64_t rows : {8, 9, 63, 64, 65, 72, 127, 128, 129, 136, 200, 1000})
    for (const int64_t columns : {8, 15, 64, 66, 71, 128, 130, 192, 257})
      expect_same(numbered({rows, columns}), "the whole");
}

TEST(CudaTranspose, moves_every_element_of_views_and_batches) {
  LORRY_SKIP_WITHOUT_CUDA();
  expect_same(numbered({3, 5, 130, 72}), "a batch");
  expect_same(numbered({7, 1, 33}).expand({7, 40, 33}), "an expanded dimension");
  for (const int64_t start : {1, 2, 8}) {
    const Tensor x = numbered({150, 160}), there = x.to(kGPU);
    for (const int64_t dim : {0, 1})
      EXPECT_TRUE(there.narrow(dim, start, 130).t().contiguous().cpu().equal(x.narrow(dim, start, 130).t()))
          << start << " along " << dim;
    // Into a target whose rows start anywhere.
    const Tensor target = zeros({200, 200}, {kI16, kGPU}), expected = zeros({200, 200}, {kI16, kCPU});
    target.narrow(0, start, 160).narrow(1, start, 150).copy_(there.t());
    expected.narrow(0, start, 160).narrow(1, start, 150).copy_(x.t());
    EXPECT_TRUE(target.cpu().equal(expected)) << start;
  }
}

TEST(CudaTranspose, moves_more_than_one_load_of_the_device) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor x = numbered({4'100, 2'056}), there = x.to(kGPU);
  EXPECT_TRUE(there.t().contiguous().cpu().equal(x.t()));
}

}  // namespace
}  // namespace lorry
