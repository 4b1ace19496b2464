// layer_norm and rms_norm. Forward reads each row from memory once. Mean and squares are summed in a fixed number of
// lanes with totals in f64, and squares are taken around the mean, so that a large common offset costs no precision.
// Backward reads the gradient and x once. The gradients of weight and bias are summed over chunks of kChunk rows, and
// the chunks are added in order in f64.

#include "lorry/kernels/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/rowwise/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "lorry/kernels/cpu/common/vector_rows-inl.h"
#include "lorry/kernels/cpu/rowwise/rows.h"

#ifndef LORRY_NORM_TABLE
#define LORRY_NORM_TABLE
namespace lorry::kernels::cpu {
template <class S>
struct NormRows {
  using C = Accumulate<S>;
  /// Writes rows of n elements, their means (unless null, then rows are not centred) and the reciprocals of their
  /// deviations. `space` has room for the rows; it is `out` if S is the compute type.
  void (*forward)(S* out, C* space, const S* x, const C* weight, const C* bias, int64_t rows, int64_t n, double eps,
                  C* mean, C* rstd);
  /// Writes one row of grad_x (unless null) and adds to the sums for weight and bias (unless null). Prefetches grad
  /// and x `ahead` elements further: where the next row is, or 0.
  void (*backward)(C* grad_x, C* weight_sum, C* bias_sum, const C* grad, const C* x, const C* weight, int64_t n, C mean,
                   C rstd, bool centred, int64_t ahead);
};
struct NormTable {
  NormRows<float> f32;
  NormRows<double> f64;
  NormRows<BFloat16> bf16;
  NormRows<Float16> f16;
};
}  // namespace lorry::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {

/// total: of the row; not read unless there is a mean.
template <class S, class C>
void norm_row(S* out, const C* x, double total, const C* weight, const C* bias, int64_t n, double eps, C* mean,
              C* rstd) {
  const double exact = mean ? total / static_cast<double>(n) : 0;
  const C m = static_cast<C>(exact);
  const double squares = sum_map<false>(static_cast<C*>(nullptr), x, x, n, m, [&](auto d, auto v, auto) HWY_ATTR {
    const auto difference = hn::Sub(v, hn::Set(d, m));
    return hn::Mul(difference, difference);
  });
  // Squares and rows are taken around the rounded mean m; this adds (exact - m)^2 and (exact - m) per element.
  const double variance = std::max(0.0, squares / static_cast<double>(n) - (exact - m) * (exact - m));
  const C r = static_cast<C>(1 / std::sqrt((std::isnan(squares) ? squares : variance) + eps));
  const C rest = static_cast<C>(-(exact - m)) * r;
  for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto normal = hn::MulAdd(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, m)), hn::Set(d, r), hn::Set(d, rest));
    store_as(d, hn::MulAdd(normal, hn::LoadU(d, weight + i), hn::LoadU(d, bias + i)), out + i);
  });
  if (mean) *mean = m;
  *rstd = r;
}

HWY_INLINE hn::Vec<hn::ScalableTag<double>> exact_lanes(hn::Vec<hn::ScalableTag<double>> v) { return v; }
HWY_INLINE hn::Vec<hn::ScalableTag<double>> exact_lanes(hn::Vec<hn::Rebind<float, hn::ScalableTag<double>>> v) {
  return hn::PromoteTo(hn::ScalableTag<double>(), v);
}

/// norm_row for rows of n <= kShortRow elements, one in each lane. Returns how many rows it has written: whole vectors
/// of them.
template <class C>
int64_t norm_short(C* out, const C* x, const C* weight, const C* bias, int64_t rows, int64_t n, double eps, C* mean,
                   C* rstd) {
  const hn::ScalableTag<double> exact;
  const hn::Rebind<C, decltype(exact)> d;
  constexpr int64_t kN = hn::MaxLanes(exact);
  const auto rounded = [&](auto v) HWY_ATTR {
    if constexpr (std::is_same_v<C, double>)
      return v;
    else
      return hn::DemoteTo(d, v);
  };
  const auto at = row_starts(d, n);
  const auto count = hn::Set(exact, static_cast<double>(n)), one = hn::Set(exact, 1.0), zero = hn::Zero(exact);
  int64_t r = 0;
  for (; r + kN <= rows; r += kN, x += kN * n, out += kN * n) {
    hn::Vec<decltype(d)> v[kShortRow], squares[kShortRow];
    auto total = zero;
    for (int64_t i = 0; i < n; ++i) {
      v[i] = hn::GatherIndex(d, x + i, at);
      total = hn::Add(total, exact_lanes(v[i]));
    }
    const auto centre = mean ? hn::Div(total, count) : zero;
    const auto m = rounded(centre);
    for (int64_t i = 0; i < n; ++i) squares[i] = hn::Mul(hn::Sub(v[i], m), hn::Sub(v[i], m));
    const auto sum = exact_lanes(sum_short<kShortRow>(d, squares, n)), off = hn::Sub(centre, exact_lanes(m));
    const auto about = hn::Sub(hn::Div(sum, count), hn::Mul(off, off));
    const auto variance = hn::IfThenElse(hn::Eq(sum, sum), hn::IfThenElseZero(hn::Gt(about, zero), about), sum);
    const auto scale = rounded(hn::Div(one, hn::Sqrt(hn::Add(variance, hn::Set(exact, eps)))));
    const auto rest = hn::Mul(rounded(hn::Neg(off)), scale);
    for (int64_t i = 0; i < n; ++i) {
      const auto normal = hn::MulAdd(hn::Sub(v[i], m), scale, rest);
      hn::ScatterIndex(hn::MulAdd(normal, hn::Set(d, weight[i]), hn::Set(d, bias[i])), d, out + i, at);
    }
    if (mean) hn::StoreU(m, d, mean + r);
    hn::StoreU(scale, d, rstd + r);
  }
  return r;
}

