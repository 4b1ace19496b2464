#include "lorry/kernels/cpu/matmul/gemm_int8.h"

#include "lorry/kernels/cpu/common/simd.h"

#if LORRY_WITH_ONEDNN
#include <dnnl.h>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/matmul/onednn.h"
#endif

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_int8_loops(Int8Loops& loops))

const Int8Loops& int8_loops() {
  static const Int8Loops table = [] {
    Int8Loops loops;
    LORRY_SIMD_CHOOSE(fill_int8_loops)(loops);
    return loops;
  }();
  return table;
}

#if LORRY_WITH_ONEDNN

namespace {

/// Whether oneDNN's sums are exact here: processors without VNNI add two products in 16 bits, which saturate.
bool library_is_exact() {
  static const bool exact = [] {
    const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());  // a bit for each extension
    const auto has = [&](unsigned all) { return (isa & all) == all; };
    return has(dnnl_cpu_isa_avx2_vnni) || has(dnnl_cpu_isa_avx512_core_vnni);
  }();
  return exact;
}

bool by_library(const Gemm<int8_t, int32_t>& g) {
  if (g.k == 0 || !library_is_exact()) return false;
  const onednn::Call call;
  if (!call) return false;
  const auto transposed = [](int64_t column) { return column == 1 ? 'N' : 'T'; };
  const int64_t lda = g.a_col == 1 ? g.a_row : g.a_col, ldb = g.b_col == 1 ? g.b_row : g.b_col;
  const int32_t no_offset = 0;
  const lorry::cpu::SerialScope serial;  // it would split the work among threads
  const dnnl_status_t status = dnnl_gemm_s8s8s32(transposed(g.a_col), transposed(g.b_col), 'F', g.m, g.n, g.k, 1, g.a,
                                                 lda, 0, g.b, ldb, 0, 0, g.c, g.c_row, &no_offset);
  onednn::close_at_exit(g.m, g.n, g.k, (g.a_col == 1) | (g.b_col == 1) << 1 | 16 | 4);
  return status == dnnl_success;
}

}  // namespace

void gemm_int8(const Gemm<int8_t, int32_t>& g) {
  if (!by_library(g)) int8_loops().gemm(g);
}

#else

void gemm_int8(const Gemm<int8_t, int32_t>& g) { int8_loops().gemm(g); }

#endif

}  // namespace lorry::kernels::cpu
