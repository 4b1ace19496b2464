#include "lorry/foreach/norm.h"

#include <algorithm>
#include <cmath>

#include "lorry/foreach/foreach.h"
#include "lorry/foreach/norm_pass.h"
#include "lorry/foreach/run_row.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/reduce.h"

namespace lorry::foreach {
namespace {

using detail::added;
using detail::finished;
using detail::Kernels;
using detail::measure;
using detail::Measured;
using detail::NormOrder;
using detail::NormRequest;
using detail::order_of;
using detail::PassKernel;
using detail::require_no_overlap;
using detail::require_writable;
using detail::scale;
using detail::with_plan;

/// Calls f, and announces it as a call over x if somebody listens. in_place: x is written. outputs() gives the results;
/// in place, those after the entries of x.
template <class F, class Outputs, class... A>
void call_over(Op op, const TensorList& x, bool in_place, const Tensor* after, const F& f, const Outputs& outputs,
               const A&... attributes) {
  if (!door::heard(door::Inputs({}))) [[likely]]
    return f();
  std::vector<door::Input> inputs;
  for (const Tensor& t : x) inputs.emplace_back(&t);
  if (after != nullptr) inputs.emplace_back(after);
  const door::Attribute list[] = {door::Attribute(attributes)..., false};
  door::Announced announced(op, in_place, std::span<const door::Input>(inputs), static_cast<const Tensor*>(nullptr),
                            std::span(list).first(sizeof...(A)), foreach::run);
  f();
  std::vector<Tensor> results;
  if (in_place) results = x.tensors();
  for (Tensor& t : outputs()) results.push_back(std::move(t));
  announced.finish(results);
}

/// One number of many as a 0-d tensor.
Tensor element(const Tensor& x, int64_t index) { return door::make_view(x, Layout::contiguous({}), index); }

std::vector<Tensor> norms_of_entries(const Measured& measured) {
  std::vector<Tensor> each;
  each.reserve(measured.positions.size());
  for (const auto& [device, index] : measured.positions) each.push_back(element(measured.per_tensor[device], index));
  return each;
}

bool is_recorded(const TensorList& x) {
  return mode(kGradMode) && std::ranges::any_of(x, [](const Tensor& t) { return t.requires_grad(); });
}

/// A reduction in one pass over all tensors.
struct OnePass {
  NormOrder order = NormOrder::two;
  std::optional<DType> dtype = {};  ///< of the results; none: each tensor's own
  double p = 0;                     ///< of NormOrder::power
  /// Kernels other than norm take no tensors without elements: for those the operator itself is called.
  PassKernel kernel = &Kernels::norm;
};
/// No pass: the operator for each tensor.
constexpr std::optional<OnePass> each;

/// What one pass gives for every entry.
std::vector<Tensor> numbers(const TensorList& x, const OnePass& pass) {
  const Measured measured = measure(x, {.kernel = pass.kernel, .order = pass.order, .p = pass.p, .per_tensor = true});
  std::vector<Tensor> of_entries;
  // for each dtype the numbers of every device, converted when the first tensor of that dtype is met
  std::vector<std::vector<Tensor>> cast(kDTypeCount);
  for (size_t e = 0; e < x.size(); ++e) {
    const DType to = pass.dtype.value_or(x[e].dtype());
    std::vector<Tensor>& known = cast[static_cast<size_t>(to)];
    if (known.empty())
      for (const Tensor& t : measured.per_tensor) known.push_back(t.to(to));
    const auto [device, index] = measured.positions[e];
    of_entries.push_back(element(known[device], index));
  }
  return of_entries;
}

/// A reduction of each tensor. `alone` is the operator, which is called for each if gradients are recorded.
template <class Alone, class... A>
TensorList reduced(Op op, const TensorList& x, const std::optional<OnePass>& pass, const Alone& alone,
                   const A&... attributes) {
  std::vector<Tensor> results;
  const auto one_by_one = [&] {
    for (const Tensor& t : x) results.push_back(alone(t));
  };
  if (is_recorded(x)) {
    one_by_one();
    return results;
  }
  const auto fits = [&](const Tensor& t) {
    return is_floating(t.dtype()) && (t.numel() > 0 || pass->kernel == &Kernels::norm);
  };
  const bool in_one_pass = pass && std::ranges::all_of(x, fits);
  call_over(
      op, x, false, nullptr,
      [&] {
        if (in_one_pass)
          results = numbers(x, *pass);
        else
          one_by_one();
      },
      [&] { return results; }, attributes...);
  return results;
}

}  // namespace

Norms norms(const TensorList& x, double ord) {
  const Running running("norms");
  Norms made;
  call_over(
      Op::norms, x, false, nullptr,
      [&] {
        const Measured measured = measure(x, {.order = order_of(ord), .p = ord, .per_tensor = true, .total = true});
        made = {norms_of_entries(measured), measured.total};
      },
      [&] {
        std::vector<Tensor> all = made.per_tensor.tensors();
        all.push_back(made.total);
        return all;
      },
      ord);
  return made;
}

TensorList norm(const TensorList& x, double ord, std::optional<DType> dtype) {
  const Running running("norm");
  if (dtype) require_dtype(*dtype);
  require<DTypeError>(!dtype || is_floating(*dtype), "dtype is not floating; got {}; expected one of {}",
                      dtype.value_or(kF64), kFloatingNames);
  const auto alone = [&](const Tensor& x) { return dtype ? lorry::norm(x, ord).to(*dtype) : lorry::norm(x, ord); };
  std::optional<OnePass> pass;
  if (!is_recorded(x)) pass = {order_of(ord), dtype, ord};
  return reduced(Op::foreach_norm, x, pass, alone, ord, dtype ? std::string(name(*dtype)) : std::string());
}

Tensor total_norm(const TensorList& x, double ord) {
  const Running running("total_norm");
  Tensor total;
  call_over(
      Op::total_norm, x, false, nullptr,
      [&] { total = measure(x, {.order = order_of(ord), .p = ord, .total = true}).total; },
      [&] { return std::vector{total}; }, ord);
  return total;
}
Tensor clip_norm_(const TensorList& x, double max_norm, double ord, bool error_if_nonfinite) {
  const Running running("clip_norm_");
  require<ValueError>(max_norm >= 0, "max_norm is out of range; got {}; expected a number >= 0", max_norm);
  const NormRequest request{
      .order = order_of(ord), .p = ord, .total = true, .factor = true, .end = {.max_norm = max_norm}};
  if (x.empty()) return measure(x, request).total;
  require_writable(x);
  Tensor total;
  const auto clip = [&](detail::NormPlan& norms) {
    require_no_overlap(norms, x);
    const Measured measured = measure(norms.plan, request);
    if (error_if_nonfinite) {
      const double norm = measured.total.item<double>();
      require<ValueError>(std::isfinite(norm), "the norm is {}; nothing was clipped; expected a finite norm", norm);
    }
    scale(norms, x, measured.factor);
    total = measured.total;
  };
  call_over(
      Op::clip_norm, x, true, nullptr, [&] { with_plan(x, clip); }, [&] { return std::vector{total}; }, max_norm, ord,
      error_if_nonfinite);
  return total;
}

// ---- a norm in two parts --------------------------------------------------------------------------------------------

Tensor power_sum(const TensorList& x, double ord) {
  const Running running("power_sum");
  Tensor sum;
  const NormOrder order = order_of(ord);
  const auto add_up = [&] { sum = added(measure(x, {.order = order, .p = ord, .sum = true}).sums, order); };
  call_over(
      Op::power_sum, x, false, nullptr, add_up, [&] { return std::vector{sum}; }, ord);
  return sum;
}

namespace {

void require_number(const Tensor& x, const char* what) {
  require<DTypeError>(x.dim() == 0 && x.dtype() == kF64, "{} is of another kind; got {}; expected a 0-d f64", what, x);
}

/// What finish asks for, checked. device: of the sum.
kernels::NormEnd end_of(const NormFinish& finish, Device device) {
  require<ValueError>(finish.max_norm >= 0, "max_norm is out of range; got {}; expected a number >= 0",
                      finish.max_norm);
  if (finish.scale.defined()) {
    require_number(finish.scale, "scale");
    require<DeviceError>(finish.scale.device() == device,
                         "scale is on another device than the norm; got {}; expected {}", finish.scale, device);
  }
  return {.max_norm = finish.max_norm, .scale = doubles(finish.scale), .skip_nonfinite = finish.skip_nonfinite};
}

std::vector<Tensor> both(const FinishedNorm& made) { return {made.norm, made.factor}; }

}  // namespace

FinishedNorm finish_norm(const Tensor& sum, const NormFinish& finish) {
  const Running running("finish_norm");
  const NormOrder order = order_of(finish.ord);
  require_defined(sum, "the sum");
  const kernels::NormEnd end = end_of(finish, sum.device());
  require_number(sum, "the sum");
  FinishedNorm made;
  call_over(
      Op::finish_norm, TensorList({sum}), false, &finish.scale, [&] { made = finished(sum, order, finish.ord, end); },
      [&] { return both(made); }, finish.ord, finish.max_norm, finish.skip_nonfinite);
  return made;
}

FinishedNorm clip_factor(const TensorList& x, const NormFinish& finish) {
  const Running running("clip_factor");
  const NormOrder order = order_of(finish.ord);
  const kernels::NormEnd end = end_of(finish, x.empty() || !x[0].defined() ? default_device() : x[0].device());
  FinishedNorm made;
  const auto compute = [&] {
    const Measured measured =
        measure(x, {.order = order, .p = finish.ord, .sum = x.empty(), .total = true, .factor = true, .end = end});
    made =
        x.empty() ? finished(measured.sums[0], order, finish.ord, end) : FinishedNorm{measured.total, measured.factor};
  };
  call_over(
      Op::clip_factor, x, false, &finish.scale, compute, [&] { return both(made); }, finish.ord, finish.max_norm,
      finish.skip_nonfinite);
  return made;
}

const TensorList& scale_norm_(const TensorList& x, const Tensor& factor) {
  const Running running("scale_norm");
  require<DTypeError>(factor.dim() == 0 && factor.dtype() == kF64,
                      "the factor is of another kind; got {}; expected a 0-d f64", factor);
  if (x.empty()) return x;
  require_writable(x);
  const auto multiply = [&](detail::NormPlan& norms) {
    require_no_overlap(norms, x);
    scale(norms, x, factor);
  };
  call_over(
      Op::scale_norm, x, true, &factor, [&] { with_plan(x, multiply); }, [] { return std::vector<Tensor>(); });
  return x;
}

#define LORRY_LIST_REDUCTION(name, ...)                                                                 \
  TensorList name(const TensorList& x) {                                                                \
    const Running running(#name);                                                                       \
    return reduced(Op::foreach_##name, x, __VA_ARGS__, [](const Tensor& t) { return lorry::name(t); }); \
  }
#include "lorry/formula/list.def"

}  // namespace lorry::foreach
