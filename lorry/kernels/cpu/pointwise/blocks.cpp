// Compiled once for each instruction set and share of the rows: LORRY_SIMD and LORRY_SHARE.

#include "lorry/kernels/cpu/pointwise/blocks.h"

#include <bit>
#include <concepts>
#include <iterator>
#include <utility>

#include "lorry/formula/traits.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/common/vec_formulas.h"
#include "lorry/layout/half.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

/// The number of elements of a type of computation that are computed together: a register of floats, or enough integers
/// for the compiler to vectorise.
template <class C>
inline constexpr int64_t kTogether = Vec<C>::kLanes;
template <std::integral C>
inline constexpr int64_t kTogether<C> = kSplatBytes / sizeof(C);

/// Whether loops prefetch: without AVX-512, those over f32 only. With two threads of an EPYC and 4 M elements: for 16
/// bits the processor is the limit, and each instruction counts (neg of bf16 takes 157 us, with prefetching 240). For
/// i64 and f64 memory is the limit, and the processor's own prefetching suffices (eq of i64 takes 2.3 ms, with
/// prefetching 2.6; abs of f64 1.6 and 1.7).
template <class T>
inline constexpr bool kPrefetches = HWY_TARGET == HWY_AVX3 || std::same_as<T, float>;

/// kTogether elements of the type of computation.
template <class C>
struct Several {
  Vec<C> value;
  static LORRY_INLINE Several load(const C* from) { return {Vec<C>::load(from)}; }
  LORRY_INLINE void store(C* to) const { value.store(to); }

  static LORRY_INLINE Several load(const Float16* from) {
    const hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> narrow;
    return {Vec<float>(
        hn::PromoteTo(hn::ScalableTag<float>(), hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from))))};
  }
  LORRY_INLINE void store(Float16* to) const {
    const hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> narrow;
    hn::StoreU(hn::DemoteTo(narrow, value.raw), narrow, reinterpret_cast<hwy::float16_t*>(to));
  }
};
template <std::integral C>
struct Several<C> {
  static constexpr int64_t kCount = kTogether<C>;
  C value[kCount];
  template <class T>
  static LORRY_INLINE Several load(const T* from) {
    Several x;
    for (int64_t i = 0; i < kCount; ++i) x.value[i] = from[i];
    return x;
  }
  template <class T>
  LORRY_INLINE void store(T* to) const {
    for (int64_t i = 0; i < kCount; ++i) to[i] = static_cast<T>(value[i]);
  }
};

/// Formulas whose result is one of the operands, so that it needs no rounding if numbers are rounded before.
template <class F>
inline constexpr bool kChooses =
    std::same_as<F, formula::Maximum> || std::same_as<F, formula::Minimum> || std::same_as<F, formula::Clamp>;
/// Formulas that change nothing but signs.
template <class F>
inline constexpr bool kOfSigns = std::same_as<F, formula::Abs> || std::same_as<F, formula::Neg>;

/// Elements of type T that are computed together, in registers of the type of computation. Number: the type in memory
/// of one repeated value. Two registers of f16 share the instructions that count: many formulas take little longer.
template <class C, class T>
struct Group {
  using Number = std::conditional_t<std::integral<C>, T, C>;
  static constexpr int64_t kParts = std::same_as<T, Float16> ? 2 : 1, kCount = kParts * kTogether<C>;
  Several<C> part[kParts];
  static LORRY_INLINE Group load(const T* from) {
    Group x;
    for (int64_t p = 0; p < kParts; ++p) x.part[p] = Several<C>::load(from + p * kTogether<C>);
    return x;
  }
  static LORRY_INLINE Group splat(const C* from) {
    Group x;
    for (Several<C>& part : x.part) part = Several<C>::load(from);
    return x;
  }
  template <bool kExact>
  LORRY_INLINE void store(T* to) const {
    for (int64_t p = 0; p < kParts; ++p) part[p].store(to + p * kTogether<C>);
  }
};
/// The even elements and the odd ones, which are the low and the high halves of 32 bits: so none changes its lane.
template <>
struct Group<float, BFloat16> {
  using Number = float;
  static constexpr int64_t kCount = 2 * kTogether<float>;
  using Bits = hn::ScalableTag<uint32_t>;
  Several<float> part[2];

