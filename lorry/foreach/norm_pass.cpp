#include "lorry/foreach/norm_pass.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "lorry/formula/clip.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/pointwise.h"

namespace lorry::foreach::detail {
namespace {

void require_measurable(const Tensor& t) {
  require_defined(t, "a tensor");
  require<DTypeError>(is_floating(t.dtype()), "a tensor is not floating; got {}; expected one of {}", t,
                      kFloatingNames);
}

NormPlan make_plan(const TensorList& x, Strategy strategy) {
  NormPlan made{.plan = ListPlan(1, {0}, strategy)};
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

void require_unrecorded(const TensorList& x) {
  if (mode(kGradMode))
    for (const Tensor& t : x)
      require<GradError>(!t.requires_grad(),
                         "gradients are not recorded through a list's norms; got {}; use NoGrad, or foreach::norm", t);
}

/// The lists of a device, and where each group's entries begin among those of the device.
struct DeviceLists {
  Device device;
  std::vector<const kernels::List*> lists = {};
  int64_t entries = 0;
};
struct ByDevice {
  std::vector<DeviceLists> devices;
  std::vector<std::pair<size_t, int64_t>> starts;  ///< for each group: which device, and its first entry there

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

Tensor new_number(Device device) { return empty({}, {kF64, device}); }

}  // namespace

NormOrder order_of(double ord) {
  require<ValueError>(ord > 0, "ord is out of range; got {}; expected a number > 0, or infinity", ord);
  return ord == 1 ? NormOrder::one : ord == 2 ? NormOrder::two : std::isinf(ord) ? NormOrder::inf : NormOrder::power;
}

NormPlan& plan_of(PlanCache& cache, const TensorList& x) {
  const Strategy strategy = current_strategy();
  if (cache.norms != nullptr) {
    const std::span<const Tensor> roles[] = {x.tensors()};
    const ListPlan::Change change =
        cache.norms->plan.strategy() == strategy ? cache.norms->plan.refresh(roles) : ListPlan::Change::layout;
    if (change == ListPlan::Change::layout) cache.norms.reset();
    if (change == ListPlan::Change::addresses) cache.norms->no_overlap = false;
  }
  if (cache.norms == nullptr) cache.norms = std::make_unique<NormPlan>(make_plan(x, strategy));
  return *cache.norms;
}

Tensor added(const std::vector<Tensor>& sums, NormOrder order) {
  Tensor sum = sums[0];
  for (const Tensor& more : std::span(sums).subspan(1)) {
    const Tensor here = more.to(sum.device());
    sum = order == NormOrder::inf ? maximum(sum, here) : sum + here;
  }
  return sum;
}

FinishedNorm finished(const Tensor& sum, NormOrder order, double p, kernels::NormEnd end) {
  const FinishedNorm made{new_number(sum.device()), new_number(sum.device())};
  end.factor = doubles(made.factor);
  kernels::backend(sum.device())
      .list_norm->finish({.sum = doubles(sum), .order = order, .p = p, .total = doubles(made.norm), .end = end},
                         current_stream(sum.device()));
  return made;
}

/// One pass on each device. If there are several, each gives its sum to the first, which finishes the norm.
Measured measure(ListPlan& plan, const NormRequest& request) {
  plan.fill_copies();
  Measured measured;
  const ByDevice by_device(plan);
  const bool one_device = by_device.devices.size() == 1;
  const bool sums = request.sum || (!one_device && (request.total || request.factor));
  for (const DeviceLists& own : by_device.devices) {
    measured.per_tensor.push_back(request.per_tensor ? empty({own.entries}, {kF64, own.device}) : Tensor());
    measured.sums.push_back(sums ? new_number(own.device) : Tensor());
    if (one_device && request.total) measured.total = new_number(own.device);
    if (one_device && request.factor) measured.factor = new_number(own.device);
    kernels::NormEnd end = one_device ? request.end : kernels::NormEnd();
    end.factor = doubles(measured.factor);
    const kernels::ListNormCall call{.lists = own.lists,
                                     .order = request.order,
                                     .p = request.p,
                                     .sum = doubles(measured.sums.back()),
                                     .total = doubles(measured.total),
                                     .per_tensor = doubles(measured.per_tensor.back()),
                                     .end = end};
    (kernels::backend(own.device).list_norm->*request.kernel)(call, current_stream(own.device));
  }
  plan.release_copies();
  for (size_t e = 0; request.per_tensor && e < plan.size(); ++e) {
    const auto [device, start] = by_device.starts[static_cast<size_t>(plan.position(e).group)];
    measured.positions.emplace_back(device, start + plan.position(e).index);
  }
  if (!one_device && (request.total || request.factor))
    std::tie(measured.total, measured.factor) = [&] {
      const FinishedNorm made = finished(added(measured.sums, request.order), request.order, request.p, request.end);
      return std::pair(made.norm, made.factor);
    }();
  return measured;
}

Measured measure(const TensorList& x, const NormRequest& request) {
  require_unrecorded(x);
  if (!x.empty()) return with_plan(x, [&](NormPlan& norms) { return measure(norms.plan, request); });
  const Tensor zero = zeros({}, {.dtype = kF64});
  return {.per_tensor = {}, .positions = {}, .sums = {zero}, .total = zero, .factor = {}};
}

void require_writable(const TensorList& x) {
  require_unrecorded(x);
  for (const Tensor& t : x) door::require_writable(t);
}

void require_no_overlap(NormPlan& norms, const TensorList& x) {
  if (!norms.no_overlap) foreach::require_no_overlap(x.tensors());
  norms.no_overlap = true;
}

void scale(NormPlan& norms, const TensorList& x, const Tensor& factor) {
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

}  // namespace lorry::foreach::detail
