#include "lorry/ops/joining.h"

#include <algorithm>
#include <optional>

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/indexing.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

void copy_into(const Tensor& to, const Tensor& from) {
  backend(to).copy->copy(array(to), array(from), current_stream(to.device()));
}

/// The product of the sizes of dimensions [first, last).
int64_t product(const Dims& sizes, int first, int last) {
  int64_t n = 1;
  for (int d = first; d < last; ++d) n *= sizes[d];
  return n;
}

/// x as a matrix whose rows are the elements along dimension d and those after it, if x's memory is one.
std::optional<kernels::Array> as_matrix(const Tensor& x, int d) {
  const int64_t rows = product(x.sizes(), 0, d), width = x.numel() / rows;
  kernels::Array matrix = array(x);
  if (!view_as(x.layout(), {rows, width}, matrix.layout)) return {};
  if (width > 1 && matrix.stride(1) != 1) return {};
  return matrix;
}

/// Writes the result of cat in one call, if the device can and the tensors' memory allows it.
bool join(const Tensor& out, std::span<const Tensor> tensors, int d) {
  const kernels::CopyKernels& kernels = *backend(out).copy;
  if (kernels.join == nullptr || out.numel() == 0) return false;
  std::vector<kernels::Array> parts;
  for (const Tensor& x : tensors) {
    if (x.numel() == 0) continue;
    if (x.dtype() != out.dtype()) return false;
    const std::optional<kernels::Array> matrix = as_matrix(x, d);
    if (!matrix) return false;
    parts.push_back(*matrix);
  }
  kernels.join(*as_matrix(out, d), parts, current_stream(out.device()));
  return true;
}

/// PyTorch's old rule: a vector without elements joins with anything.
bool ignored(const Tensor& x) { return x.dim() == 1 && x.numel() == 0; }

}  // namespace

Tensor cat(std::span<const Tensor> tensors, int64_t dim) {
  const Running running("cat");
  require<ValueError>(!tensors.empty(), "no tensors given; expected at least one");
  const Tensor* model = nullptr;  // the first that counts
  DType dtype{};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    require_defined(x, "a tensor");
    require_same_device(tensors[0], x);
    require<ShapeError>(x.dim() > 0, "a tensor of rank 0 cannot be joined; got {} at position {}; use stack", x, i);
    dtype = i == 0 ? x.dtype() : promote(dtype, x.dtype());
    if (model == nullptr && !ignored(x)) model = &x;
  }
  const Tensor& first = model != nullptr ? *model : tensors[0];
  const int d = wrap_dim(dim, first.layout().rank);
  Dims sizes = first.sizes();
  sizes[d] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    if (ignored(x)) continue;
    bool fits = x.dim() == first.dim();
    for (int k = 0; fits && k < sizes.size(); ++k) fits = k == d || x.layout().sizes[k] == sizes[k];
    require<ShapeError>(fits,
                        "sizes differ; got {} at position {} beside {}; expected equal sizes except in dimension {}", x,
                        i, first, d);
    sizes[d] += x.layout().sizes[d];
  }
  return door::call(
      Op::cat, tensors,
      [&] {
        const Tensor out = empty(sizes, {dtype, first.device()});
        if (join(out, tensors, d)) return out;
        int64_t at = 0;
        for (const Tensor& x : tensors) {
          if (ignored(x)) continue;
          const int64_t length = x.layout().sizes[d];
          if (x.numel() > 0) copy_into(narrow(out, d, at, length), x);
          at += length;
        }
        return out;
      },
      static_cast<int64_t>(d));
}

