// Coordinates of elements that are not zero. Listing reads x once, computes the number of non-zero elements before each
// position on the way (prefix.h), and writes 8 bytes per coordinate. If the size of the result must be known first,
// counting reads x before: from the end to the start, so that listing finds the start in the cache. If the size is
// given, nothing is counted before and the host reads nothing; a small kernel fills the rows that are left.

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/host_readback.h"
#include "lorry/kernels/cuda/common/prefix.h"
#include "lorry/kernels/cuda/common/strided_indexer.h"
#include "lorry/kernels/cuda/indexing/indexing.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = kPrefixThreads;
/// A thread reads four runs of 16 bytes, a block's width apart.
constexpr int kRuns = 4;
template <class Word>
constexpr int kTile = kThreads* kRuns* kRun<Word>;

/// x as words of its element width. `mask` selects the bits that make an element differ from zero: all except a float's
/// sign.
template <class Word>
struct Elements {
  const Word* data;
  int64_t count;
  Word mask;
  bool aligned;

  void addresses(auto& visit) const { visit(data); }

  /// Bit i: whether element from + i of a run is not zero.
  __device__ uint32_t run(int64_t from) const {
    constexpr int kLength = kRun<Word>;
    uint32_t bits = 0;
    if (aligned && from + kLength <= count) {
      const auto words = load_run<Word, kLength>(data + from);
#pragma unroll
      for (int i = 0; i < kLength; ++i) bits |= static_cast<uint32_t>((words.at[i] & mask) != 0) << i;
    } else {
      for (int i = 0; i < kLength && from + i < count; ++i)
        bits |= static_cast<uint32_t>((data[from + i] & mask) != 0) << i;
    }
    return bits;
  }
};

/// The position of this thread's run r in its tile.
template <class Word>
__device__ __forceinline__ int start_of(int r) {
  return (r * kThreads + static_cast<int>(threadIdx.x)) * kRun<Word>;
}

/// counts[block] = the number of non-zero elements in the block's tiles.
template <class Word>
__global__ void __launch_bounds__(kThreads) count_tiles(int64_t* counts, Elements<Word> x, int64_t tiles) {
  lorry::cuda::begin_programmatic();
  int64_t mine = 0;
  for (int64_t tile = tiles - 1 - blockIdx.x; tile >= 0; tile -= gridDim.x) {
    uint32_t bits[kRuns];
#pragma unroll
    for (int r = 0; r < kRuns; ++r) bits[r] = x.run(tile * kTile<Word> + start_of<Word>(r));
#pragma unroll
    for (int r = 0; r < kRuns; ++r) mine += __popc(bits[r]);
  }
  uint64_t all;
  block_prefix(static_cast<uint64_t>(mine), all);
  if (threadIdx.x == 0) counts[blockIdx.x] = static_cast<int64_t>(all);
}

/// Converts a row-major position to coordinates.
struct Coordinates {
  int rank;
  bool narrow;
  Divider dividers[kMaxRank];
  int64_t sizes[kMaxRank];

  void addresses(auto& visit) const { visit(); }
  explicit Coordinates(const Layout& x) : rank(x.rank), narrow(x.numel() <= INT32_MAX) {
    for (int d = 0; d < rank; ++d) {
      sizes[d] = x.sizes[d];
      if (narrow && sizes[d] > 0) dividers[d] = Divider(sizes[d]);
    }
  }
  __device__ void write(int64_t* to, int64_t position) const {
    if (narrow) {
      auto rest = static_cast<uint32_t>(position);
      for (int d = rank - 1; d > 0; --d) {
        const uint32_t next = dividers[d](rest);
        to[d] = rest - next * dividers[d].divisor;
        rest = next;
      }
      to[0] = rest;
    } else {
      for (int d = rank - 1; d > 0; --d) {
        to[d] = position % sizes[d];
        position /= sizes[d];
      }
      to[0] = position;
    }
  }
};

/// Where coordinates go, and how many there are (unless null).
struct Listed {
  int64_t* out;
  int64_t rows;
  int64_t* count;

  void addresses(auto& visit) const { visit(out, count); }
};

/// A block lists a tile. The block of the last tile knows how many there are.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    list_tiles(Listed listed, Elements<Word> x, Coordinates coordinates, Tiles tiles) {
  lorry::cuda::begin_programmatic();
  static_assert(kTile<Word> <= 1 << 16 && kThreads * kRun<Word> < 1 << 16);
  __shared__ uint16_t found[kTile<Word>];
  __shared__ int64_t start;
  const int64_t tile = tiles.take(), origin = tile * kTile<Word>;
  uint32_t bits[kRuns];
  uint64_t counts = 0, all;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) bits[r] = x.run(origin + start_of<Word>(r));
