#include "lorry/foreach/norm.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "lorry/foreach/foreach.h"
#include "lorry/foreach/operator_plan.h"
#include "lorry/formula/clip.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/reduce.h"

namespace lorry::foreach {
namespace {

using kernels::NormOrder;

NormOrder order_of(double ord) {
  require<ValueError>(ord > 0, "ord is out of range; got {}; expected a number > 0, or infinity", ord);
  return ord == 1 ? NormOrder::one : ord == 2 ? NormOrder::two : std::isinf(ord) ? NormOrder::inf : NormOrder::power;
}

void require_measurable(const Tensor& t) {
  require_defined(t, "a tensor");
  require<DTypeError>(is_floating(t.dtype()), "a tensor is not floating; got {}; expected one of {}", t,
                      kFloatingNames);
}

detail::NormPlan make_plan(const TensorList& x, Strategy strategy) {
  detail::NormPlan made{.plan = ListPlan(1, {0}, strategy)};
  made.plan.reserve(x.size());
  for (const Tensor& t : x) {
    require_measurable(t);
    const DType dtype = t.dtype();
    const Tensor* const roles[] = {&t};
    made.plan.add(made.plan.group(t.device(), {&dtype, 1}), roles, {});
    if (!t.layout().is_dense()) made.plan.use_copy(0, t);
  }
  return made;
}

/// The list's plan, up to date.
detail::NormPlan& plan_of(detail::PlanCache& cache, const TensorList& x) {
  const Strategy strategy = current_strategy();
  if (cache.norms != nullptr) {
    const std::span<const Tensor> roles[] = {x.tensors()};
    const ListPlan::Change change =
        cache.norms->plan.strategy() == strategy ? cache.norms->plan.refresh(roles) : ListPlan::Change::layout;
    if (change == ListPlan::Change::layout) cache.norms.reset();
    if (change == ListPlan::Change::addresses) cache.norms->no_overlap = false;
  }
  if (cache.norms == nullptr) cache.norms = std::make_unique<detail::NormPlan>(make_plan(x, strategy));
  return *cache.norms;
}

/// What is wanted of a list. To clip takes a factor.
struct Wanted {
  NormOrder order;
  double p = 0;  ///< of NormOrder::power
  bool per_tensor = false, sum = false, total = false, factor = false;
  kernels::NormEnd end = {};  ///< what the total and the factor are to be, but for the factor's address
};

struct Measured {
  std::vector<Tensor> per_tensor;                     ///< norms of a device's entries, one group after the other
  std::vector<std::pair<size_t, int64_t>> positions;  ///< of every entry: its device's number, and its index there
  std::vector<Tensor> sums;                           ///< of a device's elements
  Tensor total, factor;                               ///< of all elements
};

void require_unrecorded(const TensorList& x) {
  if (mode(kGradMode))
    for (const Tensor& t : x)
      require<GradError>(!t.requires_grad(),
                         "gradients are not followed through a list's norms; got {}; use NoGrad, or foreach::norm", t);
}

/// The lists of a device, and where each group's entries begin among those of the device.
struct DeviceLists {
  Device device;
  std::vector<const kernels::List*> lists = {};
  int64_t entries = 0;
};
struct ByDevice {
  std::vector<DeviceLists> devices;
  std::vector<std::pair<size_t, int64_t>> starts;  ///< of every group: its device's number, and its first entry

