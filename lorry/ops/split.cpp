// Views that come in lists, the view of the bytes, and the methods.

#include "lorry/layout/views.h"
#include "lorry/ops/array.h"
#include "lorry/ops/views.h"
#include "lorry/tensor/facts.h"

namespace lorry {
namespace {

/// Views of an expanded or an empty dimension cost memory that no size limits.
void require_few(int64_t parts, const Tensor& x, int d) {
  constexpr int64_t kMost = 1 << 24;
  require<ValueError>(parts <= kMost, "too many parts; got {} of dimension {} of {}; expected at most {}", parts, d, x,
                      kMost);
}

int split_dim(const Tensor& x, int64_t dim) {
  require_defined(x, "x");
  require<ShapeError>(x.dim() > 0, "a tensor of rank 0 has no dimension to divide; got {}", x);
  return wrap_dim(dim, x.layout().rank);
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  const Running running("split");
  const int d = split_dim(x, dim);
  const int64_t total = x.layout().sizes[d];
  require<ValueError>(size > 0 || (size == 0 && total == 0),
                      "the size of a part must be positive; got {} for dimension {} of {}", size, d, x);
  if (total == 0) return {narrow(x, d, 0, 0)};
  require_few((total - 1) / size + 1, x, d);
  std::vector<Tensor> parts;
  for (int64_t at = 0; at < total; at += size) {
    const int64_t length = std::min(size, total - at);
    parts.push_back(narrow(x, d, at, length));
    if (length == total - at) break;
  }
  return parts;
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const Running running("split");
  const int d = split_dim(x, dim);
  int64_t left = x.layout().sizes[d];
  for (const int64_t size : sizes) {
    require<ShapeError>(size >= 0 && size <= left,
                        "sizes do not fit; got {} within dimension {} of {}; expected sizes >= 0 that sum to {}", size,
                        d, x, x.layout().sizes[d]);
    left -= size;
  }
  require<ShapeError>(left == 0, "sizes do not fill the dimension; got {} elements left over of dimension {} of {}",
                      left, d, x);
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    parts.push_back(narrow(x, d, at, size));
    at += size;
  }
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  const Running running("chunk");
  const int d = split_dim(x, dim);
  require<ValueError>(chunks > 0, "the number of chunks must be positive; got {}", chunks);
  const int64_t total = x.layout().sizes[d], size = total / chunks + (total % chunks != 0 ? 1 : 0);
  if (size > 0) return split(x, size, dim);
  // An empty dimension gives the asked number of empty parts, as in PyTorch.
  require_few(chunks, x, d);
  return split(x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), dim);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  const Running running("unbind");
  const int d = split_dim(x, dim);
  require_few(x.layout().sizes[d], x, d);
  std::vector<Tensor> parts;
  parts.reserve(static_cast<size_t>(x.layout().sizes[d]));
  for (int64_t i = 0; i < x.layout().sizes[d]; ++i) parts.push_back(select(x, d, i));
  return parts;
}

Tensor view(const Tensor& x, DType dtype) {
  const Running running("view");
  require_defined(x, "x");
  require_dtype(dtype);
  const int64_t from = size_of(x.dtype()), to = size_of(dtype);
  require<GradError>(!x.requires_grad() || !mode(kGradMode),
                     "bytes have no gradient; got {} that requires one; detach it first", x);
  Layout layout = x.layout();
  int64_t offset = x.storage_offset();
  if (from != to) {
    const int last = layout.rank - 1;
    require<ShapeError>(layout.rank > 0 && layout.strides[last] == 1,
                        "the last dimension must be contiguous to change {} to {}; got {} with strides {}", x.dtype(),
                        dtype, x, x.strides());
    // In units of the wider type everything must be whole.
    const int64_t ratio = std::max(from, to) / std::min(from, to);
    const bool widen = to > from;
    const auto scale = [&](int64_t count) {
      require<ShapeError>(!widen || count % ratio == 0,
                          "sizes, strides and offset do not divide by {}, to change {} to {}; got {}", ratio, x.dtype(),
                          dtype, x);
      return widen ? count / ratio : count * ratio;
    };
    layout.sizes[last] = scale(layout.sizes[last]);
    for (int d = 0; d < last; ++d) layout.strides[d] = scale(layout.strides[d]);
    offset = scale(offset);
  }
  require<ValueError>(reinterpret_cast<uintptr_t>(x.data_ptr()) % static_cast<uintptr_t>(to) == 0,
                      "the memory is not aligned for {}; got {}; clone it first", dtype, x);
  auto node = make_counted<detail::TensorNode>(x.node()->storage, layout, offset, dtype);
  node->inference = x.node()->inference;
  Tensor result(std::move(node));
  if (detail::facts_heard()) [[unlikely]]
    detail::announce_fact({.fact = Fact::alias, .storage = x.storage().id(), .tensor = &result});
  return result;
}