Tensor stack(std::span<const Tensor> tensors, int64_t dim) {
  const Running running("stack");
  require<ValueError>(!tensors.empty(), "no tensors given; expected at least one");
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    require_defined(x, "a tensor");
    require<ShapeError>(x.sizes() == tensors[0].sizes(), "sizes differ; got {} beside {}; expected equal sizes", x,
                        tensors[0]);
    rows.push_back(unsqueeze(x, dim));
  }
  return cat(rows, wrap_new_dim(dim, tensors[0].layout().rank));
}

Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim) {
  return cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim) {
  return stack(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}

const Tensor& cat_out(const Tensor& out, std::span<const Tensor> tensors, int64_t dim) {
  const Running running("cat");
  return write_out(out, cat(tensors, dim));
}
const Tensor& stack_out(const Tensor& out, std::span<const Tensor> tensors, int64_t dim) {
  const Running running("stack");
  return write_out(out, stack(tensors, dim));
}

Tensor hstack(std::span<const Tensor> tensors) {
  const Running running("hstack");
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    require_defined(x, "a tensor");
    rows.push_back(x.dim() == 0 ? unsqueeze(x, 0) : x);
  }
  return cat(rows, rows.empty() || rows[0].dim() == 1 ? 0 : 1);
}

Tensor vstack(std::span<const Tensor> tensors) {
  const Running running("vstack");
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    require_defined(x, "a tensor");
    rows.push_back(x.dim() < 2 ? reshape(x, {1, -1}) : x);
  }
  return cat(rows, 0);
}

Tensor flip(const Tensor& x, const Dims& dims) {
  const Running running("flip");
  require_defined(x, "x");
  Dims wrapped;
  if (!dims.empty()) wrapped = wrap_dims(dims, x.layout().rank);
  return door::call(
      Op::flip, {&x},
      [&] {
        const Tensor out = empty(x.sizes(), x.options());
        if (out.numel() == 0) return out;
        // The source read backwards: from the last index on, with the stride negated.
        kernels::Array from = array(x);
        int64_t start = 0;
        for (const int64_t dim : wrapped) {
          const int d = static_cast<int>(dim);
          if (d >= from.layout.rank) continue;
          start += (from.layout.sizes[d] - 1) * from.layout.strides[d];
          from.layout.strides[d] = -from.layout.strides[d];
        }
        from.data = from.as<char>() + start * size_of(x.dtype());
        backend(x).copy->copy(array(out), from, current_stream(x.device()));
        return out;
      },
      wrapped);
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  const Running running("roll");
  require_defined(x, "x");
  if (dims.empty()) {
    require<ShapeError>(shifts.size() == 1, "one shift is needed without dims; got {}", shifts);
    return reshape_result(roll(ravel(x), shifts, {0}), x.sizes());
  }
  require<ShapeError>(shifts.size() == dims.size(), "as many shifts as dims are needed; got {} and {}", shifts, dims);
  Dims wrapped;
  for (const int64_t dim : dims) wrapped.push_back(wrap_dim(dim, x.layout().rank));
  return door::call(
      Op::roll, {&x},
      [&] {
        if (x.dim() == 0 || x.numel() == 0) return x.clone();
        Tensor from = x;
        for (int i = 0; i < wrapped.size(); ++i) {
          const int64_t d = wrapped[i], size = x.size(d), shift = (shifts[i] % size + size) % size;
          const Tensor out = empty(x.sizes(), x.options());
          if (shift > 0) copy_into(narrow(out, d, 0, shift), narrow(from, d, size - shift, shift));
          copy_into(narrow(out, d, shift, size - shift), narrow(from, d, 0, size - shift));
          from = out;
        }
        return from;
      },
      shifts, wrapped);
}

namespace {

/// `sizes` with dimension d repeated. Throws ValueError for a negative number, ShapeError for too many elements.
Dims repeated_sizes(Dims sizes, int d, int64_t times) {
  require<ValueError>(times >= 0, "negative number of repeats; got {}", times);
  checked_numel({std::max<int64_t>(sizes[d], 1), times});
  sizes[d] *= times;
  checked_numel(sizes);
  return sizes;
}

/// A copy of x in which each of `dims` (ascending) is repeated as a whole.
Tensor repeated(const Tensor& x, std::span<const int> dims, const Dims& repeats) {
  Dims sizes = x.sizes(), view = {product(sizes, 0, dims[0])};
  for (size_t i = 0; i < dims.size(); ++i) {
    view.push_back(1);
    view.push_back(product(sizes, dims[i], i + 1 < dims.size() ? dims[i + 1] : sizes.size()));
  }
  Tensor out = reshape(x, view);
  // One by one and from the last to the first, so that gradients are summed over one dimension after the other.
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    const int d = dims[static_cast<size_t>(i)];
    view[2 * i + 1] = repeats[d];
    sizes[d] *= repeats[d];
    out = expand(out, view);
  }
  return reshape_result(out.clone(), sizes);
}

}  // namespace

