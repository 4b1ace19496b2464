#include "lorry/kernels/cpu/reduce/scan_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/reduce/scan_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef LORRY_SCAN_TABLE
#define LORRY_SCAN_TABLE
namespace lorry::kernels::cpu {
struct ScanTable {
  ScanLoops<float> f32;
  ScanLoops<double> f64;
};
}  // namespace lorry::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<double>;
using Narrow = hn::Rebind<float, Tag>;
constexpr int64_t kLanes = hn::MaxLanes(Tag());

HWY_INLINE hn::Vec<Tag> widened(hn::Vec<Narrow> v) { return hn::PromoteTo(Tag(), v); }
HWY_INLINE hn::Vec<Tag> widened(hn::Vec<Tag> v) { return v; }
HWY_INLINE hn::Vec<Narrow> as_element(Narrow d, hn::Vec<Tag> v) { return hn::DemoteTo(d, v); }
HWY_INLINE hn::Vec<Tag> as_element(Tag, hn::Vec<Tag> v) { return v; }

#if HWY_TARGET != HWY_SCALAR  // whose conversion to f32 makes an infinity finite

/// Lanes are lines. A product that becomes subnormal costs a processor a hundred cycles, for all lanes at once.
template <class C>
void products(C* x, int64_t n, double* totals) {
  const hn::Rebind<C, Tag> d;
  constexpr int64_t kVectors = kScanLines / kLanes;
  hn::Vec<Tag> total[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) total[v] = hn::LoadU(Tag(), totals + v * kLanes);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v, x += kLanes) {
      total[v] = hn::Mul(total[v], widened(hn::LoadU(d, x)));
      hn::StoreU(as_element(d, total[v]), d, x);
    }
  }
  for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(total[v], Tag(), totals + v * kLanes);
}

/// v with its lanes moved up by `step`, and `low` in the lanes below.
HWY_INLINE hn::Vec<Tag> moved_up(hn::Vec<Tag> v, int64_t step, hn::Vec<Tag> low) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const auto from = hn::Sub(hn::Iota(di, 0), hn::Set(di, step));
  const auto moves = hn::RebindMask(d, hn::Gt(from, hn::Set(di, -1)));
  return hn::IfThenElse(moves, hn::TableLookupLanes(v, hn::IndicesFromVec(d, hn::Max(from, hn::Zero(di)))), low);
}
/// moved_up(v, 1, low), where all lanes of `low` are equal.
HWY_INLINE hn::Vec<Tag> moved_up_once(hn::Vec<Tag> v, hn::Vec<Tag> low) {
#if HWY_TARGET == HWY_AVX2  // a lookup would take twice as many instructions
  return hn::CombineShiftRightBytes<8>(Tag(), v, hn::ConcatLowerUpper(Tag(), v, low));
#else
  return moved_up(v, 1, low);
#endif
}
/// The inclusive prefix sums of v's lanes.
HWY_INLINE hn::Vec<Tag> running_sums(hn::Vec<Tag> v) {
  const Tag d;
#if HWY_TARGET == HWY_AVX2
  const auto pairs = hn::Add(v, hn::ShiftLeftLanes<1>(d, v));  // within halves of a register
  return hn::Add(pairs, hn::ConcatLowerLower(d, hn::DupOdd(pairs), hn::Zero(d)));
#else
#pragma GCC unroll 3
  for (int64_t step = 1; step < kLanes; step *= 2) v = hn::Add(v, moved_up(v, step, hn::Zero(d)));
  return v;
#endif
}

/// The last lane of v in all lanes.
HWY_INLINE hn::Vec<Tag> last_lane(hn::Vec<Tag> v) {
  const hn::RebindToSigned<Tag> di;
  return hn::TableLookupLanes(v, hn::IndicesFromVec(Tag(), hn::Set(di, kLanes - 1)));
}

/// Sums of f32 are sums of f64, which rarely round: then the lanes of a vector can be summed in any order. Whether all
/// of them are right is seen afterwards: each has to be the one before, plus its element.
bool sums(float* out, const float* x, int64_t n, double& total) {
  const Tag d;
  const Narrow narrow;
  auto before = hn::Set(d, total);  // the sum of all vectors before
  auto right = hn::Eq(before, before);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto v = widened(hn::LoadU(narrow, x + i));
    const auto within = running_sums(v), totals = hn::Add(before, within);
    right = hn::And(right, hn::Eq(totals, hn::Add(moved_up_once(totals, before), v)));
    hn::StoreU(as_element(narrow, totals), narrow, out + i);
    before = hn::Add(before, last_lane(within));
  }
  if (!hn::AllTrue(d, right)) return false;
  total = hn::GetLane(before);
  for (; i < n; ++i) out[i] = static_cast<float>(total += static_cast<double>(x[i]));
  return true;
}

#endif

const ScanTable* scan_table() {
#if HWY_TARGET == HWY_SCALAR
  static constexpr ScanTable kTable{{nullptr, nullptr}, {nullptr, nullptr}};
#else
  static constexpr ScanTable kTable{{products<float>, sums}, {products<double>, nullptr}};
#endif
  return &kTable;
}

}  // namespace
}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lorry::kernels::cpu {

HWY_EXPORT(scan_table);

template <>
const ScanLoops<float>& scan_loops<float>() {
  return HWY_DYNAMIC_DISPATCH(scan_table)()->f32;
}
template <>
const ScanLoops<double>& scan_loops<double>() {
  return HWY_DYNAMIC_DISPATCH(scan_table)()->f64;
}

}  // namespace lorry::kernels::cpu
#endif