Tensor Tensor::view(const Dims& sizes) const { return lorry::view(*this, sizes); }
Tensor Tensor::view(DType dtype) const { return lorry::view(*this, dtype); }
Tensor Tensor::view_as(const Tensor& other) const { return lorry::view_as(*this, other); }
Tensor Tensor::reshape(const Dims& sizes) const { return lorry::reshape(*this, sizes); }
Tensor Tensor::reshape_as(const Tensor& other) const { return lorry::reshape_as(*this, other); }
Tensor Tensor::permute(const Dims& dims) const { return lorry::permute(*this, dims); }
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const { return lorry::transpose(*this, dim0, dim1); }
Tensor Tensor::t() const { return lorry::t(*this); }
Tensor Tensor::mT() const { return lorry::mT(*this); }
Tensor Tensor::select(int64_t dim, int64_t index) const { return lorry::select(*this, dim, index); }
Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) const {
  return lorry::slice(*this, dim, start, end, step);
}
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return lorry::narrow(*this, dim, start, length);
}
Tensor Tensor::narrow(int64_t dim, const Tensor& start, int64_t length) const {
  return lorry::narrow(*this, dim, start, length);
}
Tensor Tensor::expand(const Dims& sizes) const { return lorry::expand(*this, sizes); }
Tensor Tensor::expand_as(const Tensor& other) const { return lorry::expand_as(*this, other); }
Tensor Tensor::broadcast_to(const Dims& sizes) const { return lorry::broadcast_to(*this, sizes); }
Tensor Tensor::squeeze() const { return lorry::squeeze(*this); }
Tensor Tensor::squeeze(int64_t dim) const { return lorry::squeeze(*this, dim); }
Tensor Tensor::squeeze(const Dims& dims) const { return lorry::squeeze(*this, dims); }
Tensor Tensor::unsqueeze(int64_t dim) const { return lorry::unsqueeze(*this, dim); }
Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const { return lorry::flatten(*this, start_dim, end_dim); }
Tensor Tensor::unflatten(int64_t dim, const Dims& sizes) const { return lorry::unflatten(*this, dim, sizes); }
Tensor Tensor::ravel() const { return lorry::ravel(*this); }
Tensor Tensor::as_strided(const Dims& sizes, const Dims& strides, std::optional<int64_t> storage_offset) const {
  return lorry::as_strided(*this, sizes, strides, storage_offset);
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return lorry::diagonal(*this, offset, dim1, dim2);
}
Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step) const { return lorry::unfold(*this, dim, size, step); }
Tensor Tensor::movedim(const Dims& source, const Dims& destination) const {
  return lorry::movedim(*this, source, destination);
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim) const { return lorry::split(*this, size, dim); }
std::vector<Tensor> Tensor::split(const std::vector<int64_t>& sizes, int64_t dim) const {
  return lorry::split(*this, sizes, dim);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const { return lorry::chunk(*this, chunks, dim); }
std::vector<Tensor> Tensor::unbind(int64_t dim) const { return lorry::unbind(*this, dim); }
Tensor Tensor::operator[](int64_t index) const { return lorry::select(*this, 0, index); }

}  // namespace lorry