template <class S, class C>
void norm_rows(S* out, C* space, const S* from, const C* weight, const C* bias, int64_t rows, int64_t n, double eps,
               C* mean, C* rstd) {
  // Not with a single lane: there is nothing to gain, and Highway's conversion to f32 then makes an infinity finite.
  const bool is_short = hn::MaxLanes(hn::ScalableTag<double>()) > 1 && n <= kShortRow;
  constexpr bool kConverts = kNarrowType<S> && kWidens;
  const bool converts = kConverts && n > kShortRow;  // as it sums
  const C* x;
  if constexpr (kNarrowType<S>) {
    if (!converts) std::transform(from, from + rows * n, space, [](S v) { return static_cast<C>(v); });
    x = space;
  } else {
    x = from;
  }
  const int64_t done = is_short ? norm_short(space, x, weight, bias, rows, n, eps, mean, rstd) : 0;
  if constexpr (kNarrowType<S>) store_row(out, space, done * n);
  for (int64_t r = done; r < rows; ++r) {
    double total = 0;
    if constexpr (kConverts)  // in the order of the other loop
      if (converts)
        total = sum_map<true>(space + r * n, from + r * n, from + r * n, n, C(0),
                              [](auto, auto v, auto) HWY_ATTR { return v; });
    if (mean && !converts) total = fold_loops<C>(Fold::sum).row(x + r * n, n);
    norm_row(out + r * n, x + r * n, total, weight, bias, n, eps, mean ? mean + r : nullptr, rstd + r);
  }
}

template <class C>
void norm_backward_row(C* grad_x, C* weight_sum, C* bias_sum, const C* grad, const C* x, const C* weight, int64_t n,
                       C mean, C rstd, bool centred, int64_t ahead) {
  C a = 0, b = 0;  // the gradient's components along the constant and along the normalised row
  if (grad_x) {
    // grad_x first contains the gradient of the normalised row, then the result.
    const double direct =
        sum_map<true>(grad_x, grad, weight, n, C(0), [](auto, auto g, auto w) HWY_ATTR { return hn::Mul(g, w); });
    const double along = sum_map<false>(grad_x, grad_x, x, n, C(0), [&](auto d, auto h, auto v) HWY_ATTR {
      return hn::Mul(h, hn::Sub(v, hn::Set(d, mean)));
    });
    if (centred) a = static_cast<C>(direct / static_cast<double>(n));
    b = static_cast<C>(along * rstd / static_cast<double>(n));
  }
  for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    __builtin_prefetch(grad + ahead + i);
    __builtin_prefetch(x + ahead + i);
    const auto r = hn::Set(d, rstd), normal = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), r);
    if (grad_x) {
      const auto centre = hn::Sub(hn::LoadU(d, grad_x + i), hn::Set(d, a));
      hn::StoreU(hn::Mul(r, hn::NegMulAdd(normal, hn::Set(d, b), centre)), d, grad_x + i);
    }
    const auto g = hn::LoadU(d, grad + i);
    if (weight_sum) hn::StoreU(hn::MulAdd(g, normal, hn::LoadU(d, weight_sum + i)), d, weight_sum + i);
    if (bias_sum) hn::StoreU(hn::Add(hn::LoadU(d, bias_sum + i), g), d, bias_sum + i);
  });
}

template <class S>
constexpr NormRows<S> norm_of() {
  return {norm_rows<S, Accumulate<S>>, norm_backward_row<Accumulate<S>>};
}

const NormTable* norm_table() {
  static constexpr NormTable kTable{norm_of<float>(), norm_of<double>(), norm_of<BFloat16>(), norm_of<Float16>()};
  return &kTable;
}

}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

HWY_EXPORT(norm_table);

constexpr int64_t kChunk = 32;
/// Backward prefetches the next row up to this length, of which the first-level cache holds both rows. It reads a row
/// in three passes, and only the first ones wait for memory: 4096 x 1024 take 2.3 ms on a Xeon, without this 2.7.
constexpr int64_t kPrefetchedRow = 2048;

