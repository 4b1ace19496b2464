// Row softmax. A row is read from memory once and stays in the first- or second-level cache for the three passes:
// maximum, exponentials and their sum, scaling. A maximum that is not finite makes the whole row NaN, as in the
// mathematical formula. Short rows are computed side by side, with the bits of one after the other.

#include "lorry/kernels/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/rowwise/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "lorry/kernels/cpu/common/vector_rows-inl.h"
#include "lorry/kernels/cpu/rowwise/exp-inl.h"
#include "lorry/kernels/cpu/rowwise/rows.h"

#ifndef LORRY_SOFTMAX_TABLE
#define LORRY_SOFTMAX_TABLE
namespace lorry::kernels::cpu {
template <class S>
struct SoftmaxRows {
  using C = Accumulate<S>;
  /// Writes rows of n elements. `space` has room for them; it is `out` if S is the compute type.
  void (*forward)(S* out, C* space, const C* x, int64_t rows, int64_t n, bool log);
  void (*backward)(S* grad_x, const C* grad, const C* out, int64_t n, bool log);
};
struct SoftmaxTable {
  SoftmaxRows<float> f32;
  SoftmaxRows<double> f64;
  SoftmaxRows<BFloat16> bf16;
  SoftmaxRows<Float16> f16;
};
}  // namespace lorry::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {

template <class S>
void softmax_row(S* out, Accumulate<S>* space, const Accumulate<S>* x, int64_t n, bool log) {
  using C = Accumulate<S>;
  const C max = static_cast<C>(fold_loops<C>(Fold::max).row(x, n));
  if (!std::isfinite(max)) {
    std::fill(out, out + n, S(std::numeric_limits<C>::quiet_NaN()));
    return;
  }
  const C pad = -std::numeric_limits<C>::infinity();
  const auto exp_of = [&](auto d, auto v, auto)
                          HWY_ATTR { return exp_of_not_positive(d, hn::Sub(v, hn::Set(d, max))); };
  if (log) {
    const C shift = static_cast<C>(std::log(sum_map<false>(space, x, x, n, pad, exp_of)));
    for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
      store_as(d, hn::Sub(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, max)), hn::Set(d, shift)), out + i);
    });
  } else {
    const C scale = static_cast<C>(1 / sum_map<true>(space, x, x, n, pad, exp_of));
    for_each_vector<C>(n, [&](auto d, int64_t i)
                              HWY_ATTR { store_as(d, hn::Mul(hn::LoadU(d, space + i), hn::Set(d, scale)), out + i); });
  }
}

/// Rows of n <= kShortRow elements, one in each lane. Returns how many rows it has written: whole vectors of them.
template <class C>
int64_t softmax_short(C* out, const C* x, int64_t rows, int64_t n, bool log) {
  const hn::ScalableTag<C> d;
  constexpr int64_t kN = hn::MaxLanes(d);
  const auto at = row_starts(d, n);
  const auto infinite = hn::Set(d, std::numeric_limits<C>::infinity());
  const auto nan = hn::Set(d, std::numeric_limits<C>::quiet_NaN());
  int64_t r = 0;
  for (; r + kN <= rows; r += kN, x += kN * n, out += kN * n) {
    hn::Vec<decltype(d)> v[kShortRow], terms[kShortRow], exponentials[kShortRow];
    auto max = hn::Neg(infinite);
    for (int64_t i = 0; i < n; ++i) {
      v[i] = hn::GatherIndex(d, x + i, at);
      max = hn::IfThenElse(hn::Or(hn::Gt(v[i], max), hn::Not(hn::Eq(v[i], v[i]))), v[i], max);
    }
    for (int64_t i = 0; i < n; ++i) terms[i] = exponentials[i] = exp_of_not_positive(d, hn::Sub(v[i], max));
    const auto finite = hn::Lt(hn::Abs(max), infinite);
    const auto sum = sum_short(d, terms, n);
    if (log) {
      HWY_ALIGN C shift[kN];
      hn::Store(sum, d, shift);
      for (C& s : shift) s = static_cast<C>(std::log(static_cast<double>(s)));
      for (int64_t i = 0; i < n; ++i)
        hn::ScatterIndex(hn::IfThenElse(finite, hn::Sub(hn::Sub(v[i], max), hn::Load(d, shift)), nan), d, out + i, at);
    } else {
      // The same as a quotient of f64 that is then rounded to f32.
      const auto scale = hn::Div(hn::Set(d, C(1)), sum);
      for (int64_t i = 0; i < n; ++i)
        hn::ScatterIndex(hn::IfThenElse(finite, hn::Mul(exponentials[i], scale), nan), d, out + i, at);
    }
  }
  return r;
}

