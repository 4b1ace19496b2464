#include "lorry/parallel/data_parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/gradient_destination.h"
#include "lorry/base/error.h"
#include "lorry/foreach/foreach.h"
#include "lorry/foreach/norm.h"
#include "lorry/formula/quantize.h"
#include "lorry/ops/ops.h"
#include "lorry/parallel/joint_step.h"
#include "lorry/parallel/shards.h"

namespace lorry::parallel {
namespace {

constexpr const char* kName = "DataParallel";

void require_parameters(const std::vector<std::pair<std::string, Tensor>>& parameters, bool shard) {
  if (parameters.empty()) raise_as<ValueError>(kName, "there are no parameters; expected one or more");
  std::vector<const void*> nodes;
  for (const auto& [name, x] : parameters) {
    if (!x.defined()) raise_as<ValueError>(kName, "parameter '{}' is undefined", name);
    if (x.device() != parameters[0].second.device())
      raise_as<DeviceError>(kName, "the parameters are on different devices; got {}, {}", parameters[0].second, x);
    if (std::ranges::find(nodes, x.node()) != nodes.end())
      raise_as<ValueError>(kName, "parameter '{}' is listed twice", name);
    if (shard && x.dim() == 0)
      raise_as<ValueError>(kName, "parameter '{}' is 0-d, which cannot be sharded; make it [1]", name);
    nodes.push_back(x.node());
  }
}

}  // namespace

DataParallel::DataParallel(std::vector<std::pair<std::string, Tensor>> parameters, const ProcessGroup& group,
                           const DataParallelOptions& options)
    : group_(group), options_(options) {
  if (options.bucket_bytes < 1)
    raise_as<ValueError>(kName, "bucket_bytes is not positive; got {}", options.bucket_bytes);
  require_parameters(parameters, options.shard);
  give_parameters_of_rank_0(parameters);
  for (auto& [name, x] : parameters)
    if (x.requires_grad()) parameters_.push_back({.name = std::move(name), .tensor = x});
  for (const Parameter& x : parameters_) x.tensor.set_grad({});
  // Gradients come in the opposite order of the forward, more or less.
  std::vector<size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  lay_out(order);
  if (!options.shard) return;
  is_ordered_ = true;  // an optimizer has states of the parts
  shards_ = std::make_unique<Shards>(plan_, tensors(), group_);
  for (size_t b = 0; b < buckets_.size(); ++b) buckets_[b].own = shards_->own_gradient(b);
}

DataParallel::~DataParallel() {
  // What is on its way is written still. If a rank has failed, the next call of the group says so.
  try {
    for (Bucket& bucket : buckets_) bucket.begun.wait();
  } catch (...) {
  }
  for (const Parameter& x : parameters_) autograd::set_gradient_destination(x.tensor, {}, {});
}

void DataParallel::give_parameters_of_rank_0(const std::vector<std::pair<std::string, Tensor>>& parameters) const {
  std::string all = fmt::format("buckets of {} bytes{}{}\n", options_.bucket_bytes, options_.shard ? ", shards" : "",
                                options_.reduce_in ? fmt::format(", sums in {}", *options_.reduce_in) : "");
  for (const auto& [name, x] : parameters)
    all += fmt::format("{} {} [{}]{}\n", name, lorry::name(x.dtype()), fmt::join(x.sizes(), ", "),
                       x.requires_grad() ? "" : " without gradient");
  group_.require_same("the list of parameters", all);
  const NoGrad no_grad;
  std::vector<Tensor> list;
  for (const auto& [name, x] : parameters) list.push_back(x);
  broadcast_(list, group_);
}

std::vector<Tensor> DataParallel::tensors() const {
  std::vector<Tensor> list;
  for (const Parameter& x : parameters_) list.push_back(x.tensor);
  return list;
}

// ---- where gradients lie --------------------------------------------------------------------------------------------

void DataParallel::lay_out(const std::vector<size_t>& order) {
  order_ = order;
  const auto old_memory = std::move(memory_);  // until its gradients are copied
  memory_.clear(), buckets_.clear();
  const NoGrad no_grad;
  plan_ = plan_buckets(tensors(), order_, options_.bucket_bytes, options_.shard ? group_.size() : 1);
  const Device device = parameters_.empty() ? kCPU : parameters_[0].tensor.device();
  for (const auto& [dtype, elements] : plan_.memories)
    memory_.push_back(zeros({elements}, {.dtype = dtype, .device = device}));
  for (const BucketPlan::Bucket& x : plan_.buckets)
    buckets_.push_back({.elements = memory_[x.memory].narrow(0, x.begin, x.end - x.begin)});
  for (const size_t i : order_) {
    const BucketPlan::Place& at = plan_.places[i];
    ++buckets_[at.bucket].missing;
    buckets_[at.bucket].members.push_back(i);
    const Tensor& x = parameters_[i].tensor;
    const Tensor& place = parameters_[i].place = memory_[at.memory].narrow(0, at.offset, x.numel()).view(x.sizes());
    if (const Tensor present = x.grad(); present.defined()) {
      place.copy_(present);
      x.set_grad(place);
    }
    autograd::set_gradient_destination(
        x, place, [this, i](autograd::Arrival what) { what == autograd::Arrival::begins ? begins(i) : arrived(i); });
  }
}

/// After the first step: gradients lie, and are sent, in the order in which they arrived on rank 0.
void DataParallel::reorder() {
  is_ordered_ = true;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (std::ranges::find(arrival_order_, i) == arrival_order_.end()) arrival_order_.push_back(i);
  std::istringstream first(group_.exchange(fmt::format("{}", fmt::join(arrival_order_, " ")))[0]);
  std::vector<size_t> order;
  for (size_t i; first >> i;) order.push_back(i);
  arrival_order_.clear();
  require<ParallelError>(order.size() == parameters_.size(), "DataParallel: rank 0 has another number of parameters");
  if (order != order_) lay_out(order);
}

// ---- sending them ---------------------------------------------------------------------------------------------------

/// The memory of a bucket that is on its way must not change.
void DataParallel::begins(size_t parameter) const {
  const Parameter& x = parameters_[parameter];
  if (x.has_arrived && plan_.places[parameter].bucket < next_)
    raise<GradError>(
        "a gradient of '{}' has come after its sum over the ranks was begun; call all backwards of a step "
        "but the last under DataParallel::NoSync",
        x.name);
}

void DataParallel::arrived(size_t parameter) {
  Parameter& x = parameters_[parameter];
  if (!sends_ || x.has_arrived) return;
  x.has_arrived = true;
  is_finished_ = false;
  if (!is_ordered_) arrival_order_.push_back(parameter);
  --buckets_[plan_.places[parameter].bucket].missing;
  if (is_ordered_) send_ready();
}

void DataParallel::send_ready() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) send(buckets_[next_]);
}

