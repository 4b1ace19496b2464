#include "lorry/foreach/norm.h"

#include <algorithm>
#include <cmath>

#include "lorry/base/events.h"
#include "lorry/foreach/foreach.h"
#include "lorry/foreach/plan.h"
#include "lorry/formula/clip.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/reduce.h"
#include "lorry/tensor/changes.h"

namespace lorry::foreach {
namespace {

kernels::NormOrder order_of(double ord) {
  require<ValueError>(ord > 0, "ord is out of range; got {}; expected a number > 0, or infinity", ord);
  return ord == 1          ? kernels::NormOrder::one
         : ord == 2        ? kernels::NormOrder::two
         : std::isinf(ord) ? kernels::NormOrder::inf
                           : kernels::NormOrder::power;
}

void require_measurable(const Tensor& t) {
  require_defined(t, "a tensor");
  require<DTypeError>(is_floating(t.dtype()), "a tensor is not floating; got {}; expected f16, bf16, f32 or f64", t);
}

/// One list a device and dtype, those of a device next to each other.
void lay_out(detail::NormPlan& plan, const TensorList& x, Strategy strategy) {
  plan.strategy = strategy;
  plan.facts.clear(), plan.lists.clear(), plan.scaled.clear(), plan.places.clear();
  plan.facts.reserve(x);
  const auto holds = [](const Tensor& t) {
    return [&t](const kernels::List& l) { return l.device() == t.device() && l.dtype(0) == t.dtype(); };
  };
  for (const Tensor& t : x) {
    if (std::ranges::any_of(plan.lists, holds(t))) continue;
    const auto last = std::find_if(plan.lists.rbegin(), plan.lists.rend(),
                                   [&](const kernels::List& l) { return l.device() == t.device(); });
    const DType dtype = t.dtype();
    plan.lists.emplace(last == plan.lists.rend() ? plan.lists.end() : last.base(), t.device(), std::span(&dtype, 1),
                       strategy);
  }
  size_t copy = 0;
  for (const Tensor& t : x) {
    const Tensor& dense = t.layout().is_dense() ? t : plan.copies[copy++];
    const auto list = std::ranges::find_if(plan.lists, holds(t));
    const auto place = static_cast<uint32_t>(list->entries().size());
    plan.facts.add(dense);
    list->add({.at = {dense.data_ptr()}, .count = t.numel()});
    plan.places.emplace_back(static_cast<uint32_t>(list - plan.lists.begin()), place);
  }
}

/// Brings the lists up to date.
void refresh(detail::NormPlan& plan, const TensorList& x, Strategy strategy) {
  if (plan.looked == last_reshaped() && plan.strategy == strategy && !plan.gaps) return;
  const uint64_t looked = last_reshaped();
  plan.looked = 0;
  plan.gaps = plan.separate = false;
  plan.copies.clear();
  bool known = plan.strategy == strategy && plan.places.size() == x.size();
  size_t at = 0;
  for (size_t e = 0; e < x.size(); ++e) {
    const Tensor* t = &x[e];
    require_measurable(*t);
    const bool dense = t->layout().is_dense();
    if (!dense) {
      events::emit(events::Kind::hidden_copy, t_operator, "a tensor with gaps is copied first");
      plan.gaps = true;
      t = &plan.copies.emplace_back(t->contiguous());
    }
    if (!known) continue;
    const auto since = plan.facts.look(at, *t);
    known = since != detail::Facts::Since::other;
    if (since != detail::Facts::Since::moved) continue;
    const auto [list, place] = plan.places[e];
    plan.lists[list].move(place, 0, t->data_ptr());
    if (dense && !plan.scaled.empty()) plan.scaled[list].move(place, 0, t->data_ptr());
  }
  if (!known) lay_out(plan, x, strategy);
  plan.looked = looked;
}

/// What is wanted of a list. To clip to max_norm takes a factor.
struct Wanted {
  double ord;
  bool per_tensor = false, total = false, factor = false;
  double max_norm = std::numeric_limits<double>::infinity();
};

/// Norms of entries, lists laid end to end, one tensor a device; and what is of all of them.
struct Raw {
  std::vector<Tensor> of_device;
  std::vector<std::pair<uint32_t, int64_t>> places;  ///< of every entry: device and place
  Tensor total, factor;
};

void require_unrecorded(const TensorList& x) {
  if (mode(kGradMode))
    for (const Tensor& t : x)
      require<GradError>(!t.requires_grad(),
                         "gradients are not followed through a list's norms; got {}; use NoGrad, or foreach::norm", t);
}

Raw measure(const TensorList& x, const Wanted& wanted);

/// A plan that is up to date.
Raw measure(detail::NormPlan& plan, const TensorList& x, const Wanted& wanted) {
  const kernels::NormOrder order = order_of(wanted.ord);
  Raw raw;
  std::vector<uint32_t> device_of(plan.lists.size());
  std::vector<int64_t> start_of(plan.lists.size());
  std::vector<Tensor> totals;
  const bool one_device = plan.lists.front().device() == plan.lists.back().device();
  for (size_t first = 0; first < plan.lists.size();) {
    const Device device = plan.lists[first].device();
    std::vector<const kernels::List*> lists;
    int64_t entries = 0;
    size_t l = first;
    for (; l < plan.lists.size() && plan.lists[l].device() == device; ++l) {
      lists.push_back(&plan.lists[l]);
      device_of[l] = static_cast<uint32_t>(raw.of_device.size());
      start_of[l] = entries;
      entries += static_cast<int64_t>(plan.lists[l].entries().size());
    }
    raw.of_device.push_back(wanted.per_tensor ? empty({entries}, {kF64, device}) : Tensor());
    totals.push_back(wanted.total ? empty({}, {kF64, device}) : Tensor());
    if (wanted.factor && one_device) raw.factor = empty({}, {kF64, device});
    kernels::backend(device).list_norm->norm(
        {.lists = lists,
         .order = order,
         .p = wanted.ord,
         .total = wanted.total ? totals.back().data<double>() : nullptr,
         .per_tensor = wanted.per_tensor ? raw.of_device.back().data<double>() : nullptr,
         .end = {.max_norm = wanted.max_norm, .factor = raw.factor.defined() ? raw.factor.data<double>() : nullptr}},
        current_stream(device));
    first = l;
  }
  if (wanted.per_tensor) {
    raw.places.reserve(plan.places.size());
    for (const auto& [l, place] : plan.places) raw.places.emplace_back(device_of[l], start_of[l] + place);
  }
  plan.copies.clear();  // their memory is released in the order of the stream
  if (!wanted.total) return raw;
  if (one_device) {
    raw.total = totals[0];
  } else {  // the norm of the devices' norms
    for (Tensor& t : totals) t = t.to(x[0].device());
    const Raw all =
        measure(totals, {.ord = wanted.ord, .total = true, .factor = wanted.factor, .max_norm = wanted.max_norm});
    raw.total = all.total, raw.factor = all.factor;
  }
  return raw;
}

/// Calls f with the list's plan, up to date and locked.
template <class F>
auto with_plan(const TensorList& x, const F& f) {
  detail::Kept& kept = *x.body()->kept;
  const std::scoped_lock lock(kept.mutex);
  if (kept.norms == nullptr) kept.norms = std::make_unique<detail::NormPlan>();
  refresh(*kept.norms, x, current_strategy());
  return f(*kept.norms);
}

Raw measure(const TensorList& x, const Wanted& wanted) {
  order_of(wanted.ord);
  require_unrecorded(x);
  if (!x.empty()) return with_plan(x, [&](detail::NormPlan& plan) { return measure(plan, x, wanted); });
  Raw raw;
  if (wanted.total) raw.total = zeros({}, {.dtype = kF64});
  return raw;
}

/// Multiplies everything by the factor of a clip.
void scale(detail::NormPlan& plan, const TensorList& x, const Tensor& factor) {
  if (plan.scaled.empty()) {
    std::vector<kernels::List> scaled;
    for (const kernels::List& list : plan.lists) {
      const DType dtype = list.dtype(0);
      scaled.emplace_back(list.device(), std::span(&dtype, 1), plan.strategy);
    }
    for (size_t e = 0; e < x.size(); ++e)  // in the order of their places
      scaled[plan.places[e].first].add({.at = {x[e].data_ptr()}, .count = x[e].layout().is_dense() ? x[e].numel() : 0});
    plan.scaled = std::move(scaled);
  }
  for (const kernels::List& list : plan.scaled) {
    const Tensor there = factor.to(list.device());
    kernels::backend(list.device()).list_norm->scale(list, there.data<double>(), current_stream(list.device()));
  }
  for (const Tensor& t : x)
    if (t.layout().is_dense())
      t.storage().written_by(t_operator);
    else
      t.mul_(formula::multiplier(factor.to(t.device())));
}

/// Number `place` of many as a 0-d tensor.
Tensor single(const Tensor& of_device, int64_t place) {
  return door::make_view(of_device, Layout::contiguous({}), place);
}

std::vector<Tensor> separate(const Raw& raw) {
  std::vector<Tensor> each;
  each.reserve(raw.places.size());
  for (const auto& [device, place] : raw.places) each.push_back(single(raw.of_device[device], place));
  return each;
}

}  // namespace

Norms norms(const TensorList& x, double ord) {
  const Running running("norms");
  Raw raw = measure(x, {.ord = ord, .per_tensor = true, .total = true});
  return {separate(raw), raw.total};
}

TensorList norm(const TensorList& x, double ord, std::optional<DType> dtype) {
  const Running running("norm");
  if (dtype) require_dtype(*dtype);
  require<DTypeError>(!dtype || is_floating(*dtype), "dtype is not floating; got {}; expected f16, bf16, f32 or f64",
                      dtype.value_or(kF64));
  std::vector<Tensor> each;
  const auto recorded = [](const Tensor& t) { return t.requires_grad(); };
  if (mode(kGradMode) && std::ranges::any_of(x, recorded)) {
    for (const Tensor& t : x) each.push_back(dtype ? lorry::norm(t, ord).to(*dtype) : lorry::norm(t, ord));
    return each;
  }
  const Raw raw = measure(x, {.ord = ord, .per_tensor = true});
  // of all norms of a device, made when a tensor of the dtype is met
  std::vector<std::vector<Tensor>> cast(kDTypeCount);
  for (size_t e = 0; e < x.size(); ++e) {
    const DType to = dtype.value_or(x[e].dtype());
    std::vector<Tensor>& known = cast[static_cast<size_t>(to)];
    if (known.empty())
      for (const Tensor& t : raw.of_device) known.push_back(t.to(to));
    each.push_back(single(known[raw.places[e].first], raw.places[e].second));
  }
  return each;
}

Tensor total_norm(const TensorList& x, double ord) {
  const Running running("total_norm");
  return measure(x, {.ord = ord, .total = true}).total;
}

Tensor clip_norm_(const TensorList& x, double max_norm, double ord, bool error_if_nonfinite) {
  const Running running("clip_norm_");
  const Wanted wanted{.ord = ord, .total = true, .factor = true, .max_norm = max_norm};
  require<ValueError>(max_norm >= 0, "max_norm is out of range; got {}; expected a number >= 0", max_norm);
  if (x.empty()) return measure(x, wanted).total;
  order_of(ord);
  require_unrecorded(x);
  for (const Tensor& t : x) door::require_writable(t);
  return with_plan(x, [&](detail::NormPlan& plan) {
    if (!plan.separate) detail::require_separate(x);
    plan.separate = true;
    const Raw raw = measure(plan, x, wanted);
    if (error_if_nonfinite) {
      const double norm = raw.total.item<double>();
      require<ValueError>(std::isfinite(norm), "the norm is {}; nothing was clipped; expected a finite norm", norm);
    }
    scale(plan, x, raw.factor);
    return raw.total;
  });
}

TensorList max(const TensorList& x) {
  std::vector<Tensor> each;
  for (const Tensor& t : x) each.push_back(lorry::max(t));
  return each;
}

}  // namespace lorry::foreach
