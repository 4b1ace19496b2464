// Stores keys and values in a paged cache: a block for the keys of a row and one for its values. Each element is read
// once and written once, in words of up to 16 bytes.

#include <algorithm>

#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/paged/rows.h"

namespace lorry::kernels::cuda {
namespace {

/// The keys or the values: runs of a row, and where they go.
struct Part {
  const void* from;
  void* to;
  int64_t row, head, coordinate;                     ///< strides of `from`
  int64_t to_block, to_row, to_head, to_coordinate;  ///< strides of `to`

  void addresses(auto& visit) const { visit(from, to); }
};
struct Both {
  Part each[2];
  void addresses(auto& visit) const { visit(each); }
};

constexpr int kWriters = 128;

/// A block copies the keys (y = 0) or values of one row. An element is a word of up to 16 bytes.
template <class Word>
__global__ __launch_bounds__(kWriters) void paged_write_rows(const Both both, const CachedRows rows, int heads,
                                                             int width) {
  lorry::cuda::begin_programmatic();
  const int32_t row = static_cast<int32_t>(blockIdx.x);
  const bool speak = threadIdx.x == 0 && blockIdx.y == 0;
  const int32_t position = rows.position(row, speak);
  if (position < 0) return;
  const int32_t number = static_cast<int32_t>(rows.by_block(static_cast<uint32_t>(position)));
  const int32_t block = rows.block(row, number, speak);
  if (block < 0) return;
  const Part& s = both.each[blockIdx.y];
  const int64_t at = position - int64_t{number} * rows.by_block.divisor;
  Word* const to = static_cast<Word*>(s.to) + block * s.to_block + at * s.to_row;
  const Word* const from = static_cast<const Word*>(s.from) + row * s.row;
  for (int i = static_cast<int>(threadIdx.x); i < heads * width; i += kWriters) {
    const int head = i / width, e = i - head * width;
    to[head * s.to_head + e * s.to_coordinate] = from[head * s.head + e * s.coordinate];
  }
}

/// The largest power of two, at most 16 bytes, in which heads of both arrays can be moved.
int64_t common_word(const Array& cache, const Array& x) {
  const int64_t bytes = size_of(x.dtype);
  if ((cache.stride(3) != 1 || x.stride(2) != 1) && x.size(2) > 1) return bytes;
  uint64_t all = reinterpret_cast<uintptr_t>(cache.data) | reinterpret_cast<uintptr_t>(x.data) | 16 |
                 static_cast<uint64_t>(x.size(2) * bytes);
  for (int d = 0; d < 3; ++d) all |= cache.size(d) > 1 ? static_cast<uint64_t>(cache.stride(d) * bytes) : 0;
  for (int d = 0; d < 2; ++d) all |= x.size(d) > 1 ? static_cast<uint64_t>(x.stride(d) * bytes) : 0;
  return static_cast<int64_t>(all & -all);
}

Part words_of(const Array& cache, const Array& x, int64_t ratio) {
  const int64_t one = ratio > 1 ? ratio : 1;
  const auto in_words = [&](int64_t stride) { return stride / one; };
  return {.from = x.data,
          .to = cache.data,
          .row = in_words(x.stride(0)),
          .head = in_words(x.stride(1)),
          .coordinate = ratio > 1 ? 1 : x.stride(2),
          .to_block = in_words(cache.stride(0)),
          .to_row = in_words(cache.stride(1)),
          .to_head = in_words(cache.stride(2)),
          .to_coordinate = ratio > 1 ? 1 : cache.stride(3)};
}

}  // namespace

void paged_write(const PagedWrite& args, Stream stream) {
  if (args.k.numel() == 0) return;
  const int64_t word = std::min(common_word(args.k_cache, args.k), common_word(args.v_cache, args.v));
  const int64_t ratio = word / size_of(args.k.dtype);
  const Both both{{words_of(args.k_cache, args.k, ratio), words_of(args.v_cache, args.v, ratio)}};
  const CachedRows rows = rows_of(args.rows, args.k_cache, stream);
  const int heads = narrow_size(args.k.size(1)), width = narrow_size(args.k.size(2) / std::max<int64_t>(ratio, 1));
  const lorry::cuda::Shape shape{.grid = {static_cast<unsigned>(rows.n), 2}, .block = kWriters};
  const auto launch = [&](auto kernel) { lorry::cuda::launch(stream, shape, kernel, both, rows, heads, width); };
  switch (word) {
    case 2:
      return launch(paged_write_rows<uint16_t>);
    case 4:
      return launch(paged_write_rows<uint32_t>);
    case 8:
      return launch(paged_write_rows<uint64_t>);
    default:
      return launch(paged_write_rows<uint4>);
  }
}

}  // namespace lorry::kernels::cuda