  static LORRY_INLINE Group load(const BFloat16* from) {
    const auto both = hn::LoadU(Bits(), reinterpret_cast<const uint32_t*>(from));
    return {{of(hn::ShiftLeft<16>(both)), of(hn::And(both, high_half()))}};
  }
  static LORRY_INLINE Group splat(const float* from) {
    const Several<float> value = Several<float>::load(from);
    return {{value, value}};
  }
  template <bool kExact>
  LORRY_INLINE void store(BFloat16* to) const {
    const auto even = rounded<kExact>(part[0]), odd = rounded<kExact>(part[1]);
    hn::StoreU(hn::Or(hn::ShiftRight<16>(even), hn::And(odd, high_half())), Bits(), reinterpret_cast<uint32_t*>(to));
  }

 private:
  static LORRY_INLINE hn::Vec<Bits> high_half() { return hn::Set(Bits(), 0xffff0000); }
  static LORRY_INLINE Several<float> of(hn::Vec<Bits> bits) {
    return {Vec<float>(hn::BitCast(hn::ScalableTag<float>(), bits))};
  }
  /// The high half is the nearest BFloat16, ties to even, as BFloat16(float). kExact: x is one already.
  template <bool kExact>
  static LORRY_INLINE hn::Vec<Bits> rounded(const Several<float>& x) {
    const auto bits = hn::BitCast(Bits(), x.value.raw);
    const auto is_nan = hn::RebindMask(Bits(), (x.value != x.value).raw);
    const auto quiet = hn::Or(bits, hn::Set(Bits(), 0x400000));
    if constexpr (kExact) return hn::IfThenElse(is_nan, quiet, bits);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(Bits(), 1));
    return hn::IfThenElse(is_nan, quiet, hn::Add(bits, hn::Add(hn::Set(Bits(), 0x7fff), odd)));
  }
};

/// A register of 16-bit floats as the value of formulas of signs.
struct HalfBits {
  using Tag = hn::ScalableTag<int16_t>;
  hn::Vec<Tag> raw;

  static LORRY_INLINE hn::Vec<Tag> sign() { return hn::Set(Tag(), INT16_MIN); }
  friend LORRY_INLINE HalfBits abs(HalfBits x) { return {hn::AndNot(sign(), x.raw)}; }
  friend LORRY_INLINE HalfBits operator-(HalfBits x) { return {hn::Xor(sign(), x.raw)}; }
};
template <>
struct Several<HalfBits> {
  HalfBits value;
};
template <class T>
struct Group<HalfBits, T> {
  using Number = float;
  using Tag = HalfBits::Tag;
  static constexpr int64_t kLanes = hn::MaxLanes(Tag()), kCount = 2 * kLanes;
  Several<HalfBits> part[2];

  static LORRY_INLINE Group load(const T* from) { return {{several(from), several(from + kLanes)}}; }
  static LORRY_INLINE Group splat(const float* from) {
    const Several<HalfBits> value = {{hn::Set(Tag(), bits(*from))}};
    return {{value, value}};
  }
  /// A NaN becomes a quiet one, as conversions make it.
  template <bool kExact>
  LORRY_INLINE void store(T* to) const {
    const int16_t infinity = bits(INFINITY), quiet = static_cast<int16_t>(infinity >> 1 & ~infinity);
    for (int64_t p = 0; p < 2; ++p) {
      const HalfBits x = part[p].value;
      const auto is_nan = hn::Gt(abs(x).raw, hn::Set(Tag(), infinity));
      const auto raw = hn::IfThenElse(is_nan, hn::Or(x.raw, hn::Set(Tag(), quiet)), x.raw);
      hn::StoreU(raw, Tag(), reinterpret_cast<int16_t*>(to + p * kLanes));
    }
  }

