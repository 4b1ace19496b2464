// Copies. Without a change of type, elements are copied as words of up to 16 bytes: the iteration is rewritten in the
// widest words that its strides allow, so slices and permutations with contiguous rows are copied like contiguous
// memory. If the source is contiguous along another dimension than the result, tiles go through shared memory
// (transpose.h). A copy that changes the type is the pointwise formula x -> x.

#include "lorry/kernels/pointwise.h"

#include <cstring>

#include "lorry/device/device.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cuda/pointwise/join.h"
#include "lorry/kernels/cuda/pointwise/pointwise_kernels.h"
#include "lorry/kernels/cuda/pointwise/strided.h"
#include "lorry/kernels/cuda/pointwise/transpose.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kBlock = 256;
constexpr int kFlight = 4;                    ///< words in flight per thread
constexpr int64_t kLarge = int64_t{1} << 20;  ///< bytes; larger contiguous memory is copied by the driver
constexpr int64_t kShortestSide = 8;          ///< a transposed dimension shorter than this is not worth tiles

// ---- words ----------------------------------------------------------------------------------------------------------

/// The argument of copy_words.
struct WordCopy {
  char* to;
  const char* from;  ///< null: the pattern
  uint32_t n;
  uint4 pattern;  ///< the value of a fill, repeated
  StridedIndexer<2, uint32_t> offsets;

  void addresses(auto& visit) const { visit(to, from); }
};

/// Reads and writes each word once; the words of a warp are adjacent along the result's rows.
template <class Word>
__global__ void __launch_bounds__(kBlock) copy_words(const __grid_constant__ WordCopy call) {
  lorry::cuda::begin_programmatic();
  const uint32_t first = blockIdx.x * (kBlock * kFlight) + threadIdx.x;
  const Word pattern = *reinterpret_cast<const Word*>(&call.pattern);
  Word words[kFlight];
  uint32_t to[kFlight];
#pragma unroll
  for (int u = 0; u < kFlight; ++u) {
    const uint32_t position = first + u * kBlock;
    if (position >= call.n) continue;
    uint32_t at[2];
    call.offsets(position, at);
    to[u] = at[0];
    words[u] = call.from == nullptr ? pattern : reinterpret_cast<const Word*>(call.from)[static_cast<int32_t>(at[1])];
  }
#pragma unroll
  for (int u = 0; u < kFlight; ++u)
    if (first + u * kBlock < call.n) reinterpret_cast<Word*>(call.to)[to[u]] = words[u];
}

/// A copy or a fill, in words of `size` bytes: an iteration over the result and the source (null for a fill).
struct Movement {
  Iteration it;
  char* to;
  const char* from;
  int size;
  uint4 pattern;
};

/// Merges pairs of words into one while addresses, strides and the row's length allow it, up to 16 bytes.
void widen_words(Movement& m) {
  Iteration& it = m.it;
  while (m.size < 16) {
    const auto wide = static_cast<uintptr_t>(2 * m.size);
    bool even =
        it.sizes[0] % 2 == 0 && (reinterpret_cast<uintptr_t>(m.to) | reinterpret_cast<uintptr_t>(m.from)) % wide == 0;
    for (int k = 0; k < (m.from == nullptr ? 1 : 2); ++k) {
      even = even && it.strides[k][0] == 1;
      for (int d = 1; d < it.rank; ++d) even = even && it.strides[k][d] % 2 == 0;
    }
    if (!even) return;
    it.sizes[0] /= 2;
    for (int k = 0; k < 2; ++k)
      for (int d = 1; d < it.rank; ++d) it.strides[k][d] /= 2;
    m.size *= 2;
    if (it.sizes[0] > 1 || it.rank == 1) continue;
    // The row is one word now, so the next dimension becomes the innermost.
    --it.rank;
    for (int d = 0; d < it.rank; ++d) {
      it.sizes[d] = it.sizes[d + 1];
      for (int k = 0; k < 2; ++k) it.strides[k][d] = it.strides[k][d + 1];
    }
  }
}

void run_words(const Movement& m, Stream stream) {
  const WordCopy call{.to = m.to,
                      .from = m.from,
                      .n = static_cast<uint32_t>(m.it.numel()),
                      .pattern = m.pattern,
                      .offsets = StridedIndexer<2, uint32_t>(m.it)};
  const lorry::cuda::Shape shape{(call.n + kBlock * kFlight - 1) / (kBlock * kFlight), kBlock};
  switch (m.size) {
    case 1:
      return lorry::cuda::launch(stream, shape, copy_words<uint8_t>, call);
    case 2:
      return lorry::cuda::launch(stream, shape, copy_words<uint16_t>, call);
    case 4:
      return lorry::cuda::launch(stream, shape, copy_words<uint32_t>, call);
    case 8:
      return lorry::cuda::launch(stream, shape, copy_words<uint2>, call);
    default:
      return lorry::cuda::launch(stream, shape, copy_words<uint4>, call);
  }
}

