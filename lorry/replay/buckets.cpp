#include "lorry/replay/buckets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lorry/autograd/grad_mode.h"
#include "lorry/memory/allocate.h"
#include "lorry/ops/ops.h"

namespace lorry::replay {
namespace {

/// The rows [begin, end) of a tensor, in the dimension of its batch.
Tensor rows(const Tensor& x, int dim, int64_t begin, int64_t end) { return x.narrow(dim, begin, end - begin); }

/// Whether two tensors have the same bits.
bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  const auto bytes = [](const Tensor& x) { return x.contiguous().view({-1}).view(kU8); };
  return a.numel() == 0 || bytes(a).equal(bytes(b));
}

std::vector<int64_t> checked_sizes(const BucketOptions& options) {
  std::vector<int64_t> sizes = options.sizes.empty() ? default_sizes(options.padding, options.largest) : options.sizes;
  std::ranges::sort(sizes);
  if (sizes[0] < 1 || std::ranges::adjacent_find(sizes) != sizes.end())
    raise_as<ValueError>("BucketSet", "sizes must be positive and different; got {}", sizes);
  return sizes;
}

}  // namespace

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

namespace detail {

Buckets::Buckets(Function function, BucketOptions options)
    : function_(std::move(function)),
      options_(std::move(options)),
      sizes_(checked_sizes(options_)),
      pool_(std::make_shared<memory::Pool>(options_.device.value_or(default_device()))) {}

int Buckets::dim_of(size_t argument) const { return argument < options_.dims.size() ? options_.dims[argument] : 0; }

/// The batch that the arguments have in common.
int64_t Buckets::batch_of(std::span<const Tensor> arguments) const {
  int64_t batch = -1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const int dim = dim_of(i);
    if (dim < 0) continue;
    if (arguments[i].dim() <= dim)
      raise_as<ShapeError>("BucketSet", "argument {} has no dimension {} that counts the batch; got {}", i, dim,
                           arguments[i]);
    const int64_t here = arguments[i].size(dim);
    if (batch >= 0 && here != batch)
      raise_as<ShapeError>("BucketSet", "arguments have different batches; got {} and, in argument {}, {}", batch, i,
                           here);
    batch = here;
  }
  if (batch < 0)
    raise_as<ValueError>("BucketSet", "no argument has a batch; expected one with a dimension that counts it");
  if (batch == 0) raise_as<ValueError>("BucketSet", "the batch is empty; expected at least one row");
  if (batch > sizes_.back())
    raise_as<ValueError>(
        "BucketSet",
        "the batch is larger than the largest bucket; got {}; expected at most {}; split the batch, or "
        "give a larger size",
        batch, sizes_.back());
  return batch;
}

void Buckets::check_shapes(std::span<const Tensor> arguments) const {
  if (arguments.size() != whole_.size())
    raise_as<ValueError>("BucketSet", "another number of tensors than in the capture; got {}; expected {}",
                         arguments.size(), whole_.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Tensor &x = arguments[i], &known = whole_[i];
    if (x.dtype() != known.dtype())
      raise_as<DTypeError>("BucketSet", "argument {} has another dtype than in the capture; got {}; expected {}", i, x,
                           known.dtype());
    bool same = x.dim() == known.dim();
    for (int64_t d = 0; same && d < x.dim(); ++d) same = d == dim_of(i) || x.size(d) == known.size(d);
    if (!same)
      raise_as<ShapeError>("BucketSet",
                           "argument {} has another shape than in the capture; got {}; expected {} with any "
                           "batch",
                           i, x, known.sizes());
  }
}

void Buckets::pad(const Tensor& rows, size_t argument) const {
  if (rows.numel() == 0) return;
  const double value = argument < options_.pad_values.size() ? options_.pad_values[argument] : 0;
  rows.fill_(options_.verify && is_floating(rows.dtype()) ? Scalar(NAN) : Scalar(value));
}

