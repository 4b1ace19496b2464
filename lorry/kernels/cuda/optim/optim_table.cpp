#include <utility>

#include "lorry/kernels/cuda/fused/nvrtc.h"
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
    kernels.compiles = [] { return Nvrtc::get().missing().empty(); };
    kernels.prepare_recorded = prepare_recorded;
    kernels.step_recorded = step_recorded;
    return kernels;
  }();
  return kKernels;
}

}  // namespace lorry::kernels::cuda
