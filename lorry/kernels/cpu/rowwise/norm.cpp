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
template <class C>
struct NormRows {
  /// Writes one row; returns its mean (0 unless centred) and the reciprocal of its deviation.
  void (*forward)(C* out, const C* x, const C* weight, const C* bias, int64_t n, double eps, bool centred, C& mean,
                  C& rstd);
  /// Writes one row of grad_x (unless null) and adds to the sums for weight and bias (unless null).
  void (*backward)(C* grad_x, C* weight_sum, C* bias_sum, const C* grad, const C* x, const C* weight, int64_t n, C mean,
                   C rstd, bool centred);
};
struct NormTable {
  NormRows<float> f32;
  NormRows<double> f64;
};
}  // namespace lorry::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {

template <class C>
void norm_row(C* out, const C* x, const C* weight, const C* bias, int64_t n, double eps, bool centred, C& mean,
              C& rstd) {
  const double exact = centred ? fold_loops<C>(Fold::sum).row(x, n) / static_cast<double>(n) : 0;
  const C m = static_cast<C>(exact);
  const double squares = sum_map<false>(out, x, x, n, m, [&](auto d, auto v, auto) HWY_ATTR {
    const auto difference = hn::Sub(v, hn::Set(d, m));
    return hn::Mul(difference, difference);
  });
  // Squares and rows are taken around the rounded mean m; this adds (exact - m)^2 and (exact - m) per element.
  const double variance = std::max(0.0, squares / static_cast<double>(n) - (exact - m) * (exact - m));
  const C r = static_cast<C>(1 / std::sqrt((std::isnan(squares) ? squares : variance) + eps));
  const C rest = static_cast<C>(-(exact - m)) * r;
  for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto normal = hn::MulAdd(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, m)), hn::Set(d, r), hn::Set(d, rest));
    hn::StoreU(hn::MulAdd(normal, hn::LoadU(d, weight + i), hn::LoadU(d, bias + i)), d, out + i);
  });
  mean = m;
  rstd = r;
}

template <class C>
void norm_backward_row(C* grad_x, C* weight_sum, C* bias_sum, const C* grad, const C* x, const C* weight, int64_t n,
                       C mean, C rstd, bool centred) {
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

const NormTable* norm_table() {
  static constexpr NormTable kTable{{norm_row<float>, norm_backward_row<float>},
                                    {norm_row<double>, norm_backward_row<double>}};
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

template <class C>
const NormRows<C>& norm_rows() {
  static const NormTable* const kTable = HWY_DYNAMIC_DISPATCH(norm_table)();
  if constexpr (std::is_same_v<C, float>) return kTable->f32;
  if constexpr (std::is_same_v<C, double>) return kTable->f64;
}

template <class C>
void layer_norm_as(const NormArgs& args) {
  const int64_t rows = args.x.size(0), n = args.x.size(1);
  const ConvertedRow<C> weight(args.weight, n, 1), bias(args.bias, n, 0);
  const bool centred = args.mean.data != nullptr;
  lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
    RowReader<C> x(args.x, n);
    RowWriter<C> out(args.out, n);
    C unused;
    for (int64_t r = begin; r < end; ++r) {
      norm_rows<C>().forward(out(r), x(r), weight.data(), bias.data(), n, args.eps, centred,
                             centred ? args.mean.as<C>()[r] : unused, args.rstd.as<C>()[r]);
      out.done(r);
    }
  });
}

template <class C>
void layer_norm_backward_as(const NormBackwardArgs& args) {
  const int64_t rows = args.x.size(0), n = args.x.size(1), chunks = (rows + kChunk - 1) / kChunk;
  const ConvertedRow<C> weight(args.weight, n, 1);
  const bool centred = args.mean.data != nullptr;
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
        norm_rows<C>().backward(to, weight_sum, bias_sum, g(r), x(r), weight.data(), n,
                                centred ? args.mean.as<C>()[r] : C(0), args.rstd.as<C>()[r], centred);
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
  args.x.dtype == kF64 ? layer_norm_as<double>(args) : layer_norm_as<float>(args);
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
