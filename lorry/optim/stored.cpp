#include "lorry/optim/stored.h"

#include <unordered_set>

#include "lorry/foreach/foreach.h"
#include "lorry/formula/quantize.h"
#include "lorry/ops/array.h"
#include "lorry/ops/ops.h"

namespace lorry::optim {
namespace {

kernels::List list_beside_f32(const Tensor& stored) {
  const DType dtypes[] = {kF32, stored.dtype()};
  return kernels::List(stored.device(), dtypes);
}

const kernels::OptimKernels& kernels_for(const kernels::List& list) { return *kernels::backend(list.device(), "optimizer").optim; }

}  // namespace

Tensor codes_of(const Tensor& stored, int64_t n) { return stored.narrow(0, 0, n); }
Tensor scales_of(const Tensor& stored, int64_t n) { return stored.narrow(0, formula::quant_scales_at(n), 4 * formula::quant_blocks(n)).view(kF32); }

kernels::StoredCall Storing::call(const kernels::List& list, int k) const {
  if (k < 0) return {.list = list, .type = StateType::bf16, .seed = seed, .array = 0, .first_element = first_element, .steps = steps};
  return {.list = list, .type = types[k], .is_signed = is_signed(k), .seed = seed, .array = static_cast<uint32_t>(1 + k), .first_element = first_element, .steps = steps};
}

std::vector<Tensor> loaded(const Storing& how, int k, const std::vector<Tensor>& stored, const std::vector<Tensor>& like) {
  if (how.types[k] == StateType::f32 || stored.empty()) return stored;
  kernels::List list = list_beside_f32(stored[0]);
  std::vector<Tensor> wide;
  for (size_t e = 0; e < stored.size(); ++e) {
    wide.push_back(empty_like(like[e], kF32));
    list.add({.at = {wide[e].data_ptr(), stored[e].data_ptr()}, .count = wide[e].numel()});
  }
  kernels_for(list).load(how.call(list, k), current_stream(list.device()));
  return wide;
}

void Writes::add(const Tensor& to, const Tensor& x, int k, const Tensor& like, uint32_t number) {
  if (k >= 0 && how_.types[k] == StateType::f32) return add(to, x);
  // Kernels take elements one after the other, in the parameter's order.
  const bool fits = x.dtype() == kF32 && x.sizes() == like.sizes() && x.strides() == like.strides();
  const Tensor dense = fits ? x : empty_like(like, kF32).copy_(x);
  if (stored_.empty() || stored_.back().k != k) stored_.push_back({list_beside_f32(to), k, {}});
  stored_.back().list.add({.at = {dense.data_ptr(), to.data_ptr()}, .count = dense.numel(), .number = number});
  stored_.back().held.push_back(dense);
  stored_.back().held.push_back(to);
}

/// Where the step is left out, what is written is what there was.
void Writes::keep_old(const Tensor& steps) {
  if (!by_lists_) {
    for (auto& [to, x] : plain_) x = x.where(steps, to.to(x.dtype()));
    return;
  }
  std::vector<Tensor> results, old;
  for (const auto& [to, x] : plain_) results.push_back(x), old.push_back(to);
  for (const DType dtype : {kF32, kF64}) {
    std::vector<Tensor> narrower;
    std::vector<size_t> at;
    for (size_t i = 0; i < plain_.size(); ++i)
      if (results[i].dtype() == dtype && old[i].dtype() != dtype) narrower.push_back(old[i]), at.push_back(i);
    const foreach::TensorList wide = foreach::to(std::move(narrower), dtype);
    for (size_t i = 0; i < at.size(); ++i) old[at[i]] = wide[i];
  }
  const foreach::TensorList kept = foreach::where(std::vector<Tensor>(plain_.size(), steps), std::move(results), std::move(old));
  for (size_t i = 0; i < plain_.size(); ++i) plain_[i].x = kept[i];
}

void Writes::complete() {
  if (grad_factor_.defined()) return keep_old(grad_factor_.eq(grad_factor_));
  // A formula may hand an array on to a state as it was: a write to the one must not change the other.
  std::unordered_set<const Storage*> written;
  for (const Write& write : plain_) written.insert(&write.to.storage());
  for (auto& [to, x] : plain_)
    if (x.data_ptr() != to.data_ptr() && written.contains(&x.storage())) x = x.clone();
}

void Writes::finish() {
  complete();
  // Arrays that are stored in another form are nobody's results: writing them changes none.
  for (const Stored& stored : stored_) {
    kernels::StoredCall call = how_.call(stored.list, stored.k);
    if (grad_factor_.defined()) call.grad_factor = grad_factor_.data<double>();
    kernels_for(stored.list).store(call, current_stream(stored.list.device()));
  }
  if (by_lists_) {
    std::vector<Tensor> to, from;
    for (const Write& write : plain_) to.push_back(write.to), from.push_back(write.x);
    foreach::copy_(std::move(to), std::move(from));
  } else {
    for (const auto& [to, x] : plain_) to.copy_(x);
  }
}

}  // namespace lorry::optim
