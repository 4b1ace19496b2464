// Copies. Contiguous copies are divided among threads as runs; strided ones run row by row along the result's innermost
// dimension. If the source is contiguous along another dimension (a transpose), rows are divided into tiles, so that
// each cache line of the source is used completely while it is cached.

#include "lorry/kernels/pointwise.h"

#include <algorithm>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kGrain = 65536;  ///< elements worth a second thread
constexpr int64_t kTile = 32;      ///< side of a transposed tile: 32 rows of at most 256 bytes on both sides

char* at(const Array& x, int64_t offset) { return x.as<char>() + offset * size_of(x.dtype); }

/// The dimension other than the innermost along which the source is contiguous; 0 if there is none.
int transposed_dimension(const Iteration& it) {
  if (it.strides[0][0] != 1 || it.strides[1][0] <= 1) return 0;
  for (int d = 1; d < it.rank; ++d)
    if (it.strides[1][d] == 1 && it.sizes[d] > 1) return d;
  return 0;
}

/// The offsets at position r of the iteration over all dimensions except the innermost and `except`.
void outer_offsets(const Iteration& it, int except, int64_t r, int64_t offsets[2]) {
  offsets[0] = offsets[1] = 0;
  for (int d = 1; d < it.rank; ++d) {
    if (d == except) continue;
    const int64_t index = r % it.sizes[d];
    r /= it.sizes[d];
    for (int k = 0; k < 2; ++k) offsets[k] += index * it.strides[k][d];
  }
}

void copy_rows(const Iteration& it, Convert convert, const Array& to, const Array& from, int64_t n) {
  const int64_t row = it.sizes[0], rows = n / row;
  lorry::cpu::parallel_for(rows, std::max<int64_t>(1, kGrain / row), [&](int64_t begin, int64_t end) {
    int64_t offsets[2];
    for (int64_t r = begin; r < end; ++r) {
      outer_offsets(it, 0, r, offsets);
      convert(at(from, offsets[1]), it.strides[1][0], at(to, offsets[0]), it.strides[0][0], row);
    }
  });
}

void copy_transposed(const Iteration& it, int other, Convert convert, const Array& to, const Array& from, int64_t n) {
  const int64_t width = it.sizes[0], height = it.sizes[other], planes = n / (width * height);
  const int64_t bands = (height + kTile - 1) / kTile;
  lorry::cpu::parallel_for(planes * bands, std::max<int64_t>(1, kGrain / (kTile * width)),
                           [&](int64_t begin, int64_t end) {
                             int64_t offsets[2];
                             for (int64_t b = begin; b < end; ++b) {
                               outer_offsets(it, other, b / bands, offsets);
                               const int64_t top = b % bands * kTile, bottom = std::min(top + kTile, height);
                               for (int64_t left = 0; left < width; left += kTile) {
                                 const int64_t length = std::min(kTile, width - left);
                                 for (int64_t y = top; y < bottom; ++y)
                                   convert(at(from, offsets[1] + left * it.strides[1][0] + y), it.strides[1][0],
                                           at(to, offsets[0] + left + y * it.strides[0][other]), 1, length);
                               }
                             }
                           });
}

void copy(const Array& to, const Array& from, Stream) {
  const int64_t n = to.numel();
  if (n == 0) return;
  const Layout layouts[] = {to.layout, from.layout};
  const Iteration it = collapse(layouts, 2);
  const Convert convert = converter(from.dtype, to.dtype);
  if (it.rank == 1) {
    lorry::cpu::parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      convert(at(from, begin * it.strides[1][0]), it.strides[1][0], at(to, begin * it.strides[0][0]), it.strides[0][0],
              end - begin);
    });
  } else if (const int other = transposed_dimension(it)) {
    copy_transposed(it, other, convert, to, from, n);
  } else {
    copy_rows(it, convert, to, from, n);
  }
}

void fill(const Array& to, const void* value, DType dtype, Stream stream) {
  alignas(8) char element[8];
  converter(dtype, to.dtype)(value, 0, element, 1, 1);
  Array from{element, to.dtype, to.layout};
  std::fill_n(from.layout.strides, from.layout.rank, 0);
  copy(to, from, stream);
}

}  // namespace

const CopyKernels& copy_kernels() {
  static constexpr CopyKernels kKernels{.copy = copy, .fill = fill};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