  explicit ByDevice(const ListPlan& plan) {
    for (size_t g = 0; g < plan.groups().size(); ++g) {
      const Device device = plan.groups()[g].device;
      auto own = std::ranges::find(devices, device, &DeviceLists::device);
      if (own == devices.end()) own = devices.insert(own, {device});
      starts.emplace_back(own - devices.begin(), own->entries);
      own->lists.push_back(&plan.list(g));
      own->entries += static_cast<int64_t>(plan.groups()[g].entries.size());
    }
  }
};

/// The sum of the devices' sums, on the first one.
Tensor added(const std::vector<Tensor>& sums, NormOrder order) {
  Tensor sum = sums[0];
  for (const Tensor& more : std::span(sums).subspan(1)) {
    const Tensor here = more.to(sum.device());
    sum = order == NormOrder::inf ? maximum(sum, here) : sum + here;
  }
  return sum;
}

Tensor new_number(Device device) { return empty({}, {kF64, device}); }

/// What is made of the sum of a norm, on its device.
FinishedNorm finished(const Tensor& sum, NormOrder order, double p, kernels::NormEnd end) {
  const FinishedNorm made{new_number(sum.device()), new_number(sum.device())};
  end.factor = doubles(made.factor);
  kernels::backend(sum.device())
      .list_norm->finish({.sum = doubles(sum), .order = order, .p = p, .total = doubles(made.norm), .end = end},
                         current_stream(sum.device()));
  return made;
}

/// One pass on each device. Of several devices each gives its sum to the first, which makes the rest of them.
Measured measure(ListPlan& plan, const Wanted& wanted) {
  plan.fill_copies();
  Measured measured;
  const ByDevice by_device(plan);
  const bool one_device = by_device.devices.size() == 1;
  const bool sums = wanted.sum || (!one_device && (wanted.total || wanted.factor));
  for (const DeviceLists& own : by_device.devices) {
    measured.per_tensor.push_back(wanted.per_tensor ? empty({own.entries}, {kF64, own.device}) : Tensor());
    measured.sums.push_back(sums ? new_number(own.device) : Tensor());
    if (one_device && wanted.total) measured.total = new_number(own.device);
    if (one_device && wanted.factor) measured.factor = new_number(own.device);
    kernels::NormEnd end = one_device ? wanted.end : kernels::NormEnd();
    end.factor = doubles(measured.factor);
    kernels::backend(own.device)
        .list_norm->norm({.lists = own.lists,
                          .order = wanted.order,
                          .p = wanted.p,
                          .sum = doubles(measured.sums.back()),
                          .total = doubles(measured.total),
                          .per_tensor = doubles(measured.per_tensor.back()),
                          .end = end},
                         current_stream(own.device));
  }
  plan.release_copies();
  for (size_t e = 0; wanted.per_tensor && e < plan.size(); ++e) {
    const auto [device, start] = by_device.starts[static_cast<size_t>(plan.position(e).group)];
    measured.positions.emplace_back(device, start + plan.position(e).index);
  }
  if (!one_device && (wanted.total || wanted.factor))
    std::tie(measured.total, measured.factor) = [&] {
      const FinishedNorm made = finished(added(measured.sums, wanted.order), wanted.order, wanted.p, wanted.end);
      return std::pair(made.norm, made.factor);
    }();
  return measured;
}

/// Calls f with the list's plan, up to date and locked.
template <class F>
auto with_plan(const TensorList& x, const F& f) {
  detail::PlanCache& cache = *x.body()->plans;
  const std::scoped_lock lock(cache.mutex);
  return f(plan_of(cache, x));
}

Measured measure(const TensorList& x, const Wanted& wanted) {
  require_unrecorded(x);
  if (!x.empty()) return with_plan(x, [&](detail::NormPlan& norms) { return measure(norms.plan, wanted); });
  const Tensor zero = zeros({}, {.dtype = kF64});
  return {.per_tensor = {}, .positions = {}, .sums = {zero}, .total = zero, .factor = {}};
}

void require_writable(const TensorList& x) {
  require_unrecorded(x);
  for (const Tensor& t : x) door::require_writable(t);
}

void require_no_overlap(detail::NormPlan& norms, const TensorList& x) {
  if (!norms.no_overlap) foreach::require_no_overlap(x.tensors());
  norms.no_overlap = true;
}

/// Calls f, and announces it as a call over x where somebody listens. in_place: x is written. outputs() gives the
/// results, those after x's entries in place.
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
                            std::span(list).first(sizeof...(A)));
  f();
  std::vector<Tensor> results;
  if (in_place) results = x.tensors();
  for (Tensor& t : outputs()) results.push_back(std::move(t));
  announced.finish(results);
}

/// Multiplies everything by the factor of a clip.
void scale(detail::NormPlan& norms, const TensorList& x, const Tensor& factor) {
  ListPlan& plan = norms.plan;
  if (norms.scaled == 0) norms.scaled = plan.add_lists({0}, /*with_copies=*/false);
  for (size_t g = 0; g < plan.groups().size(); ++g) {
    const Device device = plan.groups()[g].device;
    const Tensor there = factor.to(device);
    kernels::backend(device).list_norm->scale(plan.list(g, norms.scaled), doubles(there), current_stream(device));
  }
  for (const Tensor& t : x)
    if (t.layout().is_dense())
      t.storage().written_by(t_operator);
    else
      t.mul_(formula::multiplier(factor.to(t.device())));
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

/// One pass over all tensors, and the dtype of the results; none: that of each tensor.
struct OnePass {
  NormOrder order;
  std::optional<DType> dtype;
  double p = 0;  ///< of NormOrder::power
};
/// No pass over all: the operator for each tensor.
constexpr std::optional<OnePass> each;

/// What one pass gives for every entry.
std::vector<Tensor> numbers(const TensorList& x, const OnePass& pass) {
  const Measured measured = measure(x, {.order = pass.order, .p = pass.p, .per_tensor = true});
  std::vector<Tensor> of_entries;
  // of all numbers of a device, made when a tensor of the dtype is met
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

/// A reduction of each tensor: `alone` is the operator, which is called for each where gradients are recorded.
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
  const bool in_one_pass = pass && std::ranges::all_of(x, [](const Tensor& t) { return is_floating(t.dtype()); });
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
  const Wanted wanted{.order = order_of(ord), .p = ord, .total = true, .factor = true, .end = {.max_norm = max_norm}};
  if (x.empty()) return measure(x, wanted).total;
  require_writable(x);
  Tensor total;
  const auto clip = [&](detail::NormPlan& norms) {
    require_no_overlap(norms, x);
    const Measured measured = measure(norms.plan, wanted);
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