// ---- transposes -----------------------------------------------------------------------------------------------------

/// The dimension other than the innermost along which the source is contiguous, if tiles pay; else 0.
int transposed_dimension(const Movement& m) {
  const Iteration& it = m.it;
  if (m.from == nullptr || m.size > 8 || it.strides[0][0] != 1 || it.strides[1][0] <= 1 || it.sizes[0] < kShortestSide)
    return 0;
  for (int d = 1; d < it.rank; ++d)
    if (it.strides[1][d] == 1 && it.sizes[d] >= kShortestSide) return d;
  return 0;
}

/// Calls launch(tiles, blocks) for tiles of `side` x `side` words.
template <class Word, class F>
void run_tiles(const Movement& m, int other, int64_t side, F&& launch) {
  constexpr int64_t kLength = kRun<Word>;
  const Iteration& it = m.it;
  Iteration planes;
  planes.operands = 2;
  bool vectors[2] = {it.strides[0][other] % kLength == 0 && aligned16(m.to),
                     it.strides[1][0] % kLength == 0 && aligned16(m.from)};
  for (int d = 1; d < it.rank; ++d) {
    if (d == other) continue;
    planes.sizes[planes.rank] = it.sizes[d];
    for (int k = 0; k < 2; ++k) {
      planes.strides[k][planes.rank] = it.strides[k][d];
      vectors[k] = vectors[k] && it.strides[k][d] % kLength == 0;
    }
    ++planes.rank;
  }
  if (planes.rank == 0) planes.rank = 1, planes.sizes[0] = 1, planes.strides[0][0] = planes.strides[1][0] = 0;
  const int64_t across = (it.sizes[0] + side - 1) / side, down = (it.sizes[other] + side - 1) / side;
  const int64_t band = std::min(kTransposeBand, down);
  launch(Transposition{.to = m.to,
                       .from = m.from,
                       .width = static_cast<uint32_t>(it.sizes[0]),
                       .height = static_cast<uint32_t>(it.sizes[other]),
                       .to_stride = static_cast<uint32_t>(it.strides[0][other]),
                       .from_stride = static_cast<uint32_t>(it.strides[1][0]),
                       .to_vectors = vectors[0],
                       .from_vectors = vectors[1],
                       .down = static_cast<uint32_t>(down),
                       .band = static_cast<uint32_t>(band),
                       .plane_tiles = Divider(across * down),
                       .band_tiles = Divider(across * band),
                       .planes = StridedIndexer<2, uint32_t>(planes)},
         static_cast<unsigned>(across * down * planes.numel()));
}

template <class Word>
void run_squares(const Movement& m, int other, Stream stream) {
  run_tiles<Word>(m, other, kTransposeSide<Word>, [&](const Transposition& call, unsigned blocks) {
    lorry::cuda::launch(stream, {blocks, kTransposeBlock}, move_tiles<Word>, call);
  });
}

void run_halves(const Movement& m, int other, Stream stream) {
  run_tiles<uint16_t>(m, other, kHalvesSide, [&](const Transposition& call, unsigned blocks) {
    lorry::cuda::launch(stream, {blocks, kHalvesBlock}, move_halves, call);
  });
}

// ---- one value ------------------------------------------------------------------------------------------------------

/// Writes the pattern to `runs` runs of 16 bytes from `first` on, a multiple of 16, and to `head` bytes before and
/// `tail` bytes after them.
__global__ void __launch_bounds__(kBlock) fill_runs(char* first, int64_t runs, int head, int tail, uint4 pattern) {
  lorry::cuda::begin_programmatic();
  const int64_t begin = int64_t{blockIdx.x} * (kBlock * kFlight) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kFlight; ++u)
    if (begin + u * kBlock < runs) reinterpret_cast<uint4*>(first)[begin + u * kBlock] = pattern;
  const int edge = static_cast<int>(threadIdx.x);
  if (blockIdx.x + 1 != gridDim.x || edge >= head + tail) return;
  const int64_t byte = edge < head ? int64_t{edge} - head : runs * 16 + edge - head;
  const uint32_t in_run = static_cast<uint32_t>(byte & 15);
  const uint32_t word = in_run < 8 ? (in_run < 4 ? pattern.x : pattern.y) : in_run < 12 ? pattern.z : pattern.w;
  first[byte] = static_cast<char>(word >> 8 * (in_run % 4));
}

