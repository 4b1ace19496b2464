// Compiled once for each instruction set: LORRY_SIMD.

#include "lorry/kernels/common/convert.h"

#include <bit>
#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "lorry/base/macros.h"
#include "lorry/kernels/cpu/common/simd.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

/// The stored type: a bool is a byte, and every byte but 0 is true.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

/// Written so that compilers vectorise it: the conversion itself is always defined.
template <class F>
LORRY_INLINE int64_t whole(F x) {
  const bool inside = x > F(-0x1p63) && x < F(0x1p63);
  const int64_t value = static_cast<int64_t>(inside ? x : F(0));
  return x >= F(0x1p63) ? INT64_MAX : x <= F(-0x1p63) ? INT64_MIN : value;
}

template <class To, class From>
LORRY_INLINE Stored<To> cast(Stored<From> x) {
  if constexpr (std::is_same_v<To, From> && !std::is_same_v<To, bool>)
    return x;
  else if constexpr (kNarrowType<From>)
    return cast<To, float>(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bool>)
    return x != Stored<From>(0);
  else if constexpr (std::is_same_v<From, bool>)
    return cast<To, uint8_t>(x != 0);
  else if constexpr (kNarrowType<To>)
    return To(static_cast<float>(x));
  else if constexpr (kFloatingType<From> && !kFloatingType<To>)
    return static_cast<To>(whole(x));
  else
    return static_cast<To>(x);
}