Tensor repeat(const Tensor& x, const Dims& repeats) {
  const Running running("repeat");
  require_defined(x, "x");
  require<ShapeError>(repeats.size() >= x.dim(), "a count for each dimension is needed; got {} for {}", repeats, x);
  Dims sizes = Dims::filled(repeats.size(), 1);
  for (int i = 0; i < x.layout().rank; ++i) sizes[repeats.size() - x.layout().rank + i] = x.layout().sizes[i];
  Tensor out = reshape(x, sizes);
  std::vector<int> dims;  // what is repeated
  for (int d = repeats.size() - 1; d >= 0; --d) {
    if (repeats[d] == 1) continue;
    sizes = repeated_sizes(sizes, d, repeats[d]);
    dims.insert(dims.begin(), d);
  }
  if (dims.empty()) return out.clone();
  // Each takes two dimensions of the copy, which has at most 8. The last come first: early copies are the small ones.
  constexpr size_t kAtOnce = 3;
  for (size_t left = dims.size(); left > 0;) {
    const size_t count = std::min(left, kAtOnce);
    left -= count;
    out = repeated(out, std::span<const int>(dims).subspan(left, count), repeats);
  }
  return out;
}

Tensor tile(const Tensor& x, const Dims& repeats) {
  const Running running("tile");
  require_defined(x, "x");
  Dims all = repeats;
  while (all.size() < x.dim()) all.insert(0, 1);
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
  const Running running("repeat_interleave");
  require_defined(x, "x");
  if (!dim || x.dim() == 0) return repeat_interleave(ravel(x), repeats, 0);
  const int d = wrap_dim(*dim, x.layout().rank);
  const Dims& sizes = x.sizes();
  const Dims result = repeated_sizes(sizes, d, repeats);
  // Three dimensions suffice, so that a tensor of rank 8 can be repeated too.
  const int64_t outer = product(sizes, 0, d + 1), inner = product(sizes, d + 1, sizes.size());
  return reshape_result(expand(reshape(x, {outer, 1, inner}), {outer, repeats, inner}).clone(), result);
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim) {
  const Running running("repeat_interleave");
  require_defined(x, "x");
  require_defined(repeats, "repeats");
  require_same_device(x, repeats);
  if (!dim || x.dim() == 0) return repeat_interleave(ravel(x), repeats, 0);
  require<DTypeError>(repeats.dtype() == kI64 || repeats.dtype() == kI32,
                      "repeats must be whole numbers; got {}; expected i64 or i32", repeats);
  const int d = wrap_dim(*dim, x.layout().rank);
  require<ShapeError>(repeats.dim() <= 1 && (repeats.numel() == 1 || repeats.numel() == x.size(d)),
                      "repeats does not fit; got {} for dimension {} of {}; expected one count, or one for each slice",
                      repeats, d, x);
  const Tensor counts = expand(ravel(repeats.to(kI64)), {x.size(d)}).contiguous();
  int64_t total = 0;
  for (const int64_t count : counts.to_vector<int64_t>()) {
    require<ValueError>(count >= 0, "a count is negative; got {}", count);
    require<ShapeError>(!__builtin_add_overflow(total, count, &total),
                        "the counts add up to more than 64 bits hold; got {}", repeats);
  }
  const Tensor positions = empty({total}, {kI64, x.device()});
  backend(x).indexing->repeat_positions(array(positions), array(counts), current_stream(x.device()));
  return index_select(x, d, positions);
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& vectors, std::string_view indexing) {
  const Running running("meshgrid");
  require<ValueError>(indexing == "ij" || indexing == "xy", "unknown indexing; got '{}'; expected ij or xy", indexing);
  require<ValueError>(!vectors.empty(), "no vectors given; expected at least one");
  const int count = static_cast<int>(vectors.size());
  require<ShapeError>(count <= kMaxRank, "too many vectors; got {}; expected at most {}", count, kMaxRank);
  // Where vector k varies: "xy" exchanges the first two dimensions.
  const auto dim_of = [&](int k) { return indexing == "xy" && count > 1 && k < 2 ? 1 - k : k; };
  Dims sizes = Dims::filled(count, 1);
  for (int k = 0; k < count; ++k) {
    const Tensor& v = vectors[static_cast<size_t>(k)];
    require_defined(v, "a vector");
    require<ShapeError>(v.dim() <= 1, "not a vector; got {}; expected at most 1 dimension", v);
    require<DTypeError>(v.dtype() == vectors[0].dtype(), "dtypes differ; got {}, {}; expected one dtype", vectors[0],
                        v);
    require_same_device(vectors[0], v);
    sizes[dim_of(k)] = v.numel();
  }
  std::vector<Tensor> grids;
  for (int k = 0; k < count; ++k) {
    Dims column = Dims::filled(count, 1);
    column[dim_of(k)] = sizes[dim_of(k)];
    grids.push_back(expand(reshape(vectors[static_cast<size_t>(k)], column), sizes));
  }
  return grids;
}

