#include "lorry/optim/execution/compression.h"

#include "lorry/formula/quantize.h"
#include "lorry/kernels/backend.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"

namespace lorry::optim {

Tensor codes_of(const Tensor& compressed, int64_t n) { return compressed.narrow(0, 0, n); }
Tensor scales_of(const Tensor& compressed, int64_t n) {
  return compressed.narrow(0, formula::quant_scales_at(n), 4 * formula::quant_blocks(n)).view(kF32);
}

kernels::CompressedCall Compression::call(const kernels::List& list, int k) const {
  if (k < 0)
    return {.list = list,
            .type = StateType::bf16,
            .seed = seed,
            .array = 0,
            .first_element = first_element,
            .steps = steps};
  return {.list = list,
          .type = types[k],
          .is_signed = is_signed(k),
          .seed = seed,
          .array = static_cast<uint32_t>(1 + k),
          .first_element = first_element,
          .steps = steps};
}

void reorder_compressed(const Compression& how, int k, const Tensor& before, const Layout& from,
                        const Tensor& compressed, const Layout& to) {
  const Device device = compressed.device();
  const kernels::OptimKernels& kernels = *kernels::backend(device).optim;
  const Tensor as_it_was = empty_strided(from.size_list(), from.stride_list(), {kF32, device}),
               as_it_is = empty_strided(to.size_list(), to.stride_list(), {kF32, device});
  const auto list_of = [&](const Tensor& wide, const Tensor& other) {
    const DType dtypes[] = {kF32, other.dtype()};
    kernels::List list(device, dtypes);
    list.add({.at = {wide.data_ptr(), other.data_ptr()}, .count = wide.numel()});
    return list;
  };
  const kernels::List source = list_of(as_it_was, before), target = list_of(as_it_is, compressed);
  kernels.decompress(how.call(source, k), current_stream(device));
  as_it_is.copy_(as_it_was);
  kernels.compress(how.call(target, k), current_stream(device));
}

}  // namespace lorry::optim
