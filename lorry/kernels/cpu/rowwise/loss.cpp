// Cross entropy as one operator. Forward reads each row of logits once and keeps only its logsumexp; backward reads the
// row again and writes its gradient. So no tensor of probabilities is stored.

#include "lorry/kernels/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/rowwise/loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "lorry/kernels/cpu/common/vector_rows-inl.h"
#include "lorry/kernels/cpu/rowwise/exp-inl.h"
#include "lorry/kernels/cpu/rowwise/rows.h"

#ifndef LORRY_LOSS_TABLE
#define LORRY_LOSS_TABLE
namespace lorry::kernels::cpu {
template <class C>
struct LossRows {
  double (*logsumexp)(const C* x, int64_t n);
  /// The sum of a[i] * b[i].
  double (*dot)(const C* a, const C* b, int64_t n);
  /// out = a * exp(x - logsumexp) - b * weight
  void (*gradient)(C* out, const C* x, const C* weight, int64_t n, C logsumexp, C a, C b);
};
struct LossTable {
  LossRows<float> f32;
  LossRows<double> f64;
};
}  // namespace lorry::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {

template <class C>
double logsumexp_row(const C* x, int64_t n) {
  const C max = static_cast<C>(fold_loops<C>(Fold::max).row(x, n));
  if (!std::isfinite(max)) return std::numeric_limits<double>::quiet_NaN();
  const C pad = -std::numeric_limits<C>::infinity();
  const double sum = sum_map<false>(static_cast<C*>(nullptr), x, x, n, pad, [&](auto d, auto v, auto) HWY_ATTR {
    return exp_of_not_positive(d, hn::Sub(v, hn::Set(d, max)));
  });
  return static_cast<double>(max) + std::log(sum);
}

template <class C>
double dot_row(const C* a, const C* b, int64_t n) {
  return sum_map<false>(static_cast<C*>(nullptr), a, b, n, C(0),
                        [](auto, auto u, auto v) HWY_ATTR { return hn::Mul(u, v); });
}

template <class C>
void gradient_row(C* out, const C* x, const C* weight, int64_t n, C logsumexp, C a, C b) {
  if (std::isnan(logsumexp)) {  // Highway's Exp gives 0 for a NaN
    std::fill(out, out + n, logsumexp);
    return;
  }
  for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto p = hn::Exp(d, hn::Sub(hn::LoadU(d, x + i), hn::Set(d, logsumexp)));
    hn::StoreU(hn::NegMulAdd(hn::Set(d, b), hn::LoadU(d, weight + i), hn::Mul(hn::Set(d, a), p)), d, out + i);
  });
}

const LossTable* loss_table() {
  static constexpr LossTable kTable{{logsumexp_row<float>, dot_row<float>, gradient_row<float>},
                                    {logsumexp_row<double>, dot_row<double>, gradient_row<double>}};
  return &kTable;
}

}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

HWY_EXPORT(loss_table);

template <class C>
const LossRows<C>& loss_rows() {
  static const LossTable* const kTable = HWY_DYNAMIC_DISPATCH(loss_table)();
  if constexpr (std::is_same_v<C, float>) return kTable->f32;
  if constexpr (std::is_same_v<C, double>) return kTable->f64;
}

template <class F>
void visit_class(const Array& x, F&& f) {
  if (x.dtype == kF64)
    f(Type<double>{});
  else
    f(Type<float>{});
}

int64_t check_targets(const Array& target, int64_t classes, int64_t ignore_index, const Stream&) {
  const int64_t* t = target.as<const int64_t>();
  for (int64_t r = 0; r < target.numel(); ++r)
    if ((t[r] < 0 || t[r] >= classes) && t[r] != ignore_index) return r;
  return -1;
}