 private:
  static LORRY_INLINE Several<HalfBits> several(const T* from) {
    return {{hn::LoadU(Tag(), reinterpret_cast<const int16_t*>(from))}};
  }
  static int16_t bits(float x) { return std::bit_cast<int16_t>(T(x)); }
};

/// Quotients and rests of whole numbers in f64. Up to 2^53 the nearest double to x / y is a whole number only if x / y
/// is one.
template <class V>
LORRY_INLINE V divide(formula::FloorDivide, V x, V y) {
  return floor(x / y);
}
template <class V>
LORRY_INLINE V divide(formula::TruncDivide, V x, V y) {
  return trunc(x / y);
}
template <class V>
LORRY_INLINE V divide(formula::Remainder, V x, V y) {
  return x - floor(x / y) * y;
}
template <class V>
LORRY_INLINE V divide(formula::Fmod, V x, V y) {
  return x - trunc(x / y) * y;
}

/// Divides in f64, for which processors have vector instructions. Returns whether it has: if all numbers are of at most
/// 51 bits, which are the last ones of the double kShift + x, and no divisor is 0.
template <class Formula>
LORRY_INLINE bool divide_in_f64(const Several<int64_t>& x, const Several<int64_t>& y, Several<int64_t>& result) {
  using V = Vec<double>;
  using Bits = Vec<int64_t>;
  constexpr int64_t kCount = Several<int64_t>::kCount, kHalf = int64_t{1} << 51;
  constexpr double kShift = 0x1.8p52;
  uint64_t outside = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const auto beyond = [](int64_t v) { return (static_cast<uint64_t>(v) + kHalf) >> 52; };
    outside |= beyond(x.value[i]) | beyond(y.value[i]) | static_cast<uint64_t>(y.value[i] == 0);
  }
  if (outside != 0) [[unlikely]]
    return false;
  const V shift(kShift);
  const Bits::Raw bits = hn::BitCast(Bits::Tag(), shift.raw);
  const auto real = [&](const int64_t* from) {
    return V(hn::BitCast(V::Tag(), hn::Add(Bits::load(from).raw, bits))) - shift;
  };
  for (int64_t i = 0; i < kCount; i += V::kLanes) {
    const V quotient = divide(Formula(), real(x.value + i), real(y.value + i)) + shift;
    Bits(hn::Sub(hn::BitCast(Bits::Tag(), quotient.raw), bits)).store(result.value + i);
  }
  return true;
}

template <class Formula, class C, class... Xs>
LORRY_INLINE Several<C> compute(const Xs&... x) {
  if constexpr (std::integral<C>) {
    Several<C> result;
    if constexpr (formula::kDividesWhole<Formula>)
      if (divide_in_f64<Formula>(x..., result)) return result;
    for (int64_t i = 0; i < kTogether<C>; ++i) result.value[i] = Formula()(formula::WholeOf<C>(x.value[i])...).value;
    return result;
  } else {
    return {Formula()(x.value...)};
  }
}

/// pow(x, 3), with the same bits. pow tests its exponents in every register; here they are tested once a block.
struct Cube {
  LORRY_INLINE Vec<float> operator()(Vec<float> x) const { return detail::cube(x); }
};