template <class S>
const NormRows<S>& norm_loops() {
  static const NormTable* const kTable = HWY_DYNAMIC_DISPATCH(norm_table)();
  if constexpr (std::is_same_v<S, float>) return kTable->f32;
  if constexpr (std::is_same_v<S, double>) return kTable->f64;
  if constexpr (std::is_same_v<S, BFloat16>) return kTable->bf16;
  if constexpr (std::is_same_v<S, Float16>) return kTable->f16;
}

template <class S>
void layer_norm_as(const NormArgs& args) {
  using C = Accumulate<S>;
  const int64_t rows = args.x.size(0), n = args.x.size(1);
  const ConvertedRow<C> weight(args.weight, n, 1), bias(args.bias, n, 0);
  C* const mean = args.mean.as<C>();
  lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
    const int64_t most = rows_at_once(n);
    RowWriter<C> space(args.out, n, n, most);
    for (int64_t r = begin; r < end; r += most) {
      const int64_t count = std::min(most, end - r);
      norm_loops<S>().forward(args.out.as<S>() + r * n, space(r), args.x.as<const S>() + r * n, weight.data(),
                              bias.data(), count, n, args.eps, mean ? mean + r : nullptr, args.rstd.as<C>() + r);
    }
  });
}

template <class C>
void layer_norm_backward_as(const NormBackwardArgs& args) {
  const int64_t rows = args.x.size(0), n = args.x.size(1), chunks = (rows + kChunk - 1) / kChunk;
  const ConvertedRow<C> weight(args.weight, n, 1);
  const bool centred = args.mean.data != nullptr;
  const bool in_place = args.x.dtype == dtype_of<C> && args.grad.dtype == dtype_of<C>;
  const int64_t ahead = in_place && n <= kPrefetchedRow ? n : 0;
  std::vector<C> weight_sums(args.grad_weight.data ? chunks * n : 0), bias_sums(args.grad_bias.data ? chunks * n : 0);
  lorry::cpu::parallel_for(chunks, std::max<int64_t>(1, row_grain(n) / kChunk), [&](int64_t begin, int64_t end) {
    RowReader<C> g(args.grad, n), x(args.x, n);
    RowReader<C> rounded(args.grad_x, n);
    std::vector<C> addend(args.addend.data ? n : 0);  // a copy, because grad_x may be the addend
    RowWriter<C> grad_x(args.grad_x, args.grad_x.data ? n : 0);
    for (int64_t c = begin; c < end; ++c) {
      C* weight_sum = weight_sums.empty() ? nullptr : weight_sums.data() + c * n;
      C* bias_sum = bias_sums.empty() ? nullptr : bias_sums.data() + c * n;
      for (int64_t r = c * kChunk; r < std::min(rows, (c + 1) * kChunk); ++r) {
        C* to = args.grad_x.data ? grad_x(r) : nullptr;
        if (!addend.empty())
          load(addend.data(), args.addend.as<const char>() + r * n * size_of(args.addend.dtype), args.addend.dtype, 1,
               n);
        norm_loops<C>().backward(to, weight_sum, bias_sum, g(r), x(r), weight.data(), n,
                                 centred ? args.mean.as<C>()[r] : C(0), args.rstd.as<C>()[r], centred, ahead);
        if (!to) continue;
        grad_x.done(r);
        if (addend.empty()) continue;
        const C* y = rounded(r);
        for (int64_t i = 0; i < n; ++i) to[i] = y[i] + addend[i];
        grad_x.done(r);
      }
    }
  });
  const auto add_up = [&](const std::vector<C>& sums, const Array& out) {
    if (!out.data) return;
    lorry::cpu::parallel_for(n, std::max<int64_t>(64, 16384 / (chunks + 1)), [&](int64_t begin, int64_t end) {
      std::vector<double> totals(end - begin);
      for (int64_t c = 0; c < chunks; ++c)
        for (int64_t i = begin; i < end; ++i) totals[i - begin] += sums[c * n + i];
      store(out.as<char>() + begin * size_of(out.dtype), out.dtype, 1, totals.data(), end - begin);
    });
  };
  add_up(weight_sums, args.grad_weight);
  add_up(bias_sums, args.grad_bias);
}

void layer_norm(const NormArgs& args, const Stream&) {
  visit_floating(args.x.dtype, [&]<class S>(Type<S>) { layer_norm_as<S>(args); });
}

void layer_norm_backward(const NormBackwardArgs& args, const Stream&) {
  args.x.dtype == kF64 ? layer_norm_backward_as<double>(args) : layer_norm_backward_as<float>(args);
}

}  // namespace

const NormKernels& norm_kernels() {
  static constexpr NormKernels kKernels{layer_norm, layer_norm_backward, true};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
#endif
