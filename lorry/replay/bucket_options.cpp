#include "lorry/replay/bucket_options.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lorry::replay {

const char* name(Execution execution) {
  constexpr const char* kNames[] = {"eager", "graph", "compiled", "both"};
  return kNames[static_cast<size_t>(execution)];
}

std::vector<int64_t> default_sizes(bool padding, int64_t largest) {
  if (largest < 1) raise_as<ValueError>("default_sizes", "the largest size is not positive; got {}", largest);
  std::vector<int64_t> sizes;
  if (padding) {
    sizes = {1, 2, 4};
    for (int64_t size = 8; size <= largest; size += 8) sizes.push_back(size);
  } else {
    for (int64_t size = 1; size <= 32; ++size) sizes.push_back(size);
    sizes.insert(sizes.end(), {64, 96, 128, 160});
  }
  std::erase_if(sizes, [&](int64_t size) { return size > largest; });
  if (padding && sizes.back() < largest) sizes.push_back(largest);
  return sizes;
}

double padding_waste(const std::vector<BucketStats>& buckets) {
  int64_t padded = 0, rows = 0;
  for (const BucketStats& bucket : buckets) padded += bucket.padded_rows, rows += bucket.hits * bucket.size;
  return rows == 0 ? 0 : static_cast<double>(padded) / static_cast<double>(rows);
}

namespace detail {
namespace {

constexpr const char* kWhere = "BucketSet";

void check_dims(const char* what, const std::vector<int>& dims) {
  for (const int dim : dims)
    if (dim < -1 || dim >= kMaxRank)
      raise_as<ValueError>(kWhere, "{} has a dimension out of range; got {}; expected 0 to {}, or -1 for none", what,
                           dim, kMaxRank - 1);
}

void check_executions(const BucketOptions& options, const std::vector<int64_t>& sizes) {
  for (const auto& [size, execution] : options.executions)
    if (!std::ranges::binary_search(sizes, size))
      raise_as<ValueError>(kWhere, "executions has a size that is no bucket; got {}; expected some of {}", size, sizes);
  if (options.policy != Policy::fixed && (!options.executions.empty() || options.compiled_up_to != 0))
    raise_as<ValueError>(kWhere,
                         "the policy chooses executions by their time; leave executions and compiled_up_to empty, or "
                         "choose Policy::fixed");
}

void check_background(const BucketOptions& options) {
  if (options.capture != Capture::in_background) return;
  if (options.policy != Policy::fixed)
    raise_as<ValueError>(kWhere,
                         "executions cannot be measured in the background, beside calls; capture at_start or "
                         "at_first_use, or choose Policy::fixed");
  if (options.choose_forward)
    raise_as<ValueError>(kWhere,
                         "choose_forward cannot serve captures in the background and calls at once; capture at_start "
                         "or at_first_use");
}

}  // namespace

void check(const BucketOptions& options) {
  const std::vector<int64_t> sizes = sizes_of(options);
  if (sizes[0] < 1 || std::ranges::adjacent_find(sizes) != sizes.end())
    raise_as<ValueError>(kWhere, "sizes must be positive and different; got {}", options.sizes);
  check_dims("dims", options.dims);
  check_dims("result_dims", options.result_dims);
  if (options.compiled_up_to < 0)
    raise_as<ValueError>(kWhere, "compiled_up_to is negative; got {}; expected a size, or 0 for none",
                         options.compiled_up_to);
  if (options.memory_budget < 0)
    raise_as<ValueError>(kWhere, "memory_budget is negative; got {}; expected bytes, or 0 for no limit",
                         options.memory_budget);
  if (options.warm_up < 0)
    raise_as<ValueError>(kWhere, "warm_up is negative; got {}; expected a number of runs", options.warm_up);
  check_executions(options, sizes);
  check_background(options);
}

void check_size_argument(const BucketOptions& options) {
  if (options.verify)
    raise_as<ValueError>(kWhere,
                         "verify is not for functions with a size argument: their rows of padding are the caller's "
                         "memory, which a second run would change again; compare the results yourself");
  if (options.capture == Capture::in_background)
    raise_as<ValueError>(kWhere,
                         "functions with a size argument cannot be captured in the background: they use memory of the "
                         "caller's, which the captures would use beside calls; capture at_start or at_first_use");
}

std::vector<int64_t> sizes_of(const BucketOptions& options) {
  std::vector<int64_t> sizes = options.sizes.empty() ? default_sizes(options.padding, options.largest) : options.sizes;
  std::ranges::sort(sizes);
  return sizes;
}

Execution execution_of(const BucketOptions& options, int64_t size) {
  if (const auto found = options.executions.find(size); found != options.executions.end()) return found->second;
  if (size > options.compiled_up_to) return options.execution;
  return has_graph(options.execution) ? Execution::both : Execution::compiled;
}

}  // namespace detail
}  // namespace lorry::replay