void cross_entropy(const ClassArgs& args, const Array& losses, const Array& row_weights, const Array& logsumexp,
                   const Stream&) {
  visit_class(args.x, [&]<class C>(Type<C>) {
    const int64_t rows = args.x.size(0), n = args.x.size(1);
    const ConvertedRow<C> weight(args.weight, n, 1);
    const double smooth = args.label_smoothing / static_cast<double>(n),
                 total_weight = fold_loops<C>(Fold::sum).row(weight.data(), n);
    lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(args.x, n, args.x.stride(0));
      for (int64_t r = begin; r < end; ++r) {
        const int64_t t = args.target.as<int64_t>()[r];
        C &loss = losses.as<C>()[r], &row_weight = row_weights.as<C>()[r], &lse = logsumexp.as<C>()[r];
        loss = row_weight = lse = 0;
        if (t == args.ignore_index) continue;
        const C* x = read(r);
        const double exact = loss_rows<C>().logsumexp(x, n);
        double value = (1 - args.label_smoothing) * weight[t] * (exact - x[t]);
        if (smooth != 0) value += smooth * (total_weight * exact - loss_rows<C>().dot(weight.data(), x, n));
        loss = static_cast<C>(value);
        row_weight = weight[t];
        lse = static_cast<C>(exact);
      }
    });
  });
}

void cross_entropy_backward(const ClassArgs& args, const Array& grad_x, const Array& scale, const Array& logsumexp,
                            const Stream&) {
  visit_class(args.x, [&]<class C>(Type<C>) {
    const int64_t rows = args.x.size(0), n = args.x.size(1);
    const ConvertedRow<C> weight(args.weight, n, 1);
    const double smooth = args.label_smoothing / static_cast<double>(n),
                 total_weight = fold_loops<C>(Fold::sum).row(weight.data(), n);
    lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(args.x, n, args.x.stride(0));
      RowWriter<C> write(grad_x, n, grad_x.stride(0));
      for (int64_t r = begin; r < end; ++r) {
        const int64_t t = args.target.as<int64_t>()[r];
        C* to = write(r);
        if (t == args.ignore_index) {
          std::fill(to, to + n, C(0));
        } else {
          const double s = scale.as<C>()[r * scale.stride(0)], own = s * (1 - args.label_smoothing) * weight[t];
          loss_rows<C>().gradient(to, read(r), weight.data(), n, logsumexp.as<C>()[r],
                                  static_cast<C>(own + s * smooth * total_weight), static_cast<C>(s * smooth));
          to[t] -= static_cast<C>(own);
        }
        write.done(r);
      }
    });
  });
}

void nll(const ClassArgs& args, const Array& losses, const Array& row_weights, const Stream&) {
  visit_class(args.x, [&]<class C>(Type<C>) {
    const int64_t rows = args.x.size(0), n = args.x.size(1), bytes = size_of(args.x.dtype);
    const ConvertedRow<C> weight(args.weight, n, 1);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t t = args.target.as<int64_t>()[r];
      losses.as<C>()[r] = row_weights.as<C>()[r] = 0;
      if (t == args.ignore_index) continue;
      C x;
      load(&x, args.x.as<const char>() + (r * args.x.stride(0) + t) * bytes, args.x.dtype, 1, 1);
      losses.as<C>()[r] = -weight[t] * x;
      row_weights.as<C>()[r] = weight[t];
    }
  });
}

void nll_backward(const ClassArgs& args, const Array& grad_x, const Array& scale, const Stream&) {
  visit_class(grad_x, [&]<class C>(Type<C>) {
    const int64_t rows = grad_x.size(0), n = grad_x.size(1);
    const ConvertedRow<C> weight(args.weight, n, 1);
    lorry::cpu::parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowWriter<C> write(grad_x, n, grad_x.stride(0));
      for (int64_t r = begin; r < end; ++r) {
        const int64_t t = args.target.as<int64_t>()[r];
        C* to = write(r);
        std::fill(to, to + n, C(0));
        if (t != args.ignore_index) to[t] = -weight[t] * scale.as<C>()[r * scale.stride(0)];
        write.done(r);
      }
    });
  });
}

}  // namespace

const LossKernels& loss_kernels() {
  static constexpr LossKernels kKernels{check_targets, cross_entropy, cross_entropy_backward, nll, nll_backward};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
#endif
