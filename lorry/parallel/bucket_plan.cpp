#include "lorry/parallel/bucket_plan.h"

#include <algorithm>
#include <utility>

namespace lorry::parallel {
namespace {

int64_t rounded_up(int64_t elements, int64_t to) { return (elements + to - 1) / to * to; }

}  // namespace

BucketPlan plan_buckets(std::span<const Tensor> parameters, std::span<const size_t> order, int64_t bucket_bytes,
                        int64_t parts) {
  BucketPlan plan;
  plan.places.resize(parameters.size());
  const auto memory_of = [&](DType dtype) {
    const auto found = std::ranges::find(plan.memories, dtype, &BucketPlan::Memory::dtype);
    if (found == plan.memories.end()) plan.memories.push_back({dtype});
    return static_cast<size_t>(std::ranges::find(plan.memories, dtype, &BucketPlan::Memory::dtype) -
                               plan.memories.begin());
  };
  const auto close = [&] {
    if (plan.buckets.empty()) return;
    BucketPlan::Bucket& bucket = plan.buckets.back();
    bucket.end = bucket.begin + rounded_up(bucket.end - bucket.begin, kBucketAlignment * parts);
    plan.memories[bucket.memory].elements = bucket.end;
  };
  int64_t left = 0;  // bytes of the parameters that are not placed yet
  for (const size_t i : order) left += parameters[i].nbytes();
  const int64_t small = std::max<int64_t>(bucket_bytes / 8, 1);
  bool is_last = false;
  for (const size_t i : order) {
    const DType dtype = parameters[i].dtype();
    const size_t memory = memory_of(dtype);
    const int64_t most = plan.buckets.size() == 1 ? small : bucket_bytes;
    const bool begins_last = left <= small && !std::exchange(is_last, left <= small);
    left -= parameters[i].nbytes();
    const bool fits = !plan.buckets.empty() && plan.buckets.back().memory == memory && !begins_last &&
                      (plan.buckets.back().end - plan.buckets.back().begin) * size_of(dtype) < most;
    if (!fits) {
      close();
      const int64_t begin = plan.memories[memory].elements;
      plan.buckets.push_back({.memory = memory, .begin = begin, .end = begin});
    }
    BucketPlan::Bucket& bucket = plan.buckets.back();
    plan.places[i] = {.memory = memory, .offset = bucket.end, .bucket = plan.buckets.size() - 1};
    bucket.end += rounded_up(parameters[i].numel(), kBucketAlignment);
  }
  close();
  return plan;
}

}  // namespace lorry::parallel
