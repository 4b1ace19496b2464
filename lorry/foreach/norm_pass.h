#pragma once

// One pass over the tensors of a list: their norms, the sum of all, and the factor by which a clip scales them. norm.h
// has the public functions.

#include <mutex>
#include <utility>
#include <vector>

#include "lorry/foreach/norm.h"
#include "lorry/foreach/operator_plan.h"
#include "lorry/kernels/list.h"

namespace lorry::foreach::detail {

using Kernels = kernels::ListNormKernels;
using kernels::NormOrder;
/// A kernel that gives a number for each entry of a device's lists in one pass: norm, or one with the same call.
using PassKernel = decltype(&Kernels::norm);

/// What a pass is to compute.
struct NormRequest {
  PassKernel kernel = &Kernels::norm;
  NormOrder order;
  double p = 0;  ///< of NormOrder::power
  bool per_tensor = false, sum = false, total = false, factor = false;
  kernels::NormEnd end = {};  ///< how the total and the factor are computed; its address of the factor is not used
};

/// The results of a pass; undefined where they were not requested.
struct Measured {
  std::vector<Tensor> per_tensor;                     ///< for each device the numbers of its entries, group by group
  std::vector<std::pair<size_t, int64_t>> positions;  ///< for each entry: which device, and its index there
  std::vector<Tensor> sums;                           ///< for each device the sum over its elements
  Tensor total, factor;                               ///< of all elements
};

/// Throws ValueError unless ord > 0.
NormOrder order_of(double ord);

/// The list's plan, up to date. The caller holds the lock of the cache.
NormPlan& plan_of(PlanCache& cache, const TensorList& x);
/// Calls f with the list's plan, up to date and locked.
template <class F>
auto with_plan(const TensorList& x, const F& f) {
  PlanCache& cache = *x.body()->plans;
  const std::scoped_lock lock(cache.mutex);
  return f(plan_of(cache, x));
}

/// A pass over a plan's lists, or over a list, for which gradients must not be recorded (GradError).
Measured measure(ListPlan& plan, const NormRequest& request);
Measured measure(const TensorList& x, const NormRequest& request);
/// The devices' sums as one, on the first device.
Tensor added(const std::vector<Tensor>& sums, NormOrder order);
/// The norm and the factor from the sum, on its device.
FinishedNorm finished(const Tensor& sum, NormOrder order, double p, kernels::NormEnd end);

/// Throws if the list may not be written: see clip_norm_.
void require_writable(const TensorList& x);
void require_no_overlap(NormPlan& norms, const TensorList& x);
/// Multiplies all elements by the factor of a clip.
void scale(NormPlan& norms, const TensorList& x, const Tensor& factor);

}  // namespace lorry::foreach::detail
