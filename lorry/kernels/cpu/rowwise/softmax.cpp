// softmax of rows and of columns. A row is read from memory once and stays in the first- or second-level cache for the
// three passes: maximum, exponentials and their sum, scaling. A maximum that is not finite makes the whole row NaN, as
// in the mathematical formula. Short rows are computed side by side, one in each lane, and so are columns; each has the
// bits of a row that is computed alone.

#include "lorry/kernels/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/rowwise/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "lorry/kernels/cpu/common/scratch.h"
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
  /// The same for `width` columns of n elements that lie `step` apart, `columns` at a time: [0] those of a vector;
  /// [1] those of a cache line, so that it is read once, from a copy.
  void (*forward_columns[2])(S* out, const S* x, int64_t n, int64_t step, int64_t width, bool log);
  void (*backward_columns[2])(S* grad_x, const S* grad, const S* out, int64_t n, int64_t step, int64_t width, bool log);
  int64_t columns[2];
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
      max = fold_vectors<Fold::max>(d, max, v[i]);
    }
    for (int64_t i = 0; i < n; ++i) terms[i] = exponentials[i] = exp_of_not_positive(d, hn::Sub(v[i], max));
    const auto finite = hn::Lt(hn::Abs(max), infinite);
    const auto sum = sum_short<kShortRow>(d, terms, n);
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

/// Highway's Exp gives 0 for a NaN; keep the NaN, which then appears in the result.
template <class D, class V>
HWY_INLINE V log_softmax_gradient(D d, V grad, V out, V total) {
  const auto p = hn::IfThenElse(hn::Eq(out, out), hn::Exp(d, out), out);
  return hn::Sub(grad, hn::Mul(p, total));
}

template <class S>
void softmax_backward_row(S* grad_x, const Accumulate<S>* grad, const Accumulate<S>* out, int64_t n, bool log) {
  using C = Accumulate<S>;
  if (log) {
    const C total = static_cast<C>(fold_loops<C>(Fold::sum).row(grad, n));
    for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
      const auto g = hn::LoadU(d, grad + i), y = hn::LoadU(d, out + i);
      store_as(d, log_softmax_gradient(d, g, y, hn::Set(d, total)), grad_x + i);
    });
  } else {
    const C total = static_cast<C>(sum_map<false>(static_cast<C*>(nullptr), grad, out, n, C(0),
                                                  [](auto, auto g, auto y) HWY_ATTR { return hn::Mul(g, y); }));
    for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
      store_as(d, hn::Mul(hn::LoadU(d, out + i), hn::Sub(hn::LoadU(d, grad + i), hn::Set(d, total))), grad_x + i);
    });
  }
}

/// Neighbouring columns in memory, one in each lane of kVectors vectors, or the `left` last ones.
template <class S, int kVectors>
class Columns {
 public:
  using C = Accumulate<S>;
  using D = hn::ScalableTag<C>;
  using V = hn::Vec<D>;
  static constexpr int64_t kN = hn::MaxLanes(D()), kWidth = kVectors * kN;

  Columns(S* x, int64_t step, int64_t left) : x_(x), step_(step), left_(left) {}
  HWY_INLINE V load(D d, int64_t i, int64_t v) const {
    const int64_t left = left_ - v * kN;
    const S* const from = x_ + i * step_ + v * kN;
    return left >= kN ? load_as(d, from) : left > 0 ? load_first_as(d, from, left, C(0)) : hn::Zero(d);
  }
  HWY_INLINE void store(D d, V value, int64_t i, int64_t v) const {
    const int64_t left = left_ - v * kN;
    S* const to = x_ + i * step_ + v * kN;
    if (left >= kN)
      store_as(d, value, to);
    else if (left > 0)
      store_first_as(d, value, left, to);
  }
  /// Calls f(i, v) for all vectors of n rows.
  template <class F>
  static HWY_INLINE void each(int64_t n, F f) {
    for (int64_t i = 0; i < n; ++i)
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; ++v) f(i, v);
  }

 private:
  S* const x_;
  const int64_t step_, left_;
};

// kCopied: columns are copied to memory that has them side by side. Where lines lie a power of two apart, they compete
// for few places in the caches; and 16-bit elements are computed in f32.

