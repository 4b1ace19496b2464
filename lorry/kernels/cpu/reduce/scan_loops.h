#pragma once

// The vector loops of scans over f32 and f64. They do the same additions and multiplications as a loop over a line.

#include <cstdint>

namespace lorry::kernels::cpu {

inline constexpr int64_t kScanLines = 8;    // lines that are multiplied at once
inline constexpr int64_t kScanBlock = 512;  // elements of a line in a buffer

/// C is float or double. Null: there is no such loop.
template <class C>
struct ScanLoops {
  /// Running products, in place, of kScanLines lines of n elements. Element i of line l is x[i * kScanLines + l].
  /// `totals`: of the elements before; updated.
  void (*products)(C* x, int64_t n, double* totals);
  /// Running sums of one line. Returns false if it could not compute them, with `total` unchanged and anything in out.
  bool (*sums)(C* out, const C* x, int64_t n, double& total);
};

template <class C>
const ScanLoops<C>& scan_loops();
template <>
const ScanLoops<float>& scan_loops<float>();
template <>
const ScanLoops<double>& scan_loops<double>();

}  // namespace lorry::kernels::cpu