Tensor diff(const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
  const Running running("diff");
  require_defined(x, "x");
  require<ValueError>(n >= 0, "order must not be negative; got {}", n);
  require<ShapeError>(x.dim() > 0, "a tensor of rank 0 has no neighbours; got {}", x);
  const int d = wrap_dim(dim, x.layout().rank);
  if (n == 0) return x.clone();
  std::vector<Tensor> parts;
  for (const Tensor* part : {&prepend, &x, &append})
    if (part->defined()) parts.push_back(*part);
  for (const Tensor& part : parts) {
    bool fits = part.dim() == x.dim();
    for (int i = 0; fits && i < x.layout().rank; ++i) fits = i == d || part.layout().sizes[i] == x.layout().sizes[i];
    require<ShapeError>(
        fits, "prepend or append does not fit; got x: {}, {}; expected x's sizes except in dimension {}", x, part, d);
  }
  Tensor out = parts.size() == 1 ? x : cat(parts, d);
  for (int64_t i = 0; i < n && (i == 0 || out.layout().sizes[d] > 0); ++i) {
    const int64_t length = std::max<int64_t>(0, out.size(d) - 1), start = out.size(d) - length;
    const Tensor after = narrow(out, d, start, length), before = narrow(out, d, 0, length);
    out = out.dtype() == kBool ? after.ne(before) : after.sub(before);
  }
  return out;
}

const Tensor& hstack_out(const Tensor& out, std::span<const Tensor> tensors) {
  const Running running("hstack");
  return write_out(out, hstack(tensors));
}
const Tensor& vstack_out(const Tensor& out, std::span<const Tensor> tensors) {
  const Running running("vstack");
  return write_out(out, vstack(tensors));
}

Tensor Tensor::flip(const Dims& dims) const { return lorry::flip(*this, dims); }
Tensor Tensor::roll(const Dims& shifts, const Dims& dims) const { return lorry::roll(*this, shifts, dims); }
Tensor Tensor::repeat(const Dims& repeats) const { return lorry::repeat(*this, repeats); }
Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  return lorry::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim) const {
  return lorry::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::diff(int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) const {
  return lorry::diff(*this, n, dim, prepend, append);
}
Tensor Tensor::tile(const Dims& repeats) const { return lorry::tile(*this, repeats); }

}  // namespace lorry