#pragma unroll
  for (int r = 0; r < kRuns; ++r) counts |= static_cast<uint64_t>(__popc(bits[r])) << (16 * r);
  const uint64_t before = block_prefix(counts, all);
  uint32_t total = 0;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    uint32_t to = total + count_at(before, r);
    for (uint32_t rest = bits[r]; rest != 0; rest &= rest - 1)
      found[to++] = static_cast<uint16_t>(start_of<Word>(r) + __ffs(static_cast<int>(rest)) - 1);
    total += count_at(all, r);
  }
  if (threadIdx.x < 32) {
    const uint64_t earlier = tiles.before(tile, total);
    if (threadIdx.x == 0) {
      start = static_cast<int64_t>(earlier);
      if (listed.count != nullptr && tile == gridDim.x - 1) *listed.count = start + total;
    }
  }
  __syncthreads();
  const int64_t room = listed.rows - start;
  for (uint32_t i = threadIdx.x; i < total && i < room; i += kThreads)
    coordinates.write(listed.out + (start + i) * coordinates.rank, origin + found[i]);
}

/// Fills the rows that are left, `elements` being the size of all.
__global__ void __launch_bounds__(kThreads)
    fill_rest(int64_t* out, int64_t elements, int rank, const int64_t* count, int64_t fill) {
  lorry::cuda::begin_programmatic();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = *count * rank + int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += step) out[i] = fill;
}

/// Calls f with the elements of x as words of their width.
template <class F>
void visit_elements(const Array& x, F&& f) {
  const auto with = [&]<class Word>(Word all) {
    const Word sign = is_floating(x.dtype) ? static_cast<Word>(Word(1) << (8 * sizeof(Word) - 1)) : Word(0);
    f(Elements<Word>{x.as<const Word>(), x.numel(), static_cast<Word>(all & ~sign), aligned16(x.data)});
  };
  switch (size_of(x.dtype)) {
    case 1:
      return with(static_cast<uint8_t>(~0u));
    case 2:
      return with(static_cast<uint16_t>(~0u));
    case 4:
      return with(~uint32_t{0});
    default:
      return with(~uint64_t{0});
  }
}

template <class Word>
int64_t tiles_of(const Elements<Word>& x) {
  return (x.count + kTile<Word> - 1) / kTile<Word>;
}

/// As many blocks as run at once.
int64_t resident_blocks(Stream stream) {
  return int64_t{8} * lorry::cuda::properties(stream.device.index).multiprocessors;
}

}  // namespace

int64_t count_nonzero(const Array& x, Stream stream) {
  if (x.numel() == 0) return 0;
  HostReadback readback(stream);
  int64_t blocks = 0;
  visit_elements(x, [&]<class Word>(const Elements<Word>& elements) {
    const int64_t tiles = tiles_of(elements);
    blocks = std::min<int64_t>({tiles, resident_blocks(stream), HostReadback::kWords});
    lorry::cuda::launch(stream, {static_cast<unsigned>(blocks), kThreads}, count_tiles<Word>, readback.words(),
                        elements, tiles);
  });
  const int64_t* const counts = readback.wait();
  int64_t total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += counts[b];
  return total;
}

void nonzero(const NonzeroArgs& args, Stream stream) {
  const int64_t elements = args.out.numel();
  if (elements == 0 && args.count == nullptr) return;
  const Listed listed{args.out.as<int64_t>(), elements == 0 ? 0 : args.out.size(0), args.count};
  const Coordinates coordinates(args.x.layout);
  visit_elements(args.x, [&]<class Word>(const Elements<Word>& x) {
    const int64_t tiles = std::max<int64_t>(tiles_of(x), 1);  // that of an empty x counts none
    const TileMemory memory(tiles, stream);
    lorry::cuda::launch(stream, {static_cast<unsigned>(tiles), kThreads}, list_tiles<Word>, listed, x, coordinates,
                        memory.tiles());
  });
  if (elements == 0 || args.count == nullptr) return;
  const int64_t blocks = std::min<int64_t>((elements + kThreads - 1) / kThreads, resident_blocks(stream));
  lorry::cuda::launch(stream, {static_cast<unsigned>(blocks), kThreads}, fill_rest, listed.out, elements,
                      coordinates.rank, static_cast<const int64_t*>(args.count), args.fill);
}

}  // namespace lorry::kernels::cuda
