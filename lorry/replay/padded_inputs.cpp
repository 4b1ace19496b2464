#include "lorry/replay/padded_inputs.h"

#include <cmath>

#include "lorry/ops/ops.h"

namespace lorry::replay::detail {
namespace {

/// The rows [begin, end) of a tensor, in the dimension of its batch.
Tensor rows_of(const Tensor& x, int dim, int64_t begin, int64_t end) { return x.narrow(dim, begin, end - begin); }

}  // namespace

int64_t PaddedInputs::batch_of(std::span<const Tensor> arguments, std::optional<int64_t> rows) const {
  std::optional<int64_t> batch = rows;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const int dim = dim_of(i);
    if (dim < 0) continue;
    if (arguments[i].dim() <= dim)
      raise_as<ShapeError>("BucketSet", "argument {} has no dimension {} that counts the batch; got {}", i, dim,
                           arguments[i]);
    const int64_t here = arguments[i].size(dim);
    if (batch && here != *batch)
      raise_as<ShapeError>("BucketSet", "arguments have different batches; got {} and, in argument {}, {}", *batch, i,
                           here);
    batch = here;
  }
  if (!batch)
    raise_as<ValueError>("BucketSet", "no argument has a batch; expected one with a dimension that counts it");
  if (*batch == 0) raise_as<ValueError>("BucketSet", "the batch is empty; expected at least one row");
  if (*batch < 0) raise_as<ValueError>("BucketSet", "the batch is negative; got {}; expected at least one row", *batch);
  if (*batch > largest_)
    raise_as<ValueError>("BucketSet",
                         "the batch is larger than the largest bucket; got {}; expected at most {}; split the batch, "
                         "or give a larger size",
                         *batch, largest_);
  return *batch;
}

void PaddedInputs::allocate(std::span<const Tensor> arguments, int64_t batch) {
  for (const auto& [what, count] :
       {std::pair("dims", options_.dims.size()), {"pad_values", options_.pad_values.size()}})
    if (count > arguments.size())
      raise_as<ValueError>("BucketSet",
                           "{} has more entries than there are tensor arguments; got {}; expected at most {}", what,
                           count, arguments.size());
  clear();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const int dim = dim_of(i);
    Dims sizes = arguments[i].sizes();
    if (dim >= 0) sizes[dim] = largest_;
    const Tensor& whole = whole_.emplace_back(empty(sizes, {arguments[i].dtype(), device_}));
    written_.push_back(dim < 0 ? 0 : largest_);
    if (dim < 0) whole.copy_(arguments[i]);
    // The captures run the function on these rows: they are as good as any.
    for (int64_t at = 0; dim >= 0 && at < largest_; at += batch) {
      const int64_t end = std::min(at + batch, largest_);
      rows_of(whole, dim, at, end).copy_(rows_of(arguments[i], dim, 0, end - at));
    }
  }
  is_allocated_ = true;
}

void PaddedInputs::clear() {
  is_allocated_ = false;
  whole_.clear();
  written_.clear();
}

void PaddedInputs::check(std::span<const Tensor> arguments) const {
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
                           "argument {} has another shape than in the capture; got {}; expected {} with any batch", i,
                           x, known.sizes());
  }
}

std::vector<Tensor> PaddedInputs::of(int64_t size) const {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < whole_.size(); ++i)
    inputs.push_back(dim_of(i) < 0 ? whole_[i] : rows_of(whole_[i], dim_of(i), 0, size));
  return inputs;
}

void PaddedInputs::pad(const Tensor& rows, size_t argument) const {
  if (rows.numel() == 0) return;
  const double value = argument < options_.pad_values.size() ? options_.pad_values[argument] : 0;
  rows.fill_(options_.verify && is_floating(rows.dtype()) ? Scalar(NAN) : Scalar(value));
}

void PaddedInputs::fill(std::span<const Tensor> arguments, int64_t batch) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const int dim = dim_of(i);
    if (dim < 0) {
      whole_[i].copy_(arguments[i]);
      continue;
    }
    rows_of(whole_[i], dim, 0, batch).copy_(arguments[i]);
    if (batch < written_[i]) pad(rows_of(whole_[i], dim, batch, written_[i]), i);
    written_[i] = batch;
  }
}

std::vector<Tensor> PaddedInputs::cut(const std::vector<Tensor>& results, int64_t size, int64_t batch) const {
  std::vector<Tensor> rows;
  for (const Tensor& x : results) {
    const size_t i = rows.size();
    const int dim = i < options_.result_dims.size() ? options_.result_dims[i] : 0;
    if (dim < 0 || batch == size) {
      rows.push_back(x);
      continue;
    }
    if (!x.defined() || x.dim() <= dim || x.size(dim) != size)
      raise_as<ShapeError>("BucketSet",
                           "result {} has no row for each row of the batch; got {} for a bucket of {}; name its "
                           "dimension in result_dims, or -1",
                           i, x.defined() ? describe(x) : "an undefined tensor", size);
    rows.push_back(rows_of(x, dim, 0, batch));
  }
  return rows;
}

}  // namespace lorry::replay::detail
