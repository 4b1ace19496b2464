#include "lorry/parallel/shards.h"

#include <algorithm>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"

namespace lorry::parallel {

Shards::Shards(const BucketPlan& plan, const std::vector<Tensor>& parameters, ProcessGroup group)
    : plan_(plan), group_(std::move(group)) {
  const NoGrad no_grad;
  const Device device = parameters.empty() ? kCPU : parameters[0].device();
  for (const auto& [dtype, elements] : plan.memories) {
    values_.push_back(zeros({elements}, {.dtype = dtype, .device = device}));
    own_gradients_.push_back(zeros({elements / group_.size()}, {.dtype = dtype, .device = device}));
  }
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    const BucketPlan::Bucket& x = plan.buckets[b];
    const auto [begin, end] = run_of(b, group_.rank());
    runs_.push_back(values_[x.memory].narrow(0, x.begin, x.end - x.begin));
    own_runs_.push_back(values_[x.memory].narrow(0, begin, end - begin));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& x = parameters[i];
    const auto& [memory, offset, bucket] = plan.places[i];
    const Tensor place = values_[memory].narrow(0, offset, x.numel());
    place.view(x.sizes()).copy_(x);
    x.set_data(place.view(x.sizes()).detach());
    counts_.push_back(x.numel());
    const OwnRange own = part_of(i, group_.rank());
    own_.push_back(place.narrow(0, own.first, own.count).detach().requires_grad_());
    numbers_[own_.back().node()] = i;
  }
}

std::pair<int64_t, int64_t> Shards::run_of(size_t bucket, int rank) const {
  const BucketPlan::Bucket& x = plan_.buckets[bucket];
  const int64_t count = (x.end - x.begin) / group_.size();
  return {x.begin + rank * count, x.begin + (rank + 1) * count};
}

OwnRange Shards::part_of(size_t parameter, int rank) const {
  const BucketPlan::Place& place = plan_.places[parameter];
  const auto [begin, end] = run_of(place.bucket, rank);
  const int64_t first = std::max<int64_t>(begin - place.offset, 0),
                last = std::min(end - place.offset, counts_[parameter]);
  return first < last ? OwnRange{first, last - first} : OwnRange{};
}

size_t Shards::parameter_of(const Tensor& own) const {
  const auto found = numbers_.find(own.node());
  return found == numbers_.end() ? own_.size() : found->second;
}

bool Shards::holds(const Tensor& parameter) const {
  return std::ranges::any_of(values_, [&](const Tensor& x) { return x.storage().id() == parameter.storage().id(); });
}

Tensor Shards::own_gradient(size_t bucket) const {
  const BucketPlan::Bucket& x = plan_.buckets[bucket];
  return own_gradients_[x.memory].narrow(0, x.begin / group_.size(), (x.end - x.begin) / group_.size());
}

void Shards::set_gradients() const {
  for (size_t i = 0; i < own_.size(); ++i) {
    if (own_[i].grad().defined()) continue;
    const BucketPlan::Place& place = plan_.places[i];
    const int64_t begin = run_of(place.bucket, group_.rank()).first;
    const OwnRange own = part_of(i, group_.rank());
    const int64_t at = own.count == 0 ? 0 : place.offset + own.first - begin;
    own_[i].set_grad(own_gradient(place.bucket).narrow(0, at, own.count));
  }
}

void Shards::gather() {
  const NoGrad no_grad;
  for (size_t b = runs_.size(); b-- > 0;) arrivals_.expect(runs_[b], begin_all_gather(runs_[b], own_runs_[b], group_));
}

}  // namespace lorry::parallel
