#pragma once

// Reductions and scans. In a reduction x and the outputs have the same rank: outputs have size 1 in reduced dimensions,
// and all outputs of a call have the same layout. Results do not depend on the number of threads: work is split by
// shapes only and combined in a fixed order. Totals of f16, bf16 and f32 are f64, over short runs summed in f32.

#include "lorry/device/stream.h"
#include "lorry/formula/fold.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

using formula::Finish;
using formula::Fold;
using formula::Map;

struct FoldArgs {
  Array out, x;
  Fold fold = Fold::sum;
  Map map = Map::none;
  Finish finish = Finish::none;
  double parameter = 0;
};

/// Mean and variance of the reduced elements; either output may be absent (null data). The sum of squared deviations is
/// divided by max(0, n - correction); with `root` the result is its square root.
struct MomentArgs {
  Array mean, variance, x;
  double correction = 1;
  bool root = false;
};

/// The smallest and the largest of the reduced elements, of x's dtype. A NaN among them makes both NaN.
struct RangeArgs {
  Array smallest, largest, x;
};

/// The largest (or smallest) of the reduced elements and its position among them, in row-major order. Ties: the first
/// element wins. A NaN wins over every number. `values` may be absent.
struct ExtremumArgs {
  Array values, indices, x;
  bool largest = true;
};

/// Running sums or products along `dim`. `out` has the sizes of x.
struct ScanArgs {
  Array out, x;
  int dim = 0;
  bool product = false;
};

struct ReduceKernels {
  void (*fold)(const FoldArgs&, const Stream&) = nullptr;
  void (*moments)(const MomentArgs&, const Stream&) = nullptr;
  void (*range)(const RangeArgs&, const Stream&) = nullptr;
  void (*extremum)(const ExtremumArgs&, const Stream&) = nullptr;
  void (*scan)(const ScanArgs&, const Stream&) = nullptr;
};

}  // namespace lorry::kernels
