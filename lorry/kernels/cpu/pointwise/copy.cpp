// Copies, divided among threads as runs along the result's innermost dimension. Two kinds of layouts are walked in
// another way: those in which the source is contiguous along another dimension (transpose.cpp), and those whose rows
// are so short that a call for each would cost more than the copy.

#include "lorry/kernels/pointwise.h"

#include <algorithm>
#include <cstring>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/move_runs.h"
#include "lorry/kernels/cpu/common/walk.h"
#include "lorry/kernels/cpu/pointwise/moves.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kGrain = 65536;                 ///< elements worth a second thread
constexpr int64_t kShort = 16;                    ///< elements: shorter rows are copied many at a time
constexpr int64_t kBand = 1024;                   ///< elements of short rows that are copied together
constexpr int64_t kStreamed = int64_t{64} << 20;  ///< bytes of a fill that goes past the caches

/// Elements whose bits are copied as they are.
bool keeps_bits(const Array& to, const Array& from) { return to.dtype == from.dtype && to.dtype != kBool; }

/// The processor does not foresee well what is read backwards: long runs are read piece by piece.
template <class Word>
void reverse(const void* from_bytes, int64_t, void* to_bytes, int64_t, int64_t n) {
  constexpr int64_t kPiece = 4096 / sizeof(Word);
  const Word* from = static_cast<const Word*>(from_bytes);
  Word* to = static_cast<Word*>(to_bytes);
  for (int64_t count; n > 0; n -= count, from -= count, to += count) {
    count = std::min(n, kPiece);
    if (n > kPiece) prefetch_run(from, -2 * 4096, 4096);
    for (int64_t i = 0; i < count; ++i) to[i] = from[-i];
  }
}

/// How runs along the innermost dimension are copied.
Convert run_copier(const Iteration& it, const Array& to, const Array& from) {
  if (it.strides[0][0] == 1 && it.strides[1][0] == -1 && keeps_bits(to, from)) {
    Convert chosen = nullptr;
    visit_size(size_of(to.dtype), [&]<class Word>(Type<Word>) { chosen = reverse<Word>; });
    return chosen;
  }
  return converter(from.dtype, to.dtype);
}

/// The distance in bytes from a row of the source to the one that is prefetched with it: at least 1 KB of rows later.
/// 0: none is, because rows are strided or longer than 4 KB, or the copy is below 1 MB.
int64_t distance_ahead(const Iteration& it, const Array& from) {
  constexpr int64_t kFar = int64_t{1} << 20, kLongRow = 4096, kAhead = 1024;
  const int64_t size = size_of(from.dtype), row = it.sizes[0] * size;
  const bool is_run = it.strides[1][0] == 1 || it.strides[1][0] == -1;
  if (it.rank < 2 || !is_run || row > kLongRow || it.numel() * size < kFar) return 0;
  return it.strides[1][1] * size * std::max<int64_t>(1, kAhead / row);
}

void copy_runs(const Iteration& it, const Array& to, const Array& from) {
  const Convert copy_run = run_copier(it, to, from);
  const int64_t size = size_of(from.dtype), ahead = distance_ahead(it, from);
  lorry::cpu::parallel_for(it.numel(), kGrain, [&](int64_t begin, int64_t end) {
    walk(it, begin, end, [&](const int64_t* offsets, int64_t count) {
      const int64_t first = it.strides[1][0] < 0 ? 1 - count : 0;  // of the row, as it lies in memory
      if (ahead != 0) prefetch_run(at(from, offsets[1] + first), ahead, count * size);
      copy_run(at(from, offsets[1]), it.strides[1][0], at(to, offsets[0]), it.strides[0][0], count);
    });
  });
}

