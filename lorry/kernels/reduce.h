#pragma once

// Reductions and scans. In every reduction `x` and the outputs have one rank: an output of size 1 stands where a
// dimension is reduced, and outputs of one call share a layout. Results do not depend on the number of threads: work is
// split by the shapes alone and combined in a fixed order. Floating totals of f16, bf16 and f32 are carried in f64
// between short f32 runs.

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

/// Mean and variance over the reduced elements; either output may be absent (null data). The sum of squared deviations
/// is divided by max(0, n - correction), and `root` takes the square root.
struct MomentArgs {
  Array mean, variance, x;
  double correction = 1;
  bool root = false;
};

/// The largest (or smallest) element and its position among the reduced ones, counted in row-major order: the first of
/// equals, and a NaN before everything. `values` may be absent.
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
  void (*extremum)(const ExtremumArgs&, const Stream&) = nullptr;
  void (*scan)(const ScanArgs&, const Stream&) = nullptr;
};

}  // namespace lorry::kernels