void run_fill(char* to, int64_t bytes, uint4 pattern, Stream stream) {
  const int64_t head = std::min(bytes, static_cast<int64_t>((0 - reinterpret_cast<uintptr_t>(to)) & 15));
  const int64_t runs = (bytes - head) / 16, blocks = (runs + kBlock * kFlight - 1) / (kBlock * kFlight);
  lorry::cuda::launch(stream, {static_cast<unsigned>(std::max<int64_t>(blocks, 1)), kBlock}, fill_runs, to + head, runs,
                      static_cast<int>(head), static_cast<int>((bytes - head) % 16), pattern);
}

// ---- the table ------------------------------------------------------------------------------------------------------

char* at(const Array& x, int64_t offset) { return x.as<char>() + offset * size_of(x.dtype); }

/// `from` is null for a fill with the pattern.
void move(const Array& to, const Array* from, const Iteration& it, uint4 pattern, Stream stream) {
  for_each_narrow(it, [&](const Iteration& part, const int64_t* starts) {
    Movement m{.it = part,
               .to = at(to, starts[0]),
               .from = from != nullptr ? at(*from, starts[1]) : nullptr,
               .size = static_cast<int>(size_of(to.dtype)),
               .pattern = pattern};
    widen_words(m);
    const int other = transposed_dimension(m);
    if (other == 0) return run_words(m, stream);
    switch (m.size) {
      case 1:
        return run_squares<uint8_t>(m, other, stream);
      case 2:
        return run_halves(m, other, stream);
      case 4:
        return run_squares<uint32_t>(m, other, stream);
      default:
        return run_squares<uint64_t>(m, other, stream);
    }
  });
}

struct Identity {
  template <class V>
  LORRY_INLINE V operator()(V x) const {
    return x;
  }
};

/// Converts through a type that can represent every value of the source; the result is the same as that of a direct
/// conversion.
void convert(const Array& to, const Array& from, const Iteration& it, Stream stream) {
  const auto by_way_of = [&]<class C>(Type<C>) {
    launch_strided<1, C>(&strided<Identity, 1, C>, it, StridedOperand(to.data, to.dtype),
                         {StridedOperand(from.data, from.dtype)}, {C()}, stream);
  };
  const bool fits_f32 =
      from.dtype != kF64 && (is_floating(from.dtype) || (size_of(from.dtype) <= 2 && is_floating(to.dtype)));
  if (fits_f32) return by_way_of(Type<float>());
  return from.dtype == kF64 ? by_way_of(Type<double>()) : by_way_of(Type<int64_t>());
}

bool is_run(const Iteration& it, int operand) {
  return it.rank == 1 && (it.strides[operand][0] == 1 || it.sizes[0] == 1);
}

void copy(const Array& to, const Array& from, Stream stream) {
  const int64_t n = to.numel();
  if (n == 0 || (to.data == from.data && to.dtype == from.dtype)) return;
  const Layout layouts[] = {to.layout, from.layout};
  const Iteration it = collapse(layouts, 2);
  if (to.dtype != from.dtype) return convert(to, from, it, stream);
  const int64_t bytes = n * size_of(to.dtype);
  if (bytes >= kLarge && is_run(it, 0) && is_run(it, 1))
    return device::copy(to.data, stream.device, from.data, stream.device, bytes, stream);
  move(to, &from, it, {}, stream);
}

void fill(const Array& to, const void* value, DType dtype, Stream stream) {
  const int64_t n = to.numel(), size = size_of(to.dtype);
  if (n == 0) return;
  alignas(16) char repeated[16];
  converter(dtype, to.dtype)(value, 0, repeated, 1, 16 / size);
  uint4 pattern;
  std::memcpy(&pattern, repeated, sizeof(pattern));
  if (to.layout.is_contiguous()) return run_fill(to.as<char>(), n * size, pattern, stream);
  const Layout layouts[] = {to.layout};
  Iteration it = collapse(layouts, 1);
  if (is_run(it, 0)) return run_fill(to.as<char>(), n * size, pattern, stream);
  it.operands = 2;
  std::fill_n(it.strides[1], it.rank, 0);
  move(to, nullptr, it, pattern, stream);
}

}  // namespace

const CopyKernels& copy_kernels() {
  static constexpr CopyKernels kKernels{.copy = copy, .fill = fill, .join = join};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
