// Joining matrices along their rows. The result is written in order, each part of it once: row by row, or, where rows
// are short, a few of them at a time, so that what is written in pieces stays in the cache until it is complete.

#include <algorithm>
#include <cstring>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/pointwise/moves.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 18;  ///< bytes worth a second thread
constexpr int64_t kBand = 16384;              ///< bytes of rows that are written together

/// Rows whose length the compiler knows.
template <int64_t bytes>
void move_fixed(char* to, int64_t to_pitch, const char* from, int64_t from_pitch, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * to_pitch, from + r * from_pitch, bytes);
}

/// A part of the result: the bytes [left, right) of rows [top, bottom).
struct Part {
  int64_t top, bottom, left, right;
};

void join_part(const Array& to, std::span<const Array> from, const Part& part) {
  const int64_t size = size_of(to.dtype), to_pitch = to.stride(0) * size;
  int64_t column = 0;  // where the source's first column goes
  for (const Array& x : from) {
    const int64_t width = x.size(1) * size, pitch = x.stride(0) * size;
    const int64_t begin = std::max(part.left, column), end = std::min(part.right, column + width);
    if (begin < end)
      move_rows(to.as<char>() + part.top * to_pitch + begin, to_pitch, x.as<char>() + part.top * pitch + begin - column,
                pitch, end - begin, part.bottom - part.top);
    column += width;
  }
}

}  // namespace

void move_rows(char* to, int64_t to_pitch, const char* from, int64_t from_pitch, int64_t bytes, int64_t rows) {
  switch (bytes) {
    case 1:
      return move_fixed<1>(to, to_pitch, from, from_pitch, rows);
    case 2:
      return move_fixed<2>(to, to_pitch, from, from_pitch, rows);
    case 4:
      return move_fixed<4>(to, to_pitch, from, from_pitch, rows);
    case 8:
      return move_fixed<8>(to, to_pitch, from, from_pitch, rows);
    case 12:
      return move_fixed<12>(to, to_pitch, from, from_pitch, rows);
    case 16:
      return move_fixed<16>(to, to_pitch, from, from_pitch, rows);
    case 32:
      return move_fixed<32>(to, to_pitch, from, from_pitch, rows);
    case 64:
      return move_fixed<64>(to, to_pitch, from, from_pitch, rows);
    default:
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + r * to_pitch, from + r * from_pitch, static_cast<size_t>(bytes));
  }
}

void join(const Array& to, std::span<const Array> from, Stream) {
  const int64_t row = to.size(1) * size_of(to.dtype);
  if (to.numel() == 0) return;
  const int64_t band = std::max<int64_t>(1, kBand / row);
  // Threads share the result's bytes evenly, so that a single row is divided too.
  lorry::cpu::parallel_for(to.size(0) * row, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t top = begin / row, left = begin % row;
      const bool whole = left == 0 && end - begin >= row;
      const int64_t rows = whole ? std::min(band, (end - begin) / row) : 1;
      const int64_t right = whole ? row : std::min(row, left + end - begin);
      join_part(to, from, {top, top + rows, left, right});
      begin += whole ? rows * row : right - left;
    }
  });
}

}  // namespace lorry::kernels::cpu