/// Copies `count` neighbouring short rows.
void copy_band(const Iteration& it, const Array& to, const Array& from, const int64_t* offsets, int64_t count) {
  const int64_t width = it.sizes[0], size = size_of(to.dtype), to_step = it.strides[0][0], from_step = it.strides[1][0];
  const int64_t to_pitch = it.strides[0][1], from_pitch = it.strides[1][1];
  if (to.dtype == from.dtype && to_step == 1 && from_step == 1)
    return move_rows(at(to, offsets[0]), to_pitch * size, at(from, offsets[1]), from_pitch * size, width * size, count);
  if (keeps_bits(to, from) && to_step == 1 && from_step == 0 && to_pitch == width)
    return LORRY_SIMD_CHOOSE(repeat_each)(at(from, offsets[1]), from_pitch, at(to, offsets[0]), width, count, size);
  const Convert convert = element_converter(from.dtype, to.dtype);
  for (int64_t x = 0; x < width; ++x)
    convert(at(from, offsets[1] + x * from_step), from_pitch, at(to, offsets[0] + x * to_step), to_pitch, count);
}

bool has_short_rows(const Iteration& it) { return it.rank > 1 && it.sizes[0] < kShort && it.sizes[1] > it.sizes[0]; }

void copy_short_rows(const Iteration& it, const Array& to, const Array& from) {
  const int64_t width = it.sizes[0], rows = it.sizes[1], planes = it.numel() / (width * rows);
  const int64_t height = std::min(rows, kBand / width), bands = (rows + height - 1) / height;
  const int64_t grain = std::max<int64_t>(1, kGrain / (width * height));
  lorry::cpu::parallel_for(planes * bands, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      int64_t offsets[2];
      outer_offsets(it, 1, b / bands, offsets);
      const int64_t top = b % bands * height;
      for (int k = 0; k < 2; ++k) offsets[k] += top * it.strides[k][1];
      copy_band(it, to, from, offsets, std::min(height, rows - top));
    }
  });
}

void copy(const Array& to, const Array& from, Stream) {
  if (to.numel() == 0) return;
  const Layout layouts[] = {to.layout, from.layout};
  const Iteration it = collapse(layouts, 2);
  if (const int other = transposed_dimension(it)) return copy_transposed(it, other, to, from);
  if (has_short_rows(it)) return copy_short_rows(it, to, from);
  copy_runs(it, to, from);
}

/// Fills past the caches, which could not hold the result. `to` begins at a cache line.
void fill_streamed(char* to, const char* element, int64_t size, int64_t bytes) {
  char line[kCacheLine];
  for (int64_t i = 0; i < kCacheLine; i += size) std::memcpy(line + i, element, static_cast<size_t>(size));
  const int64_t lines = bytes / kCacheLine;
  lorry::cpu::parallel_for(lines, kGrain, [&](int64_t begin, int64_t end) {
    LORRY_SIMD_CHOOSE(stream_lines)(to + begin * kCacheLine, line, end - begin);
    LORRY_SIMD_CHOOSE(stream_end)();
  });
  std::memcpy(to + lines * kCacheLine, line, static_cast<size_t>(bytes % kCacheLine));
}

void fill(const Array& to, const void* value, DType dtype, Stream stream) {
  alignas(8) char element[8];
  converter(dtype, to.dtype)(value, 0, element, 1, 1);
  const int64_t size = size_of(to.dtype), bytes = to.numel() * size;
  if (bytes >= kStreamed && to.layout.is_contiguous() && reinterpret_cast<uintptr_t>(to.data) % kCacheLine == 0)
    return fill_streamed(to.as<char>(), element, size, bytes);
  Array from{element, to.dtype, to.layout};
  std::fill_n(from.layout.strides, from.layout.rank, 0);
  copy(to, from, stream);
}

}  // namespace

void outer_offsets(const Iteration& it, int except, int64_t r, int64_t offsets[2]) {
  offsets[0] = offsets[1] = 0;
  for (int d = 1; d < it.rank; ++d) {
    if (d == except) continue;
    const int64_t index = r % it.sizes[d];
    r /= it.sizes[d];
    for (int k = 0; k < 2; ++k) offsets[k] += index * it.strides[k][d];
  }
}

const CopyKernels& copy_kernels() {
  static constexpr CopyKernels kKernels{.copy = copy, .fill = fill, .join = join};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
