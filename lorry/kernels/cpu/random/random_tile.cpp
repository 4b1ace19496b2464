#include "lorry/kernels/cpu/random/random_tile.h"

#include "lorry/formula/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/random/random_tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
void Words(uint64_t seed, uint64_t offset, uint64_t block, uint32_t* HWY_RESTRICT words, int64_t count) {
  for (int64_t b = 0; b < count; ++b) {
    const formula::Words4 four =
        formula::random_block(formula::RandomKey{seed, offset}, block + static_cast<uint64_t>(b));
    for (int i = 0; i < 4; ++i) words[4 * b + i] = four.word[i];
  }
}
#else
// One block per 64-bit lane: the 32x32-bit product reads the low half of a lane and ignores the high half, so the
// halves need no masking between rounds. Four vectors are in flight to hide the latency of the multiplier.
void Words(uint64_t seed, uint64_t offset, uint64_t block, uint32_t* HWY_RESTRICT words, int64_t count) {
  using namespace formula;
  const hn::ScalableTag<uint64_t> d64;
  const hn::Repartition<uint32_t, decltype(d64)> d32;
  using V = hn::Vec<decltype(d64)>;
  constexpr int kFlight = 4;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d64));
  const auto multiplier0 = hn::Set(d32, kPhiloxMultiplier0), multiplier1 = hn::Set(d32, kPhiloxMultiplier1);
  const auto product = [&](auto m, V c) HWY_ATTR { return hn::MulEven(m, hn::BitCast(d32, c)); };
  const V low_half = hn::Set(d64, 0xffffffffu);
  for (int64_t b = 0; b < count; b += kFlight * lanes) {
    V c0[kFlight], c1[kFlight], c2[kFlight], c3[kFlight];
    for (int f = 0; f < kFlight; ++f) {
      c0[f] = hn::Add(hn::Set(d64, block + static_cast<uint64_t>(b + f * lanes)), hn::Iota(d64, 0));
      c1[f] = hn::ShiftRight<32>(c0[f]);
      c2[f] = hn::Set(d64, offset);
      c3[f] = hn::Set(d64, offset >> 32);
    }
    uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const V k0 = hn::Set(d64, key0), k1 = hn::Set(d64, key1);
      for (int f = 0; f < kFlight; ++f) {
        const V p0 = product(multiplier0, c0[f]), p1 = product(multiplier1, c2[f]);
        c0[f] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1[f]), k0);
        c1[f] = p1;
        c2[f] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3[f]), k1);
        c3[f] = p0;
      }
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    for (int f = 0; f < kFlight; ++f) {
      const V first = hn::Or(hn::And(c0[f], low_half), hn::ShiftLeft<32>(c1[f]));
      const V second = hn::Or(hn::And(c2[f], low_half), hn::ShiftLeft<32>(c3[f]));
      hn::StoreInterleaved2(first, second, d64, reinterpret_cast<uint64_t*>(words + 4 * (b + f * lanes)));
    }
  }
}
#endif

// The loops below are vectorised by the compiler: they call the scalar formulas, which are the definition.

void UniformF32(const uint32_t* HWY_RESTRICT words, float* HWY_RESTRICT out, int64_t count, float low, float high) {
  const float range = high - low;
  for (int64_t i = 0; i < count; ++i) out[i] = formula::stretch(formula::unit_f32(words[i]), low, range, high);
}

void UniformF64(const uint32_t* HWY_RESTRICT words, double* HWY_RESTRICT out, int64_t count, double low, double high) {
  const double range = high - low;
  for (int64_t i = 0; i < count; ++i)
    out[i] = formula::stretch(formula::unit_f64(words[2 * i], words[2 * i + 1]), low, range, high);
}

void NormalF32(const uint32_t* HWY_RESTRICT words, float* HWY_RESTRICT out, int64_t count, float mean, float std) {
  for (int64_t i = 0; i < count / 2; ++i) {
    const auto z = formula::normal_pair(words[2 * i], words[2 * i + 1], mean, std);
    out[2 * i] = z.first;
    out[2 * i + 1] = z.second;
  }
}

void NormalF64(const uint32_t* HWY_RESTRICT words, double* HWY_RESTRICT out, int64_t count, double mean, double std) {
  for (int64_t i = 0; i < count / 2; ++i) {
    const auto join = [&](int64_t at) { return static_cast<uint64_t>(words[at + 1]) << 32 | words[at]; };
    const auto z = formula::normal_pair(join(4 * i), join(4 * i + 2), mean, std);
    out[2 * i] = z.first;
    out[2 * i + 1] = z.second;
  }
}

void AtMost(const uint32_t* HWY_RESTRICT words, uint8_t* HWY_RESTRICT out, int64_t count, uint32_t last) {
  for (int64_t i = 0; i < count; ++i) out[i] = words[i] <= last;
}

void Dropout(const uint8_t* HWY_RESTRICT mask, const float* x, float* out, int64_t count, float scale) {
  for (int64_t i = 0; i < count; ++i) out[i] = mask[i] != 0 ? x[i] * scale : 0.0f;
}

}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lorry::kernels::cpu {

HWY_EXPORT(Words);
HWY_EXPORT(UniformF32);
HWY_EXPORT(UniformF64);
HWY_EXPORT(NormalF32);
HWY_EXPORT(NormalF64);
HWY_EXPORT(AtMost);
HWY_EXPORT(Dropout);

void random_words(const formula::RandomKey& key, uint64_t block, uint32_t* words, int64_t count) {
  // Not key.load(): its three words are returned in memory, and the loads that follow wait for them.
  const uint64_t seed = key.state ? key.state->seed : key.seed;
  const uint64_t offset = key.state ? key.state->offset + key.offset : key.offset;
  HWY_DYNAMIC_DISPATCH(Words)(seed, offset, block, words, count);
}
void uniform_tile(const uint32_t* words, float* out, int64_t count, float low, float high) {
  HWY_DYNAMIC_DISPATCH(UniformF32)(words, out, count, low, high);
}
void uniform_tile(const uint32_t* words, double* out, int64_t count, double low, double high) {
  HWY_DYNAMIC_DISPATCH(UniformF64)(words, out, count, low, high);
}
void normal_tile(const uint32_t* words, float* out, int64_t count, float mean, float std) {
  HWY_DYNAMIC_DISPATCH(NormalF32)(words, out, count, mean, std);
}
void normal_tile(const uint32_t* words, double* out, int64_t count, double mean, double std) {
  HWY_DYNAMIC_DISPATCH(NormalF64)(words, out, count, mean, std);
}
void at_most_tile(const uint32_t* words, uint8_t* out, int64_t count, uint32_t last) {
  HWY_DYNAMIC_DISPATCH(AtMost)(words, out, count, last);
}
void dropout_tile(const uint8_t* mask, const float* x, float* out, int64_t count, float scale) {
  HWY_DYNAMIC_DISPATCH(Dropout)(mask, x, out, count, scale);
}

}  // namespace lorry::kernels::cpu
#endif
