// Compiled once for each instruction set and share of the rows: LORRY_SIMD and LORRY_SHARE.

#include "lorry/kernels/cpu/pointwise/blocks.h"

#include <utility>

#include "lorry/formula/formulas.h"
#include "lorry/kernels/cpu/common/vec_math.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

/// The number of elements computed together: a register of floats, or enough integers for the compiler to vectorise.
template <class T>
inline constexpr int64_t kTogether = Vec<T>::kLanes;
template <>
inline constexpr int64_t kTogether<int64_t> = kSplatBytes / sizeof(int64_t);

template <class Formula, class T, size_t... K>
LORRY_INLINE void compute(std::index_sequence<K...>, const T* const* from, T* to) {
  if constexpr (std::same_as<T, int64_t>) {
    T result[kTogether<T>];
    for (int64_t i = 0; i < kTogether<T>; ++i) result[i] = Formula()(formula::Whole(from[K][i])...).value;
    for (int64_t i = 0; i < kTogether<T>; ++i) to[i] = result[i];
  } else {
    static_assert(sizeof(Vec<T>) <= kSplatBytes);
    Formula()(Vec<T>::load(from[K])...).store(to);
  }
}

/// Evaluates a formula register by register. The last, partial register goes through spare memory, so that nothing
/// beyond n is accessed and the formula is compiled once.
template <class Formula, int kArity, class T>
void block(const void* const* in, const int64_t* step, void* out, int64_t n) {
  constexpr int64_t kLanes = kTogether<T>;
  const T* from[kArity];
  for (int k = 0; k < kArity; ++k) from[k] = static_cast<const T*>(in[k]);
  T* to = static_cast<T*>(out);
  alignas(kSplatBytes) T spare[kArity + 1][kLanes];
  for (; n > 0; n -= kLanes) {
    T* target = to;
    if (n < kLanes) [[unlikely]] {
      for (int k = 0; k < kArity; ++k) {
        if (step[k] == 0) continue;
        for (int64_t i = 0; i < kLanes; ++i) spare[k][i] = from[k][i < n ? i : 0];
        from[k] = spare[k];
      }
      target = spare[kArity];
    }
    compute<Formula, T>(std::make_index_sequence<kArity>(), from, target);
    if (n < kLanes) [[unlikely]]
      for (int64_t i = 0; i < n; ++i) to[i] = target[i];
    to += kLanes;
    for (int k = 0; k < kArity; ++k) from[k] += step[k] * kLanes;
  }
}

/// Formulas of reals are computed in floating types only, formulas of bits in integers only.
template <bool kMine, class Formula, int kArity, Result kResult, Domain kDomain>
void put(BlockFunctions& row) {
  if constexpr (kMine) {
    if constexpr (kDomain != Domain::whole && kDomain != Domain::integer) {
      row.f32 = &block<Formula, kArity, float>;
      row.f64 = &block<Formula, kArity, double>;
    }
    if constexpr (kResult != Result::real && kDomain != Domain::floating) row.i64 = &block<Formula, kArity, int64_t>;
  }
}

}  // namespace

template <int kShare>
void fill_blocks(BlockFunctions* table);

template <>
void fill_blocks<LORRY_SHARE>(BlockFunctions* table) {
  static_assert(LORRY_SHARE < kBlockShares);
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain)                                         \
  put<static_cast<int>(Pointwise::name) % kBlockShares == LORRY_SHARE, formula::Formula, arity, Result::result, \
      Domain::domain>(table[static_cast<int>(Pointwise::name)]);
#include "lorry/formula/pointwise.def"
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