template <class From, class To>
LORRY_INLINE int64_t convert_registers(const Stored<From>*, Stored<To>*, int64_t) {
  return 0;
}
/// Converts every second element, and returns how many of the n. Here all, between equal types: compilers vectorise a
/// stride that they know. The specialisations read pairs, and leave the last elements to the caller: what would be the
/// other of the pair may lie outside the array.
template <class From, class To>
LORRY_INLINE int64_t convert_every_second(const Stored<From>* from, Stored<To>* to, int64_t n) {
  if constexpr (!std::is_same_v<From, To>) return 0;
  for (int64_t i = 0; i < n; ++i) to[i] = cast<To, From>(from[2 * i]);
  return n;
}
template <>
LORRY_INLINE int64_t convert_every_second<BFloat16, float>(const BFloat16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 1 < n; ++i) {
    uint32_t pair;
    std::memcpy(&pair, from + 2 * i, sizeof(pair));
    to[i] = std::bit_cast<float>(pair << 16);
  }
  return i;
}
#if defined(__F16C__)
template <>
LORRY_INLINE int64_t convert_every_second<Float16, float>(const Float16* from, float* to, int64_t n) {
  const auto four = [](const Float16* pairs) {
    return _mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs)), _mm_set1_epi32(0xffff));
  };
  int64_t i = 0;
  for (; i + 8 < n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_packus_epi32(four(from + 2 * i), four(from + 2 * i + 8))));
  return i;
}
template <>
LORRY_INLINE int64_t convert_registers<Float16, float>(const Float16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  return i;
}
template <>
LORRY_INLINE int64_t convert_registers<float, Float16>(const float* from, Float16* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  return i;
}
#endif
#if defined(__AVX2__) && !defined(__AVX512F__)
/// As BFloat16(float), with fewer instructions than compilers use: one comparison finds a NaN among 16 elements.
template <>
LORRY_INLINE int64_t convert_registers<float, BFloat16>(const float* from, BFloat16* to, int64_t n) {
  const auto rounded = [](__m256 x) {
    const __m256i bits = _mm256_castps_si256(x),
                  odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  };
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(from + i) + kAheadBytes, _MM_HINT_T0);
    const __m256 low = _mm256_loadu_ps(from + i), high = _mm256_loadu_ps(from + i + 8);
    if (_mm256_movemask_ps(_mm256_cmp_ps(low, high, _CMP_UNORD_Q)) != 0) [[unlikely]] {
      for (int64_t k = i; k < i + 16; ++k) to[k] = BFloat16(from[k]);
      continue;
    }
    const __m256i packed = _mm256_packus_epi32(rounded(low), rounded(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  return i;
}
#endif

constexpr int64_t kGroup = 64;  ///< elements that are converted alike

/// Floating numbers as whole ones. Where all of a group lie within i32, there are vector instructions.
template <class From, class To>
LORRY_INLINE void convert_to_whole(const From* from, To* to, int64_t n) {
  using Bits = std::conditional_t<sizeof(From) == 8, uint64_t, uint32_t>;
  constexpr Bits kSign = std::bit_cast<Bits>(From(-0.0)), kLast = std::bit_cast<Bits>(From(0x1p31)) - 1;
  for (; n >= kGroup; n -= kGroup, from += kGroup, to += kGroup) {
    Bits outside = 0;  // the sign of the distance between magnitudes, which are ordered as their bits
    for (int64_t k = 0; k < kGroup; ++k) outside |= kLast - (std::bit_cast<Bits>(from[k]) & ~kSign);
    if ((outside & kSign) == 0)
      for (int64_t k = 0; k < kGroup; ++k) to[k] = static_cast<To>(static_cast<int32_t>(from[k]));
    else
      for (int64_t k = 0; k < kGroup; ++k) to[k] = cast<To, From>(from[k]);
  }
  for (int64_t k = 0; k < n; ++k) to[k] = cast<To, From>(from[k]);
}

/// Contiguous elements.
template <class From, class To>
LORRY_INLINE void convert_run(const Stored<From>* from, Stored<To>* to, int64_t n) {
  constexpr bool kToWhole = std::is_integral_v<To> && !std::is_same_v<To, bool>;
  if constexpr (std::is_same_v<From, To>) {
    std::memmove(to, from, static_cast<size_t>(n) * sizeof(*to));
  } else if constexpr (kToWhole && std::is_floating_point_v<From>) {
    convert_to_whole(from, to, n);
  } else if constexpr (kToWhole && kFloatingType<From>) {
    float real[kGroup];
    for (int64_t i = 0; i < n; i += kGroup) {
      const int64_t count = n - i < kGroup ? n - i : kGroup;
      convert_run<From, float>(from + i, real, count);
      convert_to_whole(real, to + i, count);
    }
  } else if constexpr (std::is_same_v<From, bool>) {
    uint8_t truth[kGroup];  // compilers vectorise two steps, not one
    for (int64_t i = 0; i < n; i += kGroup) {
      const int64_t count = n - i < kGroup ? n - i : kGroup;
      for (int64_t k = 0; k < count; ++k) truth[k] = from[i + k] != 0;
      convert_run<uint8_t, To>(truth, to + i, count);
    }
  } else {
    for (int64_t i = convert_registers<From, To>(from, to, n); i < n; ++i) to[i] = cast<To, From>(from[i]);
  }
}

template <class From, class To>
void convert(const void* from_bytes, int64_t from_stride, void* to_bytes, int64_t to_stride, int64_t n) {
  const auto* from = static_cast<const Stored<From>*>(from_bytes);
  auto* to = static_cast<Stored<To>*>(to_bytes);
  if (from_stride == 0) {
    const Stored<To> value = cast<To, From>(*from);
    if (to_stride == 1) {
      for (int64_t i = 0; i < n; ++i) to[i] = value;
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * to_stride] = value;
    }
  } else if (from_stride == 1 && to_stride == 1) {
    convert_run<From, To>(from, to, n);
  } else {
    int64_t i = from_stride == 2 && to_stride == 1 ? convert_every_second<From, To>(from, to, n) : 0;
    for (; i < n; ++i) to[i * to_stride] = cast<To, From>(from[i * from_stride]);
  }
}

}  // namespace

void fill_conversions(ConvertTable& table) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      table[static_cast<int>(from)][static_cast<int>(to)] = visit(from, [&]<class From>(Type<From>) {
        return visit(to, [&]<class To>(Type<To>) -> Convert { return &convert<From, To>; });
      });
    }
  }
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
