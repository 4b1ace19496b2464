#include "lorry/kernels/cuda/reduce/reduce_fold.h"

namespace lorry::kernels::cuda {

void reduce_max(const FoldArgs& args, const Axes& axes, Route way, Stream stream) {
  reduce_folded<Fold::max>(args, axes, way, stream);
}

}  // namespace lorry::kernels::cuda
