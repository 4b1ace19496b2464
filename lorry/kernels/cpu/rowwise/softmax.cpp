// Row softmax. A row is read from memory once and stays in the first- or second-level cache for the three passes:
// maximum, exponentials and their sum, scaling. A maximum that is not finite makes the whole row NaN, as in the
// mathematical formula.

#include "lorry/kernels/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/rowwise/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "hwy/contrib/math/math-inl.h"
#include "lorry/kernels/cpu/common/vector_rows-inl.h"
#include "lorry/kernels/cpu/rowwise/rows.h"

#ifndef LORRY_SOFTMAX_TABLE
#define LORRY_SOFTMAX_TABLE
namespace lorry::kernels::cpu {
template <class C>
struct SoftmaxRows {
  void (*forward)(C* out, const C* x, int64_t n, bool log);
  void (*backward)(C* grad_x, const C* grad, const C* out, int64_t n, bool log);
};
struct SoftmaxTable {
  SoftmaxRows<float> f32;
  SoftmaxRows<double> f64;
};
}  // namespace lorry::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {

template <class C>
void softmax_row(C* out, const C* x, int64_t n, bool log) {
  const C max = static_cast<C>(fold_loops<C>(Fold::max).row(x, n));
  if (!std::isfinite(max)) {
    std::fill(out, out + n, std::numeric_limits<C>::quiet_NaN());
    return;
  }
  const C pad = -std::numeric_limits<C>::infinity();
  const auto exp_of = [&](auto d, auto v, auto) HWY_ATTR { return hn::Exp(d, hn::Sub(v, hn::Set(d, max))); };
  if (log) {
    const C shift = static_cast<C>(std::log(sum_map<false>(out, x, x, n, pad, exp_of)));
    for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
      hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, max)), hn::Set(d, shift)), d, out + i);
    });
  } else {
    const C scale = static_cast<C>(1 / sum_map<true>(out, x, x, n, pad, exp_of));
    for_each_vector<C>(n, [&](auto d, int64_t i)
                              HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, out + i), hn::Set(d, scale)), d, out + i); });
  }
}

template <class C>
void softmax_backward_row(C* grad_x, const C* grad, const C* out, int64_t n, bool log) {
  if (log) {
    const C total = static_cast<C>(fold_loops<C>(Fold::sum).row(grad, n));
    for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
      const auto y = hn::LoadU(d, out + i);
      // Highway's Exp gives 0 for a NaN; keep the NaN, which then appears in the sum.
      const auto p = hn::IfThenElse(hn::Eq(y, y), hn::Exp(d, y), y);
      hn::StoreU(hn::Sub(hn::LoadU(d, grad + i), hn::Mul(p, hn::Set(d, total))), d, grad_x + i);
    });
  } else {
    const C total = static_cast<C>(
        sum_map<false>(grad_x, grad, out, n, C(0), [](auto, auto g, auto y) HWY_ATTR { return hn::Mul(g, y); }));
    for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, out + i), hn::Sub(hn::LoadU(d, grad + i), hn::Set(d, total))), d, grad_x + i);
    });
  }
}

const SoftmaxTable* softmax_table() {
  static constexpr SoftmaxTable kTable{{softmax_row<float>, softmax_backward_row<float>},
                                       {softmax_row<double>, softmax_backward_row<double>}};
  return &kTable;
}

}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

HWY_EXPORT(softmax_table);

template <class C>
const SoftmaxRows<C>& softmax_rows() {
  static const SoftmaxTable* const kTable = HWY_DYNAMIC_DISPATCH(softmax_table)();
  if constexpr (std::is_same_v<C, float>) return kTable->f32;
  if constexpr (std::is_same_v<C, double>) return kTable->f64;
}

/// Calls f(Type<C>{}, n, rows) for a floating array as rows of its last dimension.
template <class F>
void visit_rows(const Array& x, F&& f) {
  const int64_t n = x.layout.rank ? x.size(x.layout.rank - 1) : 1;
  if (x.numel() == 0) return;
  if (x.dtype == kF64)
    f(Type<double>{}, n, x.numel() / n);
  else
    f(Type<float>{}, n, x.numel() / n);
}

void softmax(const Array& out, const Array& x, bool log, const Stream&) {
  visit_rows(x, [&]<class C>(Type<C>, int64_t n, int64_t rows) {
    lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowReader<C> in(x, n);
      RowWriter<C> to(out, n);
      for (int64_t r = begin; r < end; ++r) {
        softmax_rows<C>().forward(to(r), in(r), n, log);
        to.done(r);
      }
    });
  });
}

void softmax_backward(const Array& grad_x, const Array& grad, const Array& out, bool log, const Stream&) {
  visit_rows(grad, [&]<class C>(Type<C>, int64_t n, int64_t rows) {
    lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowReader<C> g(grad, n), y(out, n);
      RowWriter<C> to(grad_x, n);
      for (int64_t r = begin; r < end; ++r) {
        softmax_rows<C>().backward(to(r), g(r), y(r), n, log);
        to.done(r);
      }
    });
  });
}

}  // namespace

const SoftmaxKernels& softmax_kernels() {
  static constexpr SoftmaxKernels kKernels{softmax, softmax_backward};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
#endif