void Buckets::prepare(std::span<const Tensor> arguments) {
  if (!buckets_.empty()) return;
  const NoGrad no_gradients;
  const int64_t batch = batch_of(arguments);
  const Device device = options_.device.value_or(default_device());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const int dim = dim_of(i);
    Dims sizes = arguments[i].sizes();
    if (dim >= 0) sizes[dim] = sizes_.back();
    const Tensor& whole = whole_.emplace_back(empty(sizes, {arguments[i].dtype(), device}));
    written_.push_back(0);
    if (dim >= 0)
      pad(whole, i);
    else
      whole.copy_(arguments[i]);
  }
  // The captures run the function on these rows, as often as they fit: they are as good as any.
  for (size_t i = 0; i < arguments.size(); ++i)
    for (int64_t at = 0; dim_of(i) >= 0 && at < sizes_.back(); at += batch) {
      const int64_t end = std::min(at + batch, sizes_.back());
      rows(whole_[i], dim_of(i), at, end).copy_(rows(arguments[i], dim_of(i), 0, end - at));
      written_[i] = end;
    }
  const auto end = [&] {
    if (options_.before_capture) options_.before_capture(0);
  };
  try {
    for (size_t k = sizes_.size(); k-- > 0;) add(sizes_[k]);
  } catch (...) {
    buckets_.clear(), whole_.clear(), written_.clear();
    end();
    throw;
  }
  end();
}

void Buckets::add(int64_t size) {
  if (options_.before_capture) options_.before_capture(size);
  Bucket& bucket = buckets_[size];
  bucket.size = bucket.stats.size = size;
  for (size_t i = 0; i < whole_.size(); ++i)
    bucket.inputs.push_back(dim_of(i) < 0 ? whole_[i] : rows(whole_[i], dim_of(i), 0, size));
  bucket.graph.emplace([&] { return function_(bucket.inputs); },
                       CaptureOptions{.warm_up = options_.warm_up, .device = options_.device, .pool = pool_});
}

/// Copies the arguments to the bucket's inputs. Rows behind them are padding.
void Buckets::fill_in(Bucket& bucket, std::span<const Tensor> arguments, int64_t batch) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const int dim = dim_of(i);
    if (dim < 0) {
      whole_[i].copy_(arguments[i]);
      continue;
    }
    rows(whole_[i], dim, 0, batch).copy_(arguments[i]);
    if (batch < written_[i]) pad(rows(whole_[i], dim, batch, written_[i]), i);
    written_[i] = batch;
  }
  ++bucket.stats.hits;
  bucket.stats.padded_rows += bucket.size - batch;
}

std::vector<Tensor> Buckets::cut(const Bucket& bucket, int64_t batch) const {
  std::vector<Tensor> results;
  for (const Tensor& x : bucket.graph->outputs()) {
    const size_t i = results.size();
    const int dim = i < options_.result_dims.size() ? options_.result_dims[i] : 0;
    if (dim < 0 || batch == bucket.size) {
      results.push_back(x);
      continue;
    }
    if (!x.defined() || x.dim() <= dim || x.size(dim) != bucket.size)
      raise_as<ShapeError>("BucketSet",
                           "result {} has no row for each row of the batch; got {} for a bucket of {}; name its "
                           "dimension in result_dims, or -1",
                           i, x.defined() ? describe(x) : "an undefined tensor", bucket.size);
    results.push_back(rows(x, dim, 0, batch));
  }
  return results;
}

void Buckets::compare(const Bucket& bucket, std::span<const Tensor> arguments, std::span<const Tensor> results) const {
  const std::vector<Tensor> expected = function_(arguments);
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].defined() && !same_bits(results[i], expected[i]))
      raise_as<ValueError>(
          "BucketSet",
          "result {} of the bucket of {} differs from the function's own; expected the same bits: rows "
          "of the batch, or of its padding, influence each other, or kernels depend on its size",
          i, bucket.size);
}

std::vector<Tensor> Buckets::call(std::span<const Tensor> arguments) {
  const int64_t batch = batch_of(arguments);
  if (buckets_.empty()) prepare(arguments);
  check_shapes(arguments);
  const NoGrad no_gradients;
  const auto found = options_.padding ? buckets_.lower_bound(batch) : buckets_.find(batch);
  if (found == buckets_.end()) return function_(arguments);
  Bucket& bucket = found->second;
  fill_in(bucket, arguments, batch);
  bucket.graph->replay();
  std::vector<Tensor> results = cut(bucket, batch);
  if (options_.verify) compare(bucket, arguments, results);
  return results;
}

std::vector<BucketStats> Buckets::stats() const {
  std::vector<BucketStats> all;
  for (const auto& [size, bucket] : buckets_) {
    all.push_back(bucket.stats);
    if (bucket.graph) all.back().graph = bucket.graph->stats();
  }
  return all;
}

}  // namespace detail
}  // namespace lorry::replay
