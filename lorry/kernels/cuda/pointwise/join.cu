// Joining matrices along their rows, with one launch for many matrices. Threads are adjacent along the rows of the
// result, so that these are written whole however narrow the matrices are. Elements are moved as words of up to 16
// bytes. A thread finds the matrix of its column by binary search; where there are many rows, its words are in one
// column, so that it searches once. Every word is read and written once.

#include "lorry/kernels/cuda/pointwise/join.h"

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/divider.h"
#include "lorry/kernels/cuda/table.h"
#include "lorry/kernels/pointwise.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kBlock = 256;
constexpr size_t kMost = 128;                 ///< matrices per launch: 3 KB of arguments
constexpr int64_t kLarge = int64_t{1} << 20;  ///< bytes of a matrix that is worth a launch of its own

/// Words in flight per thread.
template <class Word>
constexpr uint32_t kFlight = sizeof(Word) == 16 ? 4 : 8;

/// A matrix: columns [first, end) of the result. Everything is counted in words.
struct Part {
  const char* from;
  int64_t pitch;  ///< distance between rows
  uint32_t first, end;

  void addresses(auto& visit) const { visit(from); }
};

/// The argument of join_words.
struct Joining {
  char* to;
  int64_t pitch;
  Divider width;  ///< columns of the result
  uint32_t words;
  uint32_t step;       ///< from one word of a thread to its next
  uint32_t threads;    ///< threads that have words
  uint32_t per_block;  ///< from the first word of a block to that of the next
  uint32_t count;      ///< number of parts
  Part parts[kMost];

  void addresses(auto& visit) const { visit(to, parts); }
};

/// The part with this column.
__device__ __forceinline__ Part part_at(const Part* parts, uint32_t count, uint32_t column) {
  uint32_t low = 0, high = count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (parts[middle].first <= column) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return parts[low];
}

template <class Word>
__global__ void __launch_bounds__(kBlock) join_words(const __grid_constant__ Joining call) {
  lorry::cuda::begin_programmatic();
  __shared__ Part parts[kMost];
  // A warp copies one part after the other: threads that read different arguments would wait for each other.
  for (uint32_t k = threadIdx.x / 32; k < call.count; k += kBlock / 32)
    if (threadIdx.x % 32 == 0) parts[k] = call.parts[k];
  __syncthreads();
  const uint32_t start = blockIdx.x * call.per_block + threadIdx.x;
  if (start >= call.threads) return;
  Part part{nullptr, 0, 0, 0};  // no column
  Word words[kFlight<Word>];
  int64_t to[kFlight<Word>];
#pragma unroll
  for (uint32_t u = 0; u < kFlight<Word>; ++u) {
    const uint32_t position = start + u * call.step;
    if (position >= call.words) break;
    const uint32_t row = call.width(position), column = position - row * call.width.divisor;
    if (column < part.first || column >= part.end) part = part_at(parts, call.count, column);
    words[u] = reinterpret_cast<const Word*>(part.from)[row * part.pitch + (column - part.first)];
    to[u] = row * call.pitch + column;
  }
#pragma unroll
  for (uint32_t u = 0; u < kFlight<Word>; ++u)
    if (start + u * call.step < call.words) reinterpret_cast<Word*>(call.to)[to[u]] = words[u];
}

template <class Word>
void launch_join(Joining& call, int64_t rows, Stream stream) {
  constexpr uint32_t kWords = kFlight<Word>;
  // A step by whole rows keeps the column. With too few rows for that, a block's words are adjacent.
  const bool by_rows = rows >= kWords;
  call.step = by_rows ? static_cast<uint32_t>((rows + kWords - 1) / kWords) * call.width.divisor : kBlock;
  call.threads = by_rows ? call.step : call.words;
  call.per_block = by_rows ? kBlock : kBlock * kWords;
  const unsigned blocks = (call.threads + call.per_block - 1) / call.per_block;
  lorry::cuda::launch_with(stream, {blocks, kBlock}, join_words<Word>, call);
}

/// The bytes of the widest word that divides every address, width and pitch.
int64_t word_of(const Array& to, std::span<const Array> from) {
  const int64_t size = size_of(to.dtype);
  uint64_t all = 16;
  const auto add = [&](const Array& x) {
    all |= reinterpret_cast<uintptr_t>(x.data) | static_cast<uint64_t>(x.size(1) * size);
    if (x.size(0) > 1) all |= static_cast<uint64_t>(x.stride(0) * size);
  };
  add(to);
  for (const Array& x : from) add(x);
  return static_cast<int64_t>(all & -all);
}

/// Joins up to kMost matrices, which have all columns of `to`.
void join_some(const Array& to, std::span<const Array> from, int64_t word, Stream stream) {
  const int64_t rows = to.size(0), size = size_of(to.dtype);
  Joining call{.to = to.as<char>(), .pitch = to.stride(0) * size / word, .width = Divider(to.size(1) * size / word)};
  call.words = static_cast<uint32_t>(rows * call.width.divisor);
  uint32_t column = 0;
  for (const Array& x : from) {
    const auto width = static_cast<uint32_t>(x.size(1) * size / word);
    call.parts[call.count++] = {x.as<const char>(), x.stride(0) * size / word, column, column + width};
    column += width;
  }
  switch (word) {
    case 1:
      return launch_join<uint8_t>(call, rows, stream);
    case 2:
      return launch_join<uint16_t>(call, rows, stream);
    case 4:
      return launch_join<uint32_t>(call, rows, stream);
    case 8:
      return launch_join<uint2>(call, rows, stream);
    default:
      return launch_join<uint4>(call, rows, stream);
  }
}

/// Columns [first, first + width) of a matrix.
Array columns(const Array& x, int64_t first, int64_t width) {
  Array out = x;
  out.data = x.as<char>() + first * size_of(x.dtype);
  out.layout.sizes[1] = width;
  return out;
}

}  // namespace

void join(const Array& to, std::span<const Array> from, Stream stream) {
  for (int64_t column = 0; !from.empty();) {
    const auto some = from.first(std::min(from.size(), kMost));
    from = from.subspan(some.size());
    int64_t width = 0;
    for (const Array& x : some) width += x.size(1);
    const Array part = columns(to, column, width);
    column += width;
    const int64_t word = word_of(part, some), bytes = part.numel() * size_of(to.dtype);
    // Large matrices one by one, if there is no wide word for all of them: each may have its own.
    const bool apart = word < 4 && bytes >= kLarge * static_cast<int64_t>(some.size());
    if (some.size() > 1 && part.numel() <= INT32_MAX && !apart) {
      join_some(part, some, word, stream);
      continue;
    }
    int64_t first = 0;
    for (const Array& x : some) {
      copy_kernels().copy(columns(part, first, x.size(1)), x, stream);
      first += x.size(1);
    }
  }
}

}  // namespace lorry::kernels::cuda
