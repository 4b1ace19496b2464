#include "lorry/kernels/cpu/table.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "lorry/device/cpu/team.h"
#include "lorry/formula/random.h"
#include "lorry/kernels/cpu/random/random_tile.h"

namespace lorry::kernels::cpu {
using lorry::cpu::parallel_for;
namespace {

constexpr int64_t kGrainTiles = 8;

/// Calls body(words, first, count) for the tiles of a draw of n elements with `words_each` words per element.
template <class Body>
void for_each_tile(int64_t n, int words_each, RandomKey key, const Body& body) {
  const int64_t step = kTileWords / words_each;
  parallel_for((n + step - 1) / step, kGrainTiles, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kTileWords];
    for (int64_t tile = begin; tile < end; ++tile) {
      random_words(key, static_cast<uint64_t>(tile * kTileBlocks), words);
      body(words, tile * step, std::min(step, n - tile * step));
    }
  });
}

/// Fills `out` with a tile function that computes values of type C. 16-bit types, and the last tile, whose length may
/// be odd, go through a buffer.
template <class T, class C, class Fill>
void fill(const Array& out, int words_each, RandomKey key, const Fill& tile) {
  T* const to = out.as<T>();
  for_each_tile(out.numel(), words_each, key, [&](const uint32_t* words, int64_t first, int64_t count) {
    if constexpr (std::is_same_v<T, C>) {
      if (count == kTileWords / words_each) return tile(words, to + first, count);
    }
    alignas(64) C values[kTileWords];
    tile(words, values, (count + 1) & ~int64_t{1});
    for (int64_t i = 0; i < count; ++i) to[first + i] = T(values[i]);
  });
}

void uniform(const Array& out, RandomKey key, double low, double high, Stream) {
  visit_floating(out.dtype, [&]<class T>(Type<T>) {
    if constexpr (kNarrowType<T>) {
      constexpr int kDigits = std::numeric_limits<T>::digits;
      const float from = static_cast<float>(low), range = static_cast<float>(high) - from;
      for_each_tile(out.numel(), 1, key, [&](const uint32_t* words, int64_t first, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          const T value(formula::unit_of_digits<kDigits>(words[i]) * range + from);
          out.as<T>()[first + i] = static_cast<float>(value) < static_cast<float>(high) ? value : T(from);
        }
      });
    } else {
      fill<T, T>(out, sizeof(T) / 4, key, [&](const uint32_t* words, T* to, int64_t count) {
        uniform_tile(words, to, count, static_cast<T>(low), static_cast<T>(high));
      });
    }
  });
}

void normal(const Array& out, RandomKey key, double mean, double std, Stream) {
  visit_floating(out.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    fill<T, C>(out, sizeof(C) / 4, key, [&](const uint32_t* words, C* to, int64_t count) {
      normal_tile(words, to, count, static_cast<C>(mean), static_cast<C>(std));
    });
  });
}

void integers(const Array& out, RandomKey key, int64_t low, uint64_t range, Stream) {
  visit(out.dtype, [&]<class T>(Type<T>) {
    for_each_tile(out.numel(), 2, key, [&](const uint32_t* words, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t word = static_cast<uint64_t>(words[2 * i + 1]) << 32 | words[2 * i];
        const auto value = static_cast<int64_t>(static_cast<uint64_t>(low) + formula::below(word, range));
        if constexpr (kNarrowType<T>) {
          out.as<T>()[first + i] = T(static_cast<float>(value));
        } else {
          out.as<T>()[first + i] = static_cast<T>(value);
        }
      }
    });
  });
}

/// bytes[i] = 1 with probability p, for one tile.
void coin_tile(const uint32_t* words, uint8_t* bytes, int64_t count, double p) {
  const double threshold = std::ceil(p * 0x1p32);
  if (threshold < 1) {
    std::memset(bytes, 0, static_cast<size_t>(count));
  } else {
    at_most_tile(words, bytes, count, static_cast<uint32_t>(static_cast<uint64_t>(threshold) - 1));
  }
}

void bernoulli(const Array& out, RandomKey key, double p, Stream) {
  visit(out.dtype, [&]<class T>(Type<T>) {
    T* const to = out.as<T>();
    for_each_tile(out.numel(), 1, key, [&](const uint32_t* words, int64_t first, int64_t count) {
      if constexpr (sizeof(T) == 1) {
        coin_tile(words, reinterpret_cast<uint8_t*>(to + first), count, p);
      } else {
        uint8_t coins[kTileWords];
        coin_tile(words, coins, count, p);
        const T one(1), zero(0);
        for (int64_t i = 0; i < count; ++i) to[first + i] = coins[i] != 0 ? one : zero;
      }
    });
  });
}

bool bernoulli_each(const Array& out, const Array& p, RandomKey key, Stream) {
  return visit_floating(p.dtype, [&]<class P>(Type<P>) {
    const P* const chance = p.as<P>();
    std::atomic<bool> inside{true};
    parallel_for(p.numel(), int64_t{1} << 15, [&](int64_t begin, int64_t end) {
      bool good = true;
      for (int64_t i = begin; i < end; ++i)
        good &= static_cast<double>(chance[i]) >= 0 && static_cast<double>(chance[i]) <= 1;
      if (!good) inside.store(false, std::memory_order_relaxed);
    });
    if (!inside) return false;
    visit(out.dtype, [&]<class T>(Type<T>) {
      for_each_tile(out.numel(), 1, key, [&](const uint32_t* words, int64_t first, int64_t count) {
        const T one(1), zero(0);
        for (int64_t i = 0; i < count; ++i)
          out.as<T>()[first + i] =
              static_cast<double>(words[i]) < std::ceil(static_cast<double>(chance[first + i]) * 0x1p32) ? one : zero;
      });
    });
    return true;
  });
}

void dropout(const Array& out, const Array& mask, const Array& x, RandomKey key, double keep, double scale, Stream) {
  visit_floating(out.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    const C factor = static_cast<C>(scale);
    for_each_tile(out.numel(), 1, key, [&](const uint32_t* words, int64_t first, int64_t count) {
      uint8_t* const mask_tile = mask.as<uint8_t>() + first;
      const T* const from = x.as<T>() + first;
      T* const to = out.as<T>() + first;
      coin_tile(words, mask_tile, count, keep);
      if constexpr (std::is_same_v<T, float>) {
        dropout_tile(mask_tile, from, to, count, factor);
      } else {
        for (int64_t i = 0; i < count; ++i) to[i] = mask_tile[i] != 0 ? T(static_cast<C>(from[i]) * factor) : T(0);
      }
    });
  });
}

}  // namespace

// Defined in sampling.cpp.
void permutation(const Array& out, RandomKey key, Stream);
void multinomial(const Array& out, const Array& weights, bool replacement, RandomKey key, Stream);

const RandomKernels& random_kernels() {
  static constexpr RandomKernels kKernels{uniform,        normal,  integers,    bernoulli,
                                          bernoulli_each, dropout, permutation, multinomial};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
