#include <utility>

#include "lorry/kernels/cuda/optim/optim.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {

const OptimKernels& optim_kernels() {
  static const OptimKernels kKernels = [] {
    OptimKernels kernels;
    [&]<int... share>(std::integer_sequence<int, share...>) { (fill_rules<share>(kernels), ...); }
    (std::make_integer_sequence<int, kRuleShares>());
    kernels.decompress = decompress;
    kernels.compress = compress;
    return kernels;
  }();
  return kKernels;
}

}  // namespace lorry::kernels::cuda