template <class S, int kVectors, bool kCopied>
void softmax_columns(S* out, const S* x, int64_t n, int64_t step, int64_t width, bool log) {
  using C = Accumulate<S>;
  using Of = Columns<S, kVectors>;
  const hn::ScalableTag<C> d;
  C* const space = kCopied ? scratch<C>(Scratch::rows, n * Of::kWidth) : nullptr;
  const auto at = [&](int64_t i, int64_t v) { return space + (i * kVectors + v) * Of::kN; };
  const auto infinite = hn::Set(d, std::numeric_limits<C>::infinity());
  const auto nan = hn::Set(d, std::numeric_limits<C>::quiet_NaN());
  for (int64_t c = 0; c < width; c += Of::kWidth) {
    const Of from(const_cast<S*>(x) + c, step, width - c), to(out + c, step, width - c);
    const auto element = [&](int64_t i, int64_t v)
                             HWY_ATTR { return kCopied ? hn::Load(d, at(i, v)) : from.load(d, i, v); };
    typename Of::V max[kVectors], rest[kVectors];
    for (auto& m : max) m = hn::Neg(infinite);
    Of::each(n, [&](int64_t i, int64_t v) HWY_ATTR {
      const auto value = from.load(d, i, v);
      if (kCopied) hn::Store(value, d, at(i, v));
      max[v] = fold_vectors<Fold::max>(d, max[v], value);
    });
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto term = [&](int64_t i) HWY_ATTR {
        const auto exponential = exp_of_not_positive(d, hn::Sub(element(i, v), max[v]));
        if (!log) kCopied ? hn::Store(exponential, d, at(i, v)) : to.store(d, exponential, i, v);
        return exponential;
      };
      // A quotient of f64 that is then rounded to f32 is that of f32, if both operands are.
      rest[v] = log                 ? sum_columns(d, n, term, [](double total) { return std::log(total); })
                : n <= kSumBlock<C> ? hn::Div(hn::Set(d, C(1)), sum_column_block(d, 0, n, term))
                                    : sum_columns(d, n, term, [](double total) { return 1 / total; });
    }
    Of::each(n, [&](int64_t i, int64_t v) HWY_ATTR {
      const auto value = kCopied || log ? element(i, v) : to.load(d, i, v);
      const auto result = log ? hn::Sub(hn::Sub(value, max[v]), rest[v]) : hn::Mul(value, rest[v]);
      to.store(d, hn::IfThenElse(hn::Lt(hn::Abs(max[v]), infinite), result, nan), i, v);
    });
  }
}

/// The sums of columns of n elements, as FoldLoops::row has those of rows. load(i): their element i.
template <class C, class F>
HWY_INLINE auto fold_columns(int64_t n, F load) {
  const hn::ScalableTag<C> d;
  constexpr int64_t kN = hn::MaxLanes(d);
  if (n > kFoldedSingly) return sum_columns(d, n, load, [](double total) { return total; });
  double totals[kN] = {};
  HWY_ALIGN C lanes[kN];
  for (int64_t i = 0; i < n; ++i) {
    hn::Store(load(i), d, lanes);
    for (int64_t c = 0; c < kN; ++c) totals[c] += static_cast<double>(lanes[c]);
  }
  std::copy(totals, totals + kN, lanes);
  return hn::Load(d, lanes);
}

template <class S, int kVectors, bool kCopied>
void softmax_backward_columns(S* grad_x, const S* grad, const S* out, int64_t n, int64_t step, int64_t width,
                              bool log) {
  using C = Accumulate<S>;
  using Of = Columns<S, kVectors>;
  const hn::ScalableTag<C> d;
  C* const space = kCopied ? scratch<C>(Scratch::rows, 2 * n * Of::kWidth) : nullptr;
  const auto at = [&](int64_t i, int64_t v) { return space + (i * kVectors + v) * 2 * Of::kN; };  // then that of out
  for (int64_t c = 0; c < width; c += Of::kWidth) {
    const int64_t left = width - c;
    const Of g(const_cast<S*>(grad) + c, step, left), y(const_cast<S*>(out) + c, step, left),
        to(grad_x + c, step, left);
    if constexpr (kCopied)
      Of::each(n, [&](int64_t i, int64_t v) HWY_ATTR {
        hn::Store(g.load(d, i, v), d, at(i, v));
        hn::Store(y.load(d, i, v), d, at(i, v) + Of::kN);
      });
    const auto of_grad = [&](int64_t i, int64_t v)
                             HWY_ATTR { return kCopied ? hn::Load(d, at(i, v)) : g.load(d, i, v); };
    const auto of_out = [&](int64_t i, int64_t v)
                            HWY_ATTR { return kCopied ? hn::Load(d, at(i, v) + Of::kN) : y.load(d, i, v); };
    typename Of::V total[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto product = [&](int64_t i) HWY_ATTR { return hn::Mul(of_grad(i, v), of_out(i, v)); };
      total[v] = log ? fold_columns<C>(n, [&](int64_t i) HWY_ATTR { return of_grad(i, v); })
                     : sum_columns(d, n, product, [](double sum) { return sum; });
    }
    Of::each(n, [&](int64_t i, int64_t v) HWY_ATTR {
      const auto value = of_grad(i, v), p = of_out(i, v);
      to.store(d, log ? log_softmax_gradient(d, value, p, total[v]) : hn::Mul(p, hn::Sub(value, total[v])), i, v);
    });
  }
}

