#include "lorry/kernels/cpu/matmul/gemm.h"

#if LORRY_WITH_ONEDNN
#include <dnnl.h>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/matmul/gemm_bf16.h"
#include "lorry/kernels/cpu/matmul/onednn.h"
#endif

namespace lorry::kernels::cpu {

#if LORRY_WITH_ONEDNN

namespace {
/// Up to so many multiply-adds a call of oneDNN costs more than the product.
constexpr int64_t kSmall = int64_t{1} << 17, kSmallBf16 = int64_t{1} << 15;

/// Without AVX-512, oneDNN 2.6 is slow if rows of B are a multiple of 4 KB apart, when a column lies in one set of the
/// first-level cache: 1024 x 1024 x 1024 takes 26 ms on an EPYC with two threads, in the packed kernel 16; with 1000
/// columns of B instead, oneDNN is the faster one.
bool crowds_cache(const Gemm<float, float>& g) {
  return simd_level() == SimdLevel::avx2 && g.n > 1 && g.b_col == 1 &&
         g.b_row * static_cast<int64_t>(sizeof(float)) % 4096 == 0;
}
}  // namespace

// dnnl_sgemm instead of a matmul primitive: for the products of a small GPT (2048 x 128..512 x 128..512, 2 threads,
// tiles of 256 rows) it reaches 310-335 GFLOP/s, the primitive 200-330; it takes 3 us instead of 6 for one row; and it
// needs no cache of shapes. It would split k among idle threads, hence the serial scope. While it runs, the stack
// register may point into oneDNN's workspace on the heap, so signal handlers need SA_ONSTACK (docs/architecture.md).
//
// Small products are left to the packed kernel. Except for single rows and columns, and for rows of A times lines of B,
// both kernels add an element's products in the same order and give the same bits, up to a k of 256. Those exceptions
// are left to it in a batch only.
void gemm(const Gemm<float, float>& g) {
  const bool same_bits = g.m > 1 && g.n > 1 && (g.a_col != 1 || g.b_col == 1);
  const bool small = g.k <= 256 && g.m * g.n * g.k <= kSmall && (same_bits || g.in_batch);
  if (g.k == 0 || small || (g.m > 1 && crowds_cache(g))) return packed::gemm(g);
  const onednn::Call call;
  if (!call) return packed::gemm(g);
  const auto transposed = [](int64_t column) { return column == 1 ? 'N' : 'T'; };
  const lorry::cpu::SerialScope serial;
  const int64_t lda = g.a_col == 1 ? g.a_row : g.a_col, ldb = g.b_col == 1 ? g.b_row : g.b_col;
  const dnnl_status_t status = dnnl_sgemm(transposed(g.a_col), transposed(g.b_col), g.m, g.n, g.k, g.alpha, g.a, lda,
                                          g.b, ldb, g.beta, g.c, g.c_row);
  onednn::close_at_exit(g.m, g.n, g.k, (g.a_col == 1) | (g.b_col == 1) << 1 | (g.beta == 0) << 2 | (g.alpha == 1) << 3);
  if (status != dnnl_success) packed::gemm(g);
}

void gemm(const Gemm<BFloat16, float>& g) {
  if (g.m * g.n * g.k <= kSmallBf16 || !onednn::gemm_bf16(g)) packed::gemm(g);
}

#else

void gemm(const Gemm<float, float>& g) { packed::gemm(g); }
void gemm(const Gemm<BFloat16, float>& g) { packed::gemm(g); }

#endif

}  // namespace lorry::kernels::cpu
