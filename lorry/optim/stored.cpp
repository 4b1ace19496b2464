#include "lorry/optim/stored.h"

#include "lorry/formula/quantize.h"
#include "lorry/kernels/optim.h"
#include "lorry/ops/array.h"

namespace lorry::optim {
namespace {

kernels::List pair(const Tensor& wide, const Tensor& stored) {
  const DType dtypes[] = {kF32, stored.dtype()};
  kernels::List list(wide.device(), dtypes);
  list.add({.at = {wide.data_ptr(), stored.data_ptr()}, .count = wide.numel()});
  return list;
}

}  // namespace

Tensor codes_of(const Tensor& stored, int64_t n) { return stored.narrow(0, 0, n); }
Tensor scales_of(const Tensor& stored, int64_t n) { return stored.narrow(0, formula::quant_scales_at(n), 4 * formula::quant_blocks(n)).view(kF32); }

void load_stored(const Tensor& to, const Tensor& stored, bool is_signed) {
  const kernels::List list = pair(to, stored);
  backend(to, "optimizer").optim->load({.list = list, .type = kernels::StateType::q8, .is_signed = is_signed}, current_stream(to.device()));
}

void store_stored(const Tensor& from, const Tensor& stored, bool is_signed) {
  const kernels::List list = pair(from, stored);
  backend(from, "optimizer").optim->store({.list = list, .type = kernels::StateType::q8, .is_signed = is_signed}, current_stream(from.device()));
}

}  // namespace lorry::optim
