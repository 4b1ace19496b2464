#include <cmath>
#include <vector>

#include "lorry/formula/clip.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/list/list.h"
#include "lorry/kernels/cpu/list/list_norm_runs.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_list_norm_runs(ListNormRuns& runs))

const ListNormRuns& list_norm_runs() {
  static const ListNormRuns table = [] {
    ListNormRuns runs;
    LORRY_SIMD_CHOOSE(fill_list_norm_runs)(runs);
    return runs;
  }();
  return table;
}

namespace {

void* at(void* data, int64_t element, DType dtype) { return static_cast<char*>(data) + element * size_of(dtype); }

/// The sum of |x|^p, in the order of kernels/list.h.
template <class T>
double sum_power(const void* from, int64_t n, double p) {
  constexpr int64_t kSums = 128;
  const T* x = static_cast<const T*>(from);
  double sums[kSums] = {};
  for (int64_t i = 0; i < n; ++i) sums[i % kSums] += std::pow(std::fabs(static_cast<double>(x[i])), p);
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0];
}

/// The fold of the next level.
NormOrder next(NormOrder order) {
  switch (order) {
#define LORRY_LIST_FOLD(order, Fold) \
  case NormOrder::order:             \
    return formula::kNextOrder<NormOrder::order>;
#include "lorry/formula/list.def"
    case NormOrder::power:
      break;
  }
  return formula::kNextOrder<NormOrder::power>;
}

/// The three levels of a norm: tiles, groups and total.
class Norm {
 public:
  Norm(NormOrder order, double p) : order_(order), p_(p) {
    const ListNormRuns& runs = list_norm_runs();
    if (order != NormOrder::power) tile_ = runs.sum[static_cast<int>(order)];
    again_ = runs.sum[static_cast<int>(next(order))][1];
  }

  double tile(const void* x, DType dtype, int64_t count) const {
    if (is_narrow(dtype)) {
      alignas(64) float block[kNormTile];
      converter(dtype, kF32)(x, 1, block, 1, count);
      return tile(block, kF32, count);
    }
    if (order_ == NormOrder::power)
      return dtype == kF64 ? sum_power<double>(x, count, p_) : sum_power<float>(x, count, p_);
    return tile_[dtype == kF64](x, count);
  }

  /// The sum over the elements whose tiles have these sums.
  double sum(std::span<const double> tiles) const {
    std::vector<double> groups;
    for (size_t i = 0; i < tiles.size(); i += kNormGroup)
      groups.push_back(again_(&tiles[i], static_cast<int64_t>(std::min<size_t>(kNormGroup, tiles.size() - i))));
    return again_(groups.data(), static_cast<int64_t>(groups.size()));
  }

 private:
  NormOrder order_;
  double p_;
  double (*const* tile_)(const void*, int64_t) = nullptr;
  double (*again_)(const void*, int64_t);
};

double root(double sum, NormOrder order, double p) {
  return order == NormOrder::two ? std::sqrt(sum) : order == NormOrder::power ? std::pow(sum, 1 / p) : sum;
}

void finish(const NormFinishCall& call, const Stream&) {
  const auto [total, factor] = formula::clip(root(*call.sum, call.order, call.p), call.end.scale ? *call.end.scale : 1,
                                             call.end.max_norm, call.end.skip_nonfinite);
  if (call.total != nullptr) *call.total = total;
  if (call.end.factor != nullptr) *call.end.factor = factor;
}

void norm(const ListNormCall& call, const Stream& stream) {
  std::vector<size_t> first;  // first tile of every entry
  size_t tiles = 0;
  for (const List* list : call.lists)
    for (const ListEntry& entry : list->entries()) {
      first.push_back(tiles);
      tiles += static_cast<size_t>((entry.count + kNormTile - 1) / kNormTile);
    }
  first.push_back(tiles);
  std::vector<double> sums(tiles);
  const Norm norm(call.order, call.p);
  const size_t* firsts = first.data();
  for (const List* list : call.lists) {
    const DType dtype = list->dtype(0);
    const ListEntry* const entries = list->entries().data();
    for_each_run(
        *list,
        [&](const ListEntry& entry, int64_t begin, int64_t count) {
          double* const own = &sums[firsts[&entry - entries]];
          for (int64_t i = begin; i < begin + count; i += kNormTile)
            own[i / kNormTile] = norm.tile(at(entry.at[0], i, dtype), dtype, std::min(kNormTile, begin + count - i));
        },
        kNormTile);
    firsts += list->entries().size();
  }
  if (call.per_tensor != nullptr)
    for (size_t e = 0; e + 1 < first.size(); ++e)
      call.per_tensor[e] =
          root(norm.sum(std::span(sums).subspan(first[e], first[e + 1] - first[e])), call.order, call.p);
  if (call.sum == nullptr && call.total == nullptr && call.end.factor == nullptr) return;
  const double sum = norm.sum(sums);
  if (call.sum != nullptr) *call.sum = sum;
  finish({.sum = &sum, .order = call.order, .p = call.p, .total = call.total, .end = call.end}, stream);
}

void scale(const List& list, const double* factor, const Stream&) {
  if (*factor == 1) return;
  const DType dtype = list.dtype(0);
  const auto& functions = list_norm_runs().scale;
  for_each_run(list, [&](const ListEntry& entry, int64_t begin, int64_t count) {
    if (!is_narrow(dtype)) return functions[dtype == kF64](at(entry.at[0], begin, dtype), count, *factor);
    constexpr int64_t kBlock = 1'024;  // widened elements; they stay in the first-level cache
    alignas(64) float block[kBlock];
    const Convert widen = converter(dtype, kF32), narrow = converter(kF32, dtype);
    for (int64_t i = begin; i < begin + count; i += kBlock) {
      const int64_t n = std::min(kBlock, begin + count - i);
      void* const elements = at(entry.at[0], i, dtype);
      widen(elements, 1, block, 1, n);
      functions[0](block, n, *factor);
      narrow(block, 1, elements, 1, n);
    }
  });
}

}  // namespace

const ListNormKernels& list_norm_kernels() {
  static constexpr ListNormKernels kKernels{.norm = norm, .finish = finish, .scale = scale};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
