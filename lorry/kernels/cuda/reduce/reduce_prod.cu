#include "lorry/kernels/cuda/reduce/reduce_fold.h"

namespace lorry::kernels::cuda {

void reduce_prod(const FoldArgs& args, const Axes& axes, Route way, Stream stream) {
  visit_rows(args.x.dtype,
             [&]<class T>(Type<T>) { reduce(Folded<T, Fold::prod>(args), axes, way, args.x.data, stream); });
}

}  // namespace lorry::kernels::cuda
