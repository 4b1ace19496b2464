#include "lorry/parallel/data_parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/gradient_destination.h"
#include "lorry/base/error.h"
#include "lorry/ops/ops.h"

namespace lorry::parallel {
namespace {

constexpr const char* kName = "DataParallel";
/// Elements at which gradients begin: a multiple of what vector loads need, for every dtype.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

void require_parameters(const std::vector<std::pair<std::string, Tensor>>& parameters) {
  if (parameters.empty()) raise_as<ValueError>(kName, "there are no parameters; expected one or more");
  std::vector<const void*> nodes;
  for (const auto& [name, x] : parameters) {
    if (!x.defined()) raise_as<ValueError>(kName, "parameter '{}' is undefined", name);
    if (x.device() != parameters[0].second.device())
      raise_as<DeviceError>(kName, "the parameters are on different devices; got {}, {}", parameters[0].second, x);
    if (std::ranges::find(nodes, x.node()) != nodes.end())
      raise_as<ValueError>(kName, "parameter '{}' is listed twice", name);
    nodes.push_back(x.node());
  }
}

}  // namespace

DataParallel::DataParallel(std::vector<std::pair<std::string, Tensor>> parameters, const ProcessGroup& group,
                           const DataParallelOptions& options)
    : group_(group), options_(options) {
  if (options.bucket_bytes < 1)
    raise_as<ValueError>(kName, "bucket_bytes is not positive; got {}", options.bucket_bytes);
  require_parameters(parameters);
  std::string all;
  for (const auto& [name, x] : parameters)
    all += fmt::format("{} {} [{}]{}\n", name, lorry::name(x.dtype()), fmt::join(x.sizes(), ", "),
                       x.requires_grad() ? "" : " without gradient");
  group_.require_same("the list of parameters", all);
  {
    const NoGrad no_grad;
    std::vector<Tensor> list;
    for (const auto& [name, x] : parameters) list.push_back(x);
    broadcast_(list, group_);
  }
  for (auto& [name, x] : parameters)
    if (x.requires_grad()) parameters_.push_back({.name = std::move(name), .tensor = x});
  for (const Parameter& x : parameters_) x.tensor.set_grad({});
  // Gradients come in the opposite order of the forward, more or less.
  std::vector<size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  lay_out(order);
}

DataParallel::~DataParallel() {
  for (const Parameter& x : parameters_) autograd::set_gradient_destination(x.tensor, {}, {});
}

void DataParallel::lay_out(const std::vector<size_t>& order) {
  order_ = order;
  const auto old_memory = std::move(memory_);  // until its gradients are copied
  memory_.clear(), buckets_.clear();
  const NoGrad no_grad;
  // A memory for each dtype, in the order in which the dtypes come.
  std::vector<std::pair<DType, int64_t>> sizes;
  const auto memory_of = [&](DType dtype) {
    const auto found = std::ranges::find(sizes, dtype, &std::pair<DType, int64_t>::first);
    return static_cast<size_t>(found - sizes.begin());
  };
  for (const size_t i : order_) {
    const Tensor& x = parameters_[i].tensor;
    if (memory_of(x.dtype()) == sizes.size()) sizes.emplace_back(x.dtype(), 0);
    int64_t& size = sizes[memory_of(x.dtype())].second;
    parameters_[i].offset = size;
    size += aligned(x.numel());
  }
  const Device device = parameters_.empty() ? kCPU : parameters_[0].tensor.device();
  for (const auto& [dtype, size] : sizes) memory_.push_back(zeros({size}, {.dtype = dtype, .device = device}));

  // Buckets are runs of parameters of one dtype, as they lie in its memory.
  int64_t begin = 0, end = 0, most = std::max<int64_t>(options_.bucket_bytes / 8, 1);
  std::optional<DType> dtype;
  const auto close = [&] {
    if (!dtype) return;
    buckets_.back().elements = memory_[memory_of(*dtype)].narrow(0, begin, end - begin);
    dtype.reset();
  };
  for (const size_t i : order_) {
    Parameter& x = parameters_[i];
    if (dtype && (*dtype != x.tensor.dtype() || (end - begin) * size_of(*dtype) >= most)) {
      close();
      most = options_.bucket_bytes;
    }
    if (!dtype) buckets_.emplace_back(), dtype = x.tensor.dtype(), begin = x.offset;
    end = x.offset + aligned(x.tensor.numel());
    x.bucket = buckets_.size() - 1;
    ++buckets_.back().parameters, ++buckets_.back().missing;
  }
  close();
  for (const size_t i : order_) {
    const Parameter& x = parameters_[i];
    const Tensor place = place_of(x);
    if (const Tensor present = x.tensor.grad(); present.defined()) {
      place.copy_(present);
      x.tensor.set_grad(place);
    }
    autograd::set_gradient_destination(x.tensor, place, [this, i] { arrived(i); });
  }
}

Tensor DataParallel::place_of(const Parameter& x) const {
  const auto memory = std::ranges::find(memory_, x.tensor.dtype(), &Tensor::dtype);
  return memory->narrow(0, x.offset, x.tensor.numel()).view(x.tensor.sizes());
}

void DataParallel::arrived(size_t parameter) {
  Parameter& x = parameters_[parameter];
  if (x.has_arrived && x.bucket < next_)
    raise<GradError>(
        "a gradient of '{}' has come after its sum over the ranks was begun; call all backwards of a step "
        "but the last under DataParallel::NoSync",
        x.name);
  if (!sends_ || x.has_arrived) return;
  x.has_arrived = true;
  if (!is_ordered_) arrivals_.push_back(parameter);
  --buckets_[x.bucket].missing;
  if (is_ordered_) send_ready();
}

void DataParallel::send_ready() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) send(buckets_[next_]);
}