/// Brings the gradients of a bucket that lie elsewhere to their places, in one launch.
void DataParallel::collect(const Bucket& bucket) const {
  std::vector<Tensor> places, gradients;
  std::vector<const Tensor*> owners;
  for (const size_t i : bucket.members) {
    const auto& [name, x, place, has_arrived] = parameters_[i];
    const Tensor gradient = x.grad();
    if (gradient.data_ptr() == place.data_ptr()) continue;
    places.push_back(place), gradients.push_back(gradient), owners.push_back(&x);
  }
  if (places.empty()) return;
  foreach::copy_(places, gradients);
  for (size_t i = 0; i < places.size(); ++i) owners[i]->set_grad(places[i]);
}

void DataParallel::send(Bucket& bucket) {
  const NoGrad no_grad;
  collect(bucket);
  if (group_.size() == 1) {
    if (bucket.own.defined()) bucket.own.copy_(bucket.elements);
    return;
  }
  const bool converts = options_.reduce_in && *options_.reduce_in != bucket.elements.dtype();
  if (converts) bucket.in_other_dtype = bucket.elements.to(*options_.reduce_in);
  const Tensor& sent = converts ? bucket.in_other_dtype : bucket.elements;
  if (group_.is_reproducible()) {
    all_reduce_(sent, group_);  // also with shards: the norm is that of all gradients, in their order
  } else if (bucket.own.defined()) {
    if (converts) bucket.own_in_other_dtype = empty_like(bucket.own, *options_.reduce_in);
    bucket.begun = begin_reduce_scatter(converts ? bucket.own_in_other_dtype : bucket.own, sent, group_);
  } else {
    bucket.begun = begin_all_reduce({sent}, group_);
  }
}

