#pragma once

// Moving elements with vectors (move_runs.cpp). `size` is that of an element in bytes: 1, 2, 4 or 8.

#include <cstdint>

#include "lorry/kernels/cpu/common/simd.h"

namespace lorry::kernels::cpu {

inline constexpr int64_t kCacheLine = 64;  ///< bytes

/// Asks for the memory that begins `offset` bytes behind `from`. It need not exist.
inline void prefetch_run(const void* from, int64_t offset, int64_t bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(offset);
  for (uintptr_t at = begin; at < begin + static_cast<uintptr_t>(bytes); at += kCacheLine)
    __builtin_prefetch(reinterpret_cast<const void*>(at));
}

/// Transposes: to[y * to_pitch + x] = from[x * from_pitch + y].
using TransposeTile = void(const void* from, int64_t from_pitch, void* to, int64_t to_pitch, int64_t width,
                           int64_t height, int64_t size);
/// Writes each of `count` elements, `stride` elements apart, `times` times next to each other.
using RepeatEach = void(const void* from, int64_t stride, void* to, int64_t times, int64_t count, int64_t size);
/// Copies a run. Its whole cache lines go past the caches: others see them after stream_end().
using StreamRun = void(char* to, const char* from, int64_t bytes);
/// Fills cache lines, in the same way, with one line.
using StreamLines = void(char* to, const char* line, int64_t lines);
using StreamEnd = void();

LORRY_SIMD_DECLARE(TransposeTile transpose_tile; RepeatEach repeat_each; StreamRun stream_run; StreamLines stream_lines;
                   StreamEnd stream_end)

}  // namespace lorry::kernels::cpu