void DataParallel::send(Bucket& bucket) {
  if (group_.size() == 1) return;
  const NoGrad no_grad;
  const bool converts = options_.reduce_in && *options_.reduce_in != bucket.elements.dtype();
  if (converts) bucket.in_other_dtype = bucket.elements.to(*options_.reduce_in);
  const Tensor& sent = converts ? bucket.in_other_dtype : bucket.elements;
  if (group_.is_reproducible())
    all_reduce_(sent, group_);
  else
    bucket.begun = begin_all_reduce({sent}, group_);
}

void DataParallel::finish() {
  if (!sends_) raise_as<ValueError>(kName, "finish is called inside NoSync; call it after a backward outside of it");
  const NoGrad no_grad;
  for (const Parameter& x : parameters_) {
    if (x.has_arrived || x.tensor.grad().defined()) continue;
    const Tensor place = place_of(x);
    place.zero_();
    x.tensor.set_grad(place);
  }
  for (; next_ < buckets_.size(); ++next_) send(buckets_[next_]);
  for (Bucket& bucket : buckets_) {
    bucket.begun.wait();
    if (bucket.in_other_dtype.defined()) bucket.elements.copy_(bucket.in_other_dtype), bucket.in_other_dtype = {};
    bucket.missing = bucket.parameters;
  }
  for (Parameter& x : parameters_) x.has_arrived = false;
  next_ = 0;
  if (!is_ordered_) reorder();
}

/// After the first step: gradients lie, and are sent, in the order in which they arrived on rank 0.
void DataParallel::reorder() {
  is_ordered_ = true;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (std::ranges::find(arrivals_, i) == arrivals_.end()) arrivals_.push_back(i);
  std::istringstream first(group_.exchange(fmt::format("{}", fmt::join(arrivals_, " ")))[0]);
  std::vector<size_t> order;
  for (size_t i; first >> i;) order.push_back(i);
  arrivals_.clear();
  require<ParallelError>(order.size() == parameters_.size(), "DataParallel: rank 0 has another number of parameters");
  if (order != order_) lay_out(order);
}

int DataParallel::ranks_with_batch(bool has_batch) const {
  int count = 0;
  for (const std::string& x : group_.exchange(has_batch ? "1" : "0")) count += x == "1";
  return count;
}

int64_t DataParallel::bytes() const {
  int64_t sum = 0;
  for (const Bucket& x : buckets_) sum += x.elements.numel() * size_of(options_.reduce_in.value_or(x.elements.dtype()));
  return sum;
}

}  // namespace lorry::parallel
