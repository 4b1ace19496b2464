#pragma once

// Random kernels. Each fills a contiguous array with the draw named by a key, by the mapping of formula/philox.h; how
// an element's words become its value is in formula/random.h, so every device gives the same bits.

#include "lorry/device/stream.h"
#include "lorry/formula/philox.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

using formula::RandomKey;

struct RandomKernels {
  /// low + u (high - low) for a floating `out`, u uniform in [0, 1) with the precision of the dtype; a sum that rounds
  /// to `high` becomes `low`. One word an element, two for f64.
  void (*uniform)(const Array& out, RandomKey key, double low, double high, Stream stream);
  /// mean + std z for a floating `out`; elements 2k and 2k + 1 share their words (Box-Muller). One word an element, two
  /// for f64.
  void (*normal)(const Array& out, RandomKey key, double mean, double std, Stream stream);
  /// low + a whole number in [0, range), converted to the dtype of `out`; a range of 0 means 2^64. Two words an
  /// element.
  void (*integers)(const Array& out, RandomKey key, int64_t low, uint64_t range, Stream stream);
  /// 1 with probability p, else 0: word < ceil(p 2^32). One word an element.
  void (*bernoulli)(const Array& out, RandomKey key, double p, Stream stream);
  /// The same with a probability for each element, contiguous and floating. Unless all lie in [0, 1] the CPU returns
  /// false, having written nothing; CUDA, which does not wait, returns true, writes 0 for those outside, and reports
  /// one (device/cuda/device_assert.h).
  bool (*bernoulli_each)(const Array& out, const Array& p, RandomKey key, Stream stream);
  /// mask = bernoulli(keep); out = mask ? x * scale : 0. All contiguous; x and out of one floating dtype, mask boolean.
  void (*dropout)(const Array& out, const Array& mask, const Array& x, RandomKey key, double keep, double scale,
                  Stream stream);
  /// The numbers 0 to n - 1 in the order of (64-bit word of element i, i). `out` is i64.
  void (*permutation)(const Array& out, RandomKey key, Stream stream);
  /// Draws `out.size(1)` columns for each row of the contiguous f64 `weights`, in proportion to them, into the i64
  /// `out`. With replacement: the first column whose running sum exceeds u times the row's sum, u drawn for each
  /// element of `out`. Without: the columns with the smallest -ln(u) / weight, u drawn for each element of `weights`
  /// (Efraimidis, Spirakis 2006). Rows are checked by the caller.
  void (*multinomial)(const Array& out, const Array& weights, bool replacement, RandomKey key, Stream stream);
};

}  // namespace lorry::kernels
