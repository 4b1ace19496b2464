// Transposed copies. The source is contiguous along one dimension (y), the result along another (x). A tile is first
// transposed into a small buffer, block by block in registers, reading the source along y; then the buffer's rows are
// written along x. So each cache line is read or written as a whole, whatever the distance between the rows, and large
// results can be written past the caches: their lines are not read before they are written.

#include <algorithm>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/move_runs.h"
#include "lorry/kernels/cpu/common/walk.h"
#include "lorry/kernels/cpu/pointwise/moves.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kGrain = 65536;                 ///< elements worth a second thread
constexpr int64_t kTile = 16384;                  ///< bytes of a tile: with the source's lines it stays in the L1 cache
constexpr int64_t kStreamed = int64_t{16} << 20;  ///< bytes of a result that is written past the caches

/// The size of tiles: rows of at least two cache lines, and of 64 elements, if there are as many; columns as long as
/// the buffer allows. If columns are short, rows are longer.
struct TileSize {
  int64_t width, height;

  TileSize(int64_t full_width, int64_t full_height, int64_t element) {
    const int64_t elements = kTile / element;
    width = std::min(full_width, std::max<int64_t>(64, 2 * kCacheLine / element));
    height = std::min(full_height, elements / width);
    width = std::min(full_width, std::max(width, elements / height / kCacheLine * kCacheLine));
  }
};

/// One transposed copy.
class Transposition {
 public:
  Transposition(const Iteration& it, int other, const Array& to, const Array& from)
      : it_(it),
        other_(other),
        to_(to),
        from_(from),
        full_width_(it.sizes[0]),
        full_height_(it.sizes[other]),
        size_(full_width_, full_height_, size_of(from.dtype)),
        across_((full_width_ + size_.width - 1) / size_.width),
        down_((full_height_ + size_.height - 1) / size_.height),
        streams_(from.dtype == to.dtype && it.strides[0][0] == 1 && to.numel() * size_of(to.dtype) >= kStreamed),
        convert_(element_converter(from.dtype, to.dtype)) {}

  void run() const {
    const int64_t planes = it_.numel() / (full_width_ * full_height_);
    const int64_t grain = std::max<int64_t>(1, kGrain / (size_.width * size_.height));
    visit_size(size_of(from_.dtype), [&]<class Word>(Type<Word>) {
      lorry::cpu::parallel_for(planes * down_ * across_, grain, [&](int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; ++tile) run_tile<Word>(tile);
        if (streams_) LORRY_SIMD_CHOOSE(stream_end)();
      });
    });
  }

 private:
  /// Tiles follow each other along the result's rows.
  template <class Word>
  void run_tile(int64_t tile) const {
    int64_t offsets[2];
    outer_offsets(it_, other_, tile / (across_ * down_), offsets);
    const int64_t left = tile % across_ * size_.width, top = tile / across_ % down_ * size_.height;
    const int64_t width = std::min(size_.width, full_width_ - left),
                  height = std::min(size_.height, full_height_ - top);
    const int64_t pitch = it_.strides[1][0];
    const Word* const from = from_.as<Word>() + offsets[1] + left * pitch + top;
    alignas(kCacheLine) Word buffer[kTile / sizeof(Word)];
    LORRY_SIMD_CHOOSE(transpose_tile)(from, pitch, buffer, width, width, height, sizeof(Word));
    if (streams_ && to_.dtype == kBool) convert_(buffer, 1, buffer, 1, width * height);
    if (left + size_.width < full_width_) prefetch(from + width * pitch, pitch, height);
    const int64_t row = it_.strides[0][other_];
    write(offsets[0] + left * it_.strides[0][0] + top * row, row, reinterpret_cast<const char*>(buffer), width, height);
  }

  /// The next tile's lines lie too far apart for the processor to foresee them.
  template <class Word>
  void prefetch(const Word* from, int64_t pitch, int64_t height) const {
    for (int64_t x = 0; x < size_.width; ++x)
      for (int64_t y = 0; y < height; y += kCacheLine / static_cast<int64_t>(sizeof(Word)))
        __builtin_prefetch(from + x * pitch + y);
  }

  void write(int64_t offset, int64_t row, const char* buffer, int64_t width, int64_t height) const {
    const int64_t step = it_.strides[0][0];
    const bool adjacent = step == 1 && row == width;  // then the tile is one run of the result
    const int64_t rows = adjacent ? 1 : height, length = adjacent ? width * height : width;
    const int64_t bytes = length * size_of(from_.dtype);
    for (int64_t y = 0; y < rows; ++y) {
      if (streams_)
        LORRY_SIMD_CHOOSE(stream_run)(at(to_, offset + y * row), buffer + y * bytes, bytes);
      else
        convert_(buffer + y * bytes, 1, at(to_, offset + y * row), step, length);
    }
  }

  const Iteration& it_;
  const int other_;
  const Array &to_, &from_;
  const int64_t full_width_, full_height_;
  const TileSize size_;
  const int64_t across_, down_;  ///< the number of tiles
  const bool streams_;
  const Convert convert_;
};

}  // namespace

int transposed_dimension(const Iteration& it) {
  if (it.strides[1][0] <= 1) return 0;
  for (int d = 1; d < it.rank; ++d)
    if (it.strides[1][d] == 1 && it.sizes[d] > 1) return d;
  return 0;
}

void copy_transposed(const Iteration& it, int other, const Array& to, const Array& from) {
  Transposition(it, other, to, from).run();
}

}  // namespace lorry::kernels::cpu