template <class S>
constexpr SoftmaxRows<S> softmax_of() {
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<Accumulate<S>>()), kLine = 64 / sizeof(S);
  constexpr int kVectors = std::max<int64_t>(1, kLine / kLanes);
  return {softmax_rows<S>,
          softmax_backward_row<S>,
          {softmax_columns<S, 1, kNarrowType<S>>, softmax_columns<S, kVectors, true>},
          {softmax_backward_columns<S, 1, false>, softmax_backward_columns<S, kVectors, true>},
          {kLanes, kLanes * kVectors}};
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

/// A vector of longer columns would not stay in the second-level cache. The operators transpose them.
constexpr int64_t kLongestColumn = 1 << 15;
/// The same for softmax of so few columns that most lanes would have none.
constexpr int64_t kFewestColumns = 16;

/// Where x, contiguous, has its lines along `dim`: `outer` groups of `inner` lines of n elements.
struct Lines {
  int64_t outer = 0, n = 1, inner = 1;

  Lines(const Array& x, int64_t dim) {
    if (x.numel() == 0) return;
    if (x.layout.rank > 0) n = x.size(static_cast<int>(dim));
    for (int d = static_cast<int>(dim) + 1; d < x.layout.rank; ++d) inner *= x.size(d);
    outer = x.numel() / n / inner;
  }

  /// Whether the elements of a line compete for few places in the caches.
  bool compete(int64_t element_bytes) const {
    constexpr int64_t kApart = 2048, kFew = 16;
    return inner * element_bytes % kApart == 0 && n > kFew;
  }
};

/// Calls f(at, width) for strips of columns, a multiple of `least` unless they are the last ones. The first of a strip
/// begins at element `at`.
template <class F>
void each_strip(const Lines& x, int64_t least, F f) {
  const int64_t width = std::max<int64_t>(1, 4096 / (x.n * least)) * least, strips = (x.inner + width - 1) / width;
  lorry::cpu::parallel_for(x.outer * strips, row_grain(x.n * width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % strips * width;
      f(i / strips * x.n * x.inner + column, std::min(width, x.inner - column));
    }
  });
}

void softmax(const Array& out, const Array& x, int64_t dim, bool log, const Stream&) {
  const Lines lines(x, dim);
  const int64_t n = lines.n;
  visit_floating(x.dtype, [&]<class S>(Type<S>) {
    using C = Accumulate<S>;
    const SoftmaxRows<S>& loops = softmax_loops<S>();
    // 16-bit elements are computed a line at a time, where every thread still gets some.
    const bool wide = kNarrowType<S> ? lines.outer * lines.inner >= 4 * loops.columns[1] * lorry::cpu::threads()
                                     : lines.compete(sizeof(S));
    if (lines.inner > 1)
      return each_strip(lines, loops.columns[wide], [&](int64_t at, int64_t width) {
        loops.forward_columns[wide](out.as<S>() + at, x.as<S>() + at, n, lines.inner, width, log);
      });
    lorry::cpu::parallel_for(lines.outer, row_grain(n), [&](int64_t begin, int64_t end) {
      const int64_t most = rows_at_once(n);
      RowReader<C> in(x, n, n, most);
      RowWriter<C> space(out, n, n, most);
      for (int64_t r = begin; r < end; r += most) {
        const int64_t count = std::min(most, end - r);
        loops.forward(out.as<S>() + r * n, space(r), in(r, count), count, n, log);
      }
    });
  });
}

void softmax_backward(const Array& grad_x, const Array& grad, const Array& out, int64_t dim, bool log, const Stream&) {
  const Lines lines(grad, dim);
  const int64_t n = lines.n;
  visit_floating(grad.dtype, [&]<class S>(Type<S>) {
    using C = Accumulate<S>;
    const SoftmaxRows<S>& loops = softmax_loops<S>();
    const bool compete = lines.compete(sizeof(S));
    if (lines.inner > 1)
      return each_strip(lines, loops.columns[compete], [&](int64_t at, int64_t width) {
        loops.backward_columns[compete](grad_x.as<S>() + at, grad.as<S>() + at, out.as<S>() + at, n, lines.inner, width,
                                        log);
      });
    lorry::cpu::parallel_for(lines.outer, row_grain(n), [&](int64_t begin, int64_t end) {
      RowReader<C> g(grad, n), y(out, n);
      for (int64_t r = begin; r < end; ++r) loops.backward(grad_x.as<S>() + r * n, g(r), y(r), n, log);
    });
  });
}

}  // namespace

const SoftmaxKernels& softmax_kernels() {
  static constexpr SoftmaxKernels kKernels{softmax, softmax_backward, kLongestColumn, kFewestColumns};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
#endif
