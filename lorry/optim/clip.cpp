#include "lorry/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/door.h"

namespace lorry::optim {
namespace {

constexpr const char* kNormName = "clip_grad_norm_";

/// The order, and p where it is a power.
std::pair<kernels::NormOrder, double> order_of(double type, const char* where) {
  require<ValueError>(type > 0, "{}: norm_type is out of range; got {}; expected a number > 0, or infinity", where, type);
  if (type == 1) return {kernels::NormOrder::one, type};
  if (type == 2) return {kernels::NormOrder::two, type};
  return {std::isinf(type) ? kernels::NormOrder::inf : kernels::NormOrder::power, type};
}

/// The gradients there are, each without gaps; one with gaps or repeated elements is replaced by a copy.
std::vector<Tensor> gradients(const std::vector<Tensor>& parameters, const char* where) {
  std::vector<Tensor> found;
  for (const Tensor& param : parameters) {
    require_defined(param, where, "a parameter");
    Tensor grad = param.grad();
    if (!grad.defined()) continue;
    grad = grad.detach();
    if (!grad.layout().is_dense()) {
      grad = grad.contiguous();
      param.set_grad(grad);
    }
    door::require_writable(grad, where);
    if (!found.empty()) require_same_device(found[0], grad, where);
    found.push_back(grad);
  }
  return found;
}

/// Lists for kernels, one a dtype, of tensors on one device.
struct Lists {
  std::deque<kernels::List> lists;
  std::vector<const kernels::List*> pointers;
};
Lists listed(const std::vector<Tensor>& tensors) {
  Lists lists;
  for (const Tensor& x : tensors) {
    const DType dtype = x.dtype();
    auto known = std::ranges::find_if(lists.lists, [&](const kernels::List& list) { return list.dtype(0) == dtype; });
    if (known == lists.lists.end()) {
      known = lists.lists.emplace(lists.lists.end(), x.device(), std::span(&dtype, 1));
      lists.pointers.push_back(&*known);
    }
    known->add({.at = {x.data_ptr()}, .count = x.numel()});
  }
  return lists;
}

/// The norm of all, and what clipping to max_norm multiplies by.
std::pair<Tensor, Tensor> norm_of(const std::vector<Tensor>& tensors, const Lists& lists, double type, double max_norm, const char* where) {
  const auto [order, p] = order_of(type, where);
  const Options options{.dtype = kF64, .device = tensors.empty() ? default_device() : tensors[0].device()};
  const Tensor total = empty({}, options), factor = empty({}, options);
  backend(total, where).list_norm->norm(
      {.lists = lists.pointers, .order = order, .p = p, .total = total.data<double>(), .end = {.max_norm = max_norm, .factor = factor.data<double>()}},
      current_stream(total.device()));
  return {total, factor};
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type) {
  constexpr const char* kName = "get_total_norm";
  const NoGrad quiet;
  std::vector<Tensor> dense;
  for (const Tensor& x : tensors) {
    require_defined(x, kName, "a tensor");
    require<DTypeError>(is_floating(x.dtype()), "get_total_norm: a tensor is not floating; got {}", x);
    dense.push_back(x.layout().is_dense() ? x : x.contiguous());
    require_same_device(dense[0], x, kName);
  }
  return norm_of(dense, listed(dense), norm_type, INFINITY, kName).first;
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  const NoGrad quiet;
  require<ValueError>(max_norm >= 0, "clip_grad_norm_: max_norm is out of range; got {}; expected a number >= 0", max_norm);
  const std::vector<Tensor> grads = gradients(parameters, kNormName);
  const Lists lists = listed(grads);
  const auto [total, factor] = norm_of(grads, lists, norm_type, max_norm, kNormName);
  if (error_if_nonfinite) {
    const double value = total.item<double>();
    require<ValueError>(std::isfinite(value), "clip_grad_norm_: the norm of the gradients is {}; nothing was clipped; expected a finite norm", value);
  }
  for (const kernels::List& list : lists.lists) backend(total, kNormName).list_norm->scale(list, factor.data<double>(), current_stream(total.device()));
  for (const Tensor& grad : grads) grad.storage().written_by(kNormName);
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  require<ValueError>(clip_value > 0, "clip_grad_value_: clip_value is out of range; got {}; expected a number > 0", clip_value);
  const NoGrad quiet;
  for (const Tensor& grad : gradients(parameters, "clip_grad_value_")) grad.clamp_(Operand(-clip_value), Operand(clip_value));
}

}  // namespace lorry::optim