/// Waits for a bucket, and brings what has come to its place.
void DataParallel::receive(Bucket& bucket) {
  bucket.begun.wait();
  if (bucket.own_in_other_dtype.defined())
    bucket.own.copy_(bucket.own_in_other_dtype);
  else if (bucket.in_other_dtype.defined())
    bucket.elements.copy_(bucket.in_other_dtype);
  if (bucket.own.defined() && group_.is_reproducible() && group_.size() > 1)
    bucket.own.copy_(bucket.elements.view({group_.size(), bucket.own.numel()}).select(0, group_.rank()));
}

void DataParallel::finish() {
  if (!sends_) raise_as<ValueError>(kName, "finish is called inside NoSync; call it after a backward outside of it");
  const NoGrad no_grad;
  for (const Parameter& x : parameters_) {
    if (x.has_arrived || x.tensor.grad().defined()) continue;
    x.place.zero_();
    x.tensor.set_grad(x.place);
  }
  for (; next_ < buckets_.size(); ++next_) send(buckets_[next_]);
  for (Bucket& bucket : buckets_) receive(bucket);
  begin_step();
  if (!is_ordered_) reorder();
  if (shards_) shards_->set_gradients();
  is_finished_ = true;
}

void DataParallel::begin_step() {
  for (Parameter& x : parameters_) x.has_arrived = false;
  for (Bucket& bucket : buckets_) {
    bucket.begun.wait();
    bucket.in_other_dtype = bucket.own_in_other_dtype = {};
    bucket.missing = static_cast<int64_t>(bucket.members.size());
  }
  next_ = 0;
  is_finished_ = false;
  stepped_.clear();
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

// ---- an optimizer's view --------------------------------------------------------------------------------------------

std::optional<size_t> DataParallel::find(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  if (found == parameters_.end()) return std::nullopt;
  return static_cast<size_t>(found - parameters_.begin());
}

std::vector<optim::NamedTensor> DataParallel::own_parts(const std::vector<optim::NamedTensor>& parameters) const {
  std::vector<optim::NamedTensor> own;
  for (const auto& [name, x] : parameters) {
    const std::optional<size_t> i = find(name);
    if (!i || parameters_[*i].tensor.node() != x.node())
      raise_as<ValueError>(kName, "'{}' is none of its parameters that need a gradient", name);
    own.emplace_back(name, shards_ ? shards_->own(*i) : x);
  }
  return own;
}

void DataParallel::zero_grad() {
  if (!is_finished_) arrival_order_.clear(), begin_step();
  for (const Parameter& x : parameters_) x.tensor.set_grad({});
}

void DataParallel::wait() {
  if (shards_) shards_->wait();
}

Tensor DataParallel::step(optim::Optimizer& optimizer, const optim::StepOptions& options) {
  if (!is_finished_ || std::ranges::find(stepped_, &optimizer) != stepped_.end()) finish();
  stepped_.push_back(&optimizer);
  return shards_ ? step_own(optimizer, options) : optimizer.step(options);
}

Tensor DataParallel::step_own(optim::Optimizer& optimizer, const optim::StepOptions& options) {
  const NoGrad no_grad;
  for (const Parameter& x : parameters_)
    if (!shards_->holds(x.tensor))
      raise_as<ValueError>(kName, "parameter '{}' has other memory than when it was sharded; convert a model first",
                           x.name);
  const std::vector<Tensor> own = optimizer.parameters();
  for (const Tensor& x : own)
    if (shards_->parameter_of(x) == parameters_.size())
      raise_as<ValueError>(kName, "the optimizer has a parameter that is none of own_parts(); got {}", x);
  const Tensor norm = step_by_joint_norm(optimizer, options, [&] { return sum_of_squares(own); });
  shards_->gather();
  if (options.zero_grad)
    for (const Tensor& x : own) parameters_[shards_->parameter_of(x)].place.zero_();
  return norm;
}

/// Of the gradients of all ranks for these own parts.
Tensor DataParallel::sum_of_squares(const std::vector<Tensor>& own) const {
  const bool has_whole = group_.is_reproducible() || group_.size() == 1;  // the sums of all
  if (!has_whole && own.size() == parameters_.size()) {
    const Tensor sum = foreach::power_sum(shards_->own_gradients());
    return all_reduce_(sum, group_);
  }
  std::vector<Tensor> gradients;
  for (const Tensor& x : own) gradients.push_back(has_whole ? parameters_[shards_->parameter_of(x)].place : x.grad());
  const Tensor sum = foreach::power_sum(gradients);
  return has_whole ? sum : all_reduce_(sum, group_);
}

// ---- states of the own parts and of the whole -----------------------------------------------------------------------

std::optional<OwnRange> DataParallel::own_range(std::string_view name) const {
  const std::optional<size_t> i = shards_ ? find(name) : std::nullopt;
  if (!i) return std::nullopt;
  return shards_->part_of(*i, group_.rank());
}

namespace {
/// The parameter that a state belongs to: "up.weight" of "up.weight.exp_avg".
std::string_view parameter_in(std::string_view key) { return key.substr(0, key.rfind('.')); }
/// Whether an entry is the scales of 8-bit codes: a number for each block of them.
bool is_scale(const optim::TensorMap& states, std::string_view key) {
  constexpr std::string_view kEnding = "_scale";
  if (!key.ends_with(kEnding)) return false;
  const auto codes = states.find(std::string(key.substr(0, key.size() - kEnding.size())));
  return codes != states.end() && codes->second.defined() && codes->second.dtype() == kU8;
}
}  // namespace

std::map<std::string, DataParallel::StatePlace> DataParallel::places_of_states(const optim::TensorMap& own) const {
  std::map<std::string, StatePlace> places;
  for (const auto& [key, x] : own) {
    const std::optional<OwnRange> range = own_range(parameter_in(key));
    if (!range || x.dim() == 0) {
      places[key] = {.sizes = x.sizes()};
      continue;
    }
    const Tensor& parameter = parameters_[*find(parameter_in(key))].tensor;
    if (is_scale(own, key))
      places[key] = {{formula::quant_blocks(parameter.numel())}, range->first / formula::kQuantBlock, true};
    else
      places[key] = {parameter.sizes(), range->first, true};
  }
  return places;
}

optim::TensorMap DataParallel::own_state(const optim::TensorMap& whole) const {
  optim::TensorMap own;
  for (const auto& [key, x] : whole) {
    own[key] = x;
    const std::optional<OwnRange> range = own_range(parameter_in(key));
    if (!range || !x.defined() || x.dim() == 0) continue;
    const Tensor& parameter = parameters_[*find(parameter_in(key))].tensor;
    const Dims blocks{formula::quant_blocks(parameter.numel())};
    const bool scale = is_scale(whole, key);
    require<ShapeError>(x.sizes() == (scale ? blocks : parameter.sizes()),
                        "state '{}' has another shape; got {}; expected {}", key, x,
                        scale ? blocks : parameter.sizes());
    own[key] = scale ? x.narrow(0, range->first / formula::kQuantBlock, formula::quant_blocks(range->count))
                     : x.contiguous().view({x.numel()}).narrow(0, range->first, range->count);
  }
  return own;
}

}  // namespace lorry::parallel
