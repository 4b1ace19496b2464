// Compiled once for each instruction set: LORRY_SIMD.

#include "lorry/kernels/cpu/common/move_runs.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kRegister = 16;  ///< bytes; shorter vectors than most have, because copies wait for memory

template <class Word>
using Lanes = hn::FixedTag<Word, kRegister / sizeof(Word)>;

/// Calls f with a number of the element's type.
template <class F>
HWY_INLINE void visit_word(int64_t size, F f) {
  switch (size) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    default:
      return f(uint64_t());
  }
}

/// Transposes a square of registers: to[y][x] = from[x][y].
template <class Word>
HWY_INLINE void transpose_square(const Word* from, int64_t from_pitch, Word* to, int64_t to_pitch) {
  constexpr int kSide = kRegister / sizeof(Word);
  const Lanes<Word> d;
  hn::Vec<Lanes<Word>> rows[kSide], mixed[kSide];
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) rows[i] = hn::LoadU(d, from + i * from_pitch);
#pragma GCC unroll 4
  for (int round = 1; round < kSide; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      mixed[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kSide / 2]);
      mixed[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kSide / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) rows[i] = mixed[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) hn::StoreU(rows[i], d, to + i * to_pitch);
}

template <class Word>
void transpose(const Word* from, int64_t from_pitch, Word* to, int64_t to_pitch, int64_t width, int64_t height) {
  constexpr int64_t kSide = kRegister / sizeof(Word);
  const int64_t whole_width = width / kSide * kSide, whole_height = height / kSide * kSide;
  for (int64_t x = 0; x < whole_width; x += kSide)
    for (int64_t y = 0; y < whole_height; y += kSide)
      transpose_square(from + x * from_pitch + y, from_pitch, to + y * to_pitch + x, to_pitch);
  for (int64_t x = 0; x < width; ++x)
    for (int64_t y = x < whole_width ? whole_height : 0; y < height; ++y)
      to[y * to_pitch + x] = from[x * from_pitch + y];
}

/// Stores whole vectors: what is too much is overwritten by the next element's.
template <class Word>
void repeat(const Word* from, int64_t stride, Word* to, int64_t times, int64_t count) {
  const Lanes<Word> d;
  constexpr int64_t kLanes = kRegister / sizeof(Word);
  const int64_t reach = (times + kLanes - 1) / kLanes * kLanes;
  int64_t i = 0;
  for (; i * times + reach <= count * times; ++i) {
    const auto value = hn::Set(d, from[i * stride]);
    for (int64_t k = 0; k < times; k += kLanes) hn::StoreU(value, d, to + i * times + k);
  }
  for (; i < count; ++i)
    for (int64_t k = 0; k < times; ++k) to[i * times + k] = from[i * stride];
}

}  // namespace

void transpose_tile(const void* from, int64_t from_pitch, void* to, int64_t to_pitch, int64_t width, int64_t height,
                    int64_t size) {
  visit_word(size, [&]<class Word>(Word) {
    transpose(static_cast<const Word*>(from), from_pitch, static_cast<Word*>(to), to_pitch, width, height);
  });
}

void repeat_each(const void* from, int64_t stride, void* to, int64_t times, int64_t count, int64_t size) {
  visit_word(size, [&]<class Word>(Word) {
    repeat(static_cast<const Word*>(from), stride, static_cast<Word*>(to), times, count);
  });
}

void stream_run(char* to, const char* from, int64_t bytes) {
  const Lanes<uint8_t> d;
  const int64_t ahead = -static_cast<int64_t>(reinterpret_cast<uintptr_t>(to)) & (kCacheLine - 1);
  const int64_t head = ahead < bytes ? ahead : bytes, end = head + (bytes - head) / kCacheLine * kCacheLine;
  std::memcpy(to, from, static_cast<size_t>(head));
  for (int64_t i = head; i < end; i += kRegister)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + i)), d, reinterpret_cast<uint8_t*>(to + i));
  std::memcpy(to + end, from + end, static_cast<size_t>(bytes - end));
}

void stream_lines(char* to, const char* line, int64_t lines) {
  const Lanes<uint8_t> d;
  for (; lines > 0; --lines, to += kCacheLine) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kCacheLine; i += kRegister)
      hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(line + i)), d, reinterpret_cast<uint8_t*>(to + i));
  }
}

void stream_end() { hwy::FlushStream(); }

}  // namespace lorry::kernels::cpu::LORRY_SIMD