/// Evaluates a formula over elements of type T in the type of computation C, register by register. The last, partial
/// register goes through spare memory, so that nothing beyond n is accessed and the formula is compiled once. kRounds:
/// numbers are rounded to T and loaded as elements are.
template <class Formula, int kArity, class C, class T, bool kRounds = kChooses<Formula>&& std::same_as<T, BFloat16>>
void block(const void* const* in, const int64_t* step, void* out, int64_t n) {
  using Elements = Group<C, T>;
  using Number = typename Elements::Number;
  static_assert(sizeof(Several<C>) <= kSplatBytes);
  constexpr int64_t kLanes = Elements::kCount;
  constexpr bool kExact = formula::kExact<Formula> || kRounds;
  if constexpr (std::same_as<Formula, formula::Pow> && std::same_as<C, float>)
    if (step[1] == 0 && *static_cast<const float*>(in[1]) == 3) return block<Cube, 1, float, T>(in, step, out, n);
  const char* from[kArity];
  int64_t moves[kArity], ahead[kArity];  // no bits for one repeated value, else all; where to prefetch
  T rounded[kArity][kLanes];
  for (int k = 0; k < kArity; ++k) {
    from[k] = static_cast<const char*>(in[k]), moves[k] = -step[k], ahead[k] = step[k] * kAheadBytes;
    if constexpr (kRounds) {
      if (step[k] != 0) continue;
      const Number number = *static_cast<const Number*>(in[k]);
      // Beside a zero, one that is rounded to zero still decides which sign the result has.
      if (T(number) == 0 && number != 0) return block<Formula, kArity, C, T, false>(in, step, out, n);
      for (T& element : rounded[k]) element = T(number);
      from[k] = reinterpret_cast<const char*>(rounded[k]);
    }
  }
  T* to = static_cast<T*>(out);
  alignas(kSplatBytes) T spare[kArity + 1][kLanes];
  int64_t whole = n / kLanes * kLanes;
  const int64_t rest = n - whole;
  for (bool is_rest = false;; is_rest = true) {
    for (int64_t i = 0; i < whole; i += kLanes) {
      const auto operand = [&](size_t k) {
        const char* const at = from[k] + (i * static_cast<int64_t>(sizeof(T)) & moves[k]);
        if constexpr (kPrefetches<T>) __builtin_prefetch(at + ahead[k]);
        if constexpr (!std::same_as<Number, T> && !kRounds)
          if (step[k] == 0) return Elements::splat(reinterpret_cast<const Number*>(at));
        return Elements::load(reinterpret_cast<const T*>(at));
      };
      if constexpr (kPrefetches<T>) __builtin_prefetch(reinterpret_cast<const char*>(to + i) + kAheadBytes, 1);
      [&]<size_t... K>(std::index_sequence<K...>) {
        const Elements x[] = {operand(K)...};
        Elements y;
        for (size_t part = 0; part < std::size(y.part); ++part) y.part[part] = compute<Formula, C>(x[K].part[part]...);
        y.template store<kExact>(to + i);
      }
      (std::make_index_sequence<kArity>());
    }
    if (is_rest || rest == 0) break;
    for (int k = 0; k < kArity; ++k) {
      if (step[k] == 0) continue;
      const T* const last = reinterpret_cast<const T*>(from[k]) + whole;
      for (int64_t i = 0; i < kLanes; ++i) spare[k][i] = last[i < rest ? i : 0];
      from[k] = reinterpret_cast<const char*>(spare[k]);
    }
    to = spare[kArity];
    whole = kLanes;
  }
  for (int64_t i = 0; i < rest; ++i) static_cast<T*>(out)[n - rest + i] = to[i];
}

/// Narrower types have functions where up to three operands give a result of their type.
template <Result kResult, int kArity>
inline constexpr bool kHasNarrow = kResult != Result::truth&& kArity <= 3;

/// Formulas of reals are computed in floating types only, formulas of bits in integers only.
template <bool kMine, class Formula, int kArity, Result kResult, Domain kDomain>
void put(BlockFunctions& row) {
  if constexpr (kMine) {
    if constexpr (kDomain != Domain::whole && kDomain != Domain::integer) {
      row.f32 = &block<Formula, kArity, float, float>;
      row.f64 = &block<Formula, kArity, double, double>;
      if constexpr (kHasNarrow<kResult, kArity>) {
        using Compute = std::conditional_t<kOfSigns<Formula>, HalfBits, float>;
        row.bf16 = &block<Formula, kArity, Compute, BFloat16>;
#if HWY_TARGET <= HWY_AVX2  // which has instructions for them
        row.f16 = &block<Formula, kArity, Compute, Float16>;
#endif
      }
    }
    if constexpr (kResult != Result::real && kDomain != Domain::floating) {
      row.i64 = &block<Formula, kArity, int64_t, int64_t>;
      if constexpr (kHasNarrow<kResult, kArity>)
        row.i32 =
            &block<Formula, kArity, std::conditional_t<formula::kDividesWhole<Formula>, int64_t, int32_t>, int32_t>;
    }
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
