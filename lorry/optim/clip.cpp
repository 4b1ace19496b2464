#include "lorry/optim/clip.h"

#include <algorithm>
#include <utility>

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/events.h"
#include "lorry/foreach/foreach.h"
#include "lorry/foreach/norm.h"
#include "lorry/ops/array.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry::optim {
namespace {

/// Keeps one of the tensors that are the same memory: the first.
void drop_repeated(std::vector<Tensor>& tensors) {
  std::vector<std::pair<uintptr_t, size_t>> at;
  at.reserve(tensors.size());
  for (const Tensor& x : tensors) at.emplace_back(reinterpret_cast<uintptr_t>(x.data_ptr()), at.size());
  std::ranges::sort(at);
  for (size_t i = 1, first_at = 0; i < at.size(); ++i) {
    Tensor& x = tensors[at[i].second];
    const Tensor& first = tensors[at[first_at].second];
    if (at[i].first == at[first_at].first && x.dtype() == first.dtype() && x.layout() == first.layout())
      x = Tensor();
    else
      first_at = i;
  }
  std::erase_if(tensors, [](const Tensor& x) { return !x.defined(); });
}

/// The gradients of the parameters, each once. A gradient whose elements share memory is replaced by a copy.
foreach::TensorList gradients(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> found;
  found.reserve(parameters.size());
  for (const Tensor& param : parameters) {
    require_defined(param, "a parameter");
    Tensor grad = param.grad();
    if (!grad.defined()) continue;
    if (!grad.is_contiguous() && grad.layout().has_internal_overlap()) {
      events::emit(events::Kind::hidden_copy, t_operator,
                   "a gradient whose elements share memory is replaced by a copy");
      grad = grad.contiguous();
      param.set_grad(grad);
    }
    found.push_back(grad.requires_grad() ? grad.detach() : std::move(grad));
  }
  drop_repeated(found);
  return found;
}

void require_norm_type(double type) {
  require<ValueError>(type > 0, "norm_type is out of range; got {}; expected a number > 0, or infinity", type);
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type) {
  const Running running("get_total_norm");
  const NoGrad quiet;
  require_norm_type(norm_type);
  return foreach::total_norm(tensors, norm_type);
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  const Running running("clip_grad_norm_");
  const NoGrad quiet;
  require<ValueError>(max_norm >= 0, "max_norm is out of range; got {}; expected a number >= 0", max_norm);
  require_norm_type(norm_type);
  return foreach::clip_norm_(gradients(parameters), max_norm, norm_type, error_if_nonfinite);
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  const Running running("clip_grad_value_");
  require<ValueError>(clip_value > 0, "clip_value is out of range; got {}; expected a number > 0", clip_value);
  const NoGrad quiet;
  foreach::clamp_(gradients(parameters), -clip_value, clip_value);
}

}  // namespace lorry::optim
