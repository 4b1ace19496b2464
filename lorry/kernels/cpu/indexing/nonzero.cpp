// The coordinates of elements that are not zero. Elements are looked at 64 at a time, as the bits of one number:
// listing the set bits needs no branch for each element, whose outcome the processor could only guess.

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/compute.h"
#include "lorry/kernels/cpu/indexing/indexing.h"

namespace lorry::kernels::cpu {
namespace {
using lorry::cpu::for_each_chunk;

constexpr int64_t kChunk = int64_t{1} << 16;
constexpr int64_t kBits = 64;

/// The type as which elements are read: a bool is a byte, and every byte but 0 is true.
template <class T>
using Bytes = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class T>
bool is_nonzero(T value) {
  if constexpr (std::is_same_v<Accumulate<T>, T>) {
    return value != T(0);
  } else {
    return static_cast<float>(value) != 0.0f;
  }
}

/// Bit i: whether element i is not zero.
template <class T>
uint64_t nonzero_bits(const T* x, int64_t count) {
  uint8_t flags[kBits] = {};
  if (count == kBits) {
    for (int64_t i = 0; i < kBits; ++i) flags[i] = is_nonzero(x[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) flags[i] = is_nonzero(x[i]);
  }
  uint64_t bits = 0;
  for (int64_t i = 0; i < kBits; i += 8) {
    // The product's highest byte has the lowest bits of the eight bytes.
    uint64_t eight;
    std::memcpy(&eight, flags + i, sizeof eight);
    bits |= (eight * 0x0102040810204080) >> 56 << i;
  }
  return bits;
}

/// Calls body(bits, first element) for the elements [begin, end), 64 at a time.
template <class T, class F>
void for_each_bits(const T* data, int64_t begin, int64_t end, F&& body) {
  for (int64_t i = begin; i < end; i += kBits) body(nonzero_bits(data + i, std::min(kBits, end - i)), i);
}

/// The number of non-zero elements in each chunk.
std::vector<int64_t> chunk_counts(const Array& x) {
  const int64_t n = x.numel();
  std::vector<int64_t> counts(static_cast<size_t>((n + kChunk - 1) / kChunk));
  visit(x.dtype, [&]<class T>(Type<T>) {
    for_each_chunk(n, kChunk, [&](int64_t chunk, int64_t begin, int64_t end) {
      int64_t count = 0;
      for_each_bits(x.as<const Bytes<T>>(), begin, end, [&](uint64_t bits, int64_t) { count += std::popcount(bits); });
      counts[static_cast<size_t>(chunk)] = count;
    });
  });
  return counts;
}

/// The coordinates of elements of a row-major shape, given in ascending order: only the first element of a row needs
/// divisions.
class Coordinates {
 public:
  explicit Coordinates(const Layout& layout) : layout_(layout), last_(layout.rank - 1) {}

  void write(int64_t element, int64_t* to) {
    if (element >= end_) enter_row(element);
    for (int d = 0; d < last_; ++d) to[d] = row_[d];
    to[last_] = element - begin_;
  }

 private:
  void enter_row(int64_t element) {
    const int64_t width = layout_.sizes[last_];
    int64_t rest = element / width;
    begin_ = rest * width;
    end_ = begin_ + width;
    for (int d = last_ - 1; d >= 0; --d) {
      row_[d] = rest % layout_.sizes[d];
      rest /= layout_.sizes[d];
    }
  }

  const Layout& layout_;
  const int last_;
  int64_t begin_ = 0, end_ = 0;  ///< the elements of the current row
  int64_t row_[kMaxRank];
};

/// Lists the coordinates of the non-zero elements of chunks, of which chunk k's first is number first[k] of all.
void list_nonzero(const NonzeroArgs& args, const std::vector<int64_t>& first) {
  const Array& x = args.x;
  const int rank = x.layout.rank;
  const int64_t rows = args.out.size(0);
  visit(x.dtype, [&]<class T>(Type<T>) {
    for_each_chunk(x.numel(), kChunk, [&](int64_t chunk, int64_t begin, int64_t end) {
      const int64_t row = first[static_cast<size_t>(chunk)];
      if (row >= rows) return;
      int64_t* to = args.out.as<int64_t>() + row * rank;
      const int64_t* const full = args.out.as<int64_t>() + rows * rank;
      Coordinates coordinates(x.layout);
      for_each_bits(x.as<const Bytes<T>>(), begin, end, [&](uint64_t bits, int64_t at) {
        for (; bits != 0 && to != full; bits &= bits - 1, to += rank)
          coordinates.write(at + std::countr_zero(bits), to);
      });
    });
  });
}

}  // namespace

int64_t count_nonzero(const Array& x, Stream) {
  int64_t total = 0;
  for (const int64_t count : chunk_counts(x)) total += count;
  return total;
}

void nonzero(const NonzeroArgs& args, Stream) {
  std::vector<int64_t> first = chunk_counts(args.x);
  int64_t total = 0;
  for (int64_t& count : first) total += std::exchange(count, total);
  if (args.count != nullptr) *args.count = total;
  if (args.out.numel() == 0) return;
  list_nonzero(args, first);
  int64_t* const out = args.out.as<int64_t>();
  std::fill(out + std::min(total, args.out.size(0)) * args.x.layout.rank, out + args.out.numel(), args.fill);
}

}  // namespace lorry::kernels::cpu