template <class S>
void softmax_rows(S* out, Accumulate<S>* space, const Accumulate<S>* x, int64_t rows, int64_t n, bool log) {
  const int64_t done = n <= kShortRow ? softmax_short(space, x, rows, n, log) : 0;
  if constexpr (kNarrowType<S>) store_row(out, space, done * n);
  for (int64_t r = done; r < rows; ++r) softmax_row(out + r * n, space + r * n, x + r * n, n, log);
}

template <class S>
void softmax_backward_row(S* grad_x, const Accumulate<S>* grad, const Accumulate<S>* out, int64_t n, bool log) {
  using C = Accumulate<S>;
  if (log) {
    const C total = static_cast<C>(fold_loops<C>(Fold::sum).row(grad, n));
    for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
      const auto y = hn::LoadU(d, out + i);
      // Highway's Exp gives 0 for a NaN; keep the NaN, which then appears in the sum.
      const auto p = hn::IfThenElse(hn::Eq(y, y), hn::Exp(d, y), y);
      store_as(d, hn::Sub(hn::LoadU(d, grad + i), hn::Mul(p, hn::Set(d, total))), grad_x + i);
    });
  } else {
    const C total = static_cast<C>(sum_map<false>(static_cast<C*>(nullptr), grad, out, n, C(0),
                                                  [](auto, auto g, auto y) HWY_ATTR { return hn::Mul(g, y); }));
    for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
      store_as(d, hn::Mul(hn::LoadU(d, out + i), hn::Sub(hn::LoadU(d, grad + i), hn::Set(d, total))), grad_x + i);
    });
  }
}

template <class S>
constexpr SoftmaxRows<S> softmax_of() {
  return {softmax_rows<S>, softmax_backward_row<S>};
}

const SoftmaxTable* softmax_table() {
  static constexpr SoftmaxTable kTable{softmax_of<float>(), softmax_of<double>(), softmax_of<BFloat16>(),
                                       softmax_of<Float16>()};
  return &kTable;
}

}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

HWY_EXPORT(softmax_table);

template <class S>
const SoftmaxRows<S>& softmax_loops() {
  static const SoftmaxTable* const kTable = HWY_DYNAMIC_DISPATCH(softmax_table)();
  if constexpr (std::is_same_v<S, float>) return kTable->f32;
  if constexpr (std::is_same_v<S, double>) return kTable->f64;
  if constexpr (std::is_same_v<S, BFloat16>) return kTable->bf16;
  if constexpr (std::is_same_v<S, Float16>) return kTable->f16;
}

/// Calls f(Type<S>{}, n, rows) for a floating array as rows of its last dimension.
template <class F>
void visit_rows(const Array& x, F&& f) {
  const int64_t n = x.layout.rank ? x.size(x.layout.rank - 1) : 1;
  if (x.numel() == 0) return;
  visit_floating(x.dtype, [&]<class S>(Type<S> type) { f(type, n, x.numel() / n); });
}

void softmax(const Array& out, const Array& x, bool log, const Stream&) {
  visit_rows(x, [&]<class S>(Type<S>, int64_t n, int64_t rows) {
    lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      const int64_t most = rows_at_once(n);
      RowReader<Accumulate<S>> in(x, n, n, most);
      RowWriter<Accumulate<S>> space(out, n, n, most);
      for (int64_t r = begin; r < end; r += most) {
        const int64_t count = std::min(most, end - r);
        softmax_loops<S>().forward(out.as<S>() + r * n, space(r), in(r, count), count, n, log);
      }
    });
  });
}

void softmax_backward(const Array& grad_x, const Array& grad, const Array& out, bool log, const Stream&) {
  visit_rows(grad, [&]<class S>(Type<S>, int64_t n, int64_t rows) {
    lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowReader<Accumulate<S>> g(grad, n), y(out, n);
      for (int64_t r = begin; r < end; ++r) softmax_loops<S>().backward(grad_x.as<S>() + r * n, g(r), y(r), n, log);
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
