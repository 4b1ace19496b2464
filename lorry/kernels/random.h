#pragma once

// Random kernels. Each fills a contiguous array with the draw that a key identifies. formula/philox.h maps elements to
// random words, formula/random.h maps words to values, so all devices give the same bits.

#include "lorry/device/stream.h"
#include "lorry/formula/philox.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

using formula::RandomKey;

struct RandomKernels {
  /// Floating `out`: low + u (high - low), u uniform in [0, 1) with the precision of the dtype. A sum that rounds to
  /// `high` is replaced by `low`. One word per element, two for f64.
  void (*uniform)(const Array& out, RandomKey key, double low, double high, Stream stream);
  /// Floating `out`: mean + std z. Elements 2k and 2k + 1 are made from the same words (Box-Muller). One word per
  /// element, two for f64.
  void (*normal)(const Array& out, RandomKey key, double mean, double std, Stream stream);
  /// low + an integer in [0, range), converted to the dtype of `out`; a range of 0 means 2^64. Two words per element.
  void (*integers)(const Array& out, RandomKey key, int64_t low, uint64_t range, Stream stream);
  /// 1 with probability p, else 0: word < ceil(p 2^32). One word per element.
  void (*bernoulli)(const Array& out, RandomKey key, double p, Stream stream);
  /// The same with one probability per element, contiguous and floating. If one is outside [0, 1], the CPU writes
  /// nothing and returns false. CUDA does not wait: it returns true, writes 0 for these elements, and reports one of
  /// them (device/cuda/device_assert.h).
  bool (*bernoulli_each)(const Array& out, const Array& p, RandomKey key, Stream stream);
  /// mask = bernoulli(keep); out = mask ? x * scale : 0. All contiguous; x and out of one floating dtype, mask boolean.
  void (*dropout)(const Array& out, const Array& mask, const Array& x, RandomKey key, double keep, double scale,
                  Stream stream);
  /// The numbers 0 to n - 1, sorted by (64-bit word of element i, i). `out` is i64.
  void (*permutation)(const Array& out, RandomKey key, Stream stream);
  /// Draws `out.size(1)` columns per row of the contiguous f64 `weights`, in proportion to them, into the i64 `out`.
  /// With replacement: the first column whose running sum exceeds u times the row's sum, with one u per element of
  /// `out`. Without: the columns with the smallest -ln(u) / weight, with one u per element of `weights` (Efraimidis,
  /// Spirakis 2006). The caller checks the rows.
  void (*multinomial)(const Array& out, const Array& weights, bool replacement, RandomKey key, Stream stream);
};

}  // namespace lorry::kernels
