// Index lists: what is a view becomes one, what is left are tensors for the primitive operators.

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/indexing.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

/// The view that an index list describes, and one tensor or nothing for each dimension of it.
struct Parsed {
  Tensor view;
  std::vector<Tensor> tensors;
  bool advanced = false;

  void put(int64_t dim, const Tensor& index) {
    if (tensors.size() <= static_cast<size_t>(dim)) tensors.resize(static_cast<size_t>(dim) + 1);
    tensors[static_cast<size_t>(dim)] = index;
    advanced = true;
  }
};

/// The dimensions of x that an entry uses up.
int64_t consumed(const Index& entry) {
  if (const auto* t = std::get_if<Tensor>(&entry.value())) return t->defined() && t->dtype() == kBool ? t->dim() : 1;
  return std::holds_alternative<int64_t>(entry.value()) || std::holds_alternative<Slice>(entry.value()) ? 1 : 0;
}

/// A mask becomes the coordinates of its true elements, one vector for each of its dimensions.
int64_t apply_mask(Parsed& p, int64_t dim, const Tensor& mask) {
  for (int64_t i = 0; i < mask.dim(); ++i)
    require<IndexError>(mask.size(i) == p.view.size(dim + i),
                        "mask does not fit; got {} at dimension {} of {}; expected the sizes of the masked dimensions",
                        mask, dim, p.view);
  for (const Tensor& coordinate : unbind(nonzero(mask), 1)) p.put(dim++, coordinate);
  return dim;
}

/// true keeps a new dimension of size 1, false one of size 0.
int64_t apply_truth(Parsed& p, int64_t dim, bool keep) {
  p.view = unsqueeze(p.view, dim);
  p.put(dim, zeros({keep ? 1 : 0}, {kI64, p.view.device()}));
  return dim + 1;
}

int64_t apply_tensor(Parsed& p, int64_t dim, const Tensor& index) {
  require_defined(index, "an index");
  require<DTypeError>(index.dtype() == kI64 || index.dtype() == kI32 || index.dtype() == kBool,
                      "dtype cannot index; got {}; expected i64, i32 or bool", index);
  if (index.dtype() == kBool)
    return index.dim() == 0 ? apply_truth(p, dim, index.item<bool>()) : apply_mask(p, dim, index);
  if (index.dim() == 0) {
    p.view = select(p.view, dim, index.item<int64_t>());
    return dim;
  }
  p.put(dim, index);
  return dim + 1;
}

Parsed parse(const Tensor& x, std::span<const Index> indices) {
  require_defined(x, "x");
  int64_t named = 0, ellipses = 0;
  for (const Index& entry : indices) {
    named += consumed(entry);
    ellipses += std::holds_alternative<EllipsisType>(entry.value());
  }
  require<IndexError>(ellipses <= 1, "more than one Ellipsis; expected at most one");
  require<IndexError>(named <= x.dim(), "too many indices; got {} for {}", named, x);
  Parsed p{x, {}, false};
  int64_t dim = 0;
  for (const Index& entry : indices) {
    dim = std::visit(
        [&]<class T>(const T& value) -> int64_t {
          if constexpr (std::is_same_v<T, int64_t>) {
            p.view = select(p.view, dim, value);
            return dim;
          } else if constexpr (std::is_same_v<T, bool>) {
            return apply_truth(p, dim, value);
          } else if constexpr (std::is_same_v<T, Slice>) {
            const bool whole = !value.start && !value.stop && value.step == 1;
            if (!whole) p.view = slice(p.view, dim, value.start, value.stop, value.step);
            return dim + 1;
          } else if constexpr (std::is_same_v<T, std::nullopt_t>) {
            p.view = unsqueeze(p.view, dim);
            return dim + 1;
          } else if constexpr (std::is_same_v<T, EllipsisType>) {
            return dim + x.dim() - named;
          } else {
            return apply_tensor(p, dim, value);
          }
        },
        entry.value());
  }
  return p;
}

}  // namespace

Tensor index(const Tensor& x, std::span<const Index> indices) {
  const Running running("index");
  const Parsed p = parse(x, indices);
  if (p.advanced) return index(p.view, p.tensors);
  return p.view.is_same(x) ? slice(x, 0) : p.view;
}

const Tensor& index_put_(const Tensor& x, std::span<const Index> indices, const Operand& value, bool accumulate) {
  const Running running("index_put");
  const Parsed p = parse(x, indices);
  const Tensor* const tensor = value.tensor();
  if (tensor != nullptr) require_defined(*tensor, "values");
  if (!p.advanced) {
    if (accumulate) {
      p.view.add_(value);
    } else if (tensor == nullptr) {
      p.view.fill_(value);
    } else {
      // Leading dimensions of size 1 may be too many, as in NumPy.
      Tensor from = *tensor;
      while (from.dim() > p.view.dim() && from.size(0) == 1) from = squeeze(from, 0);
      p.view.copy_(from);
    }
    return x;
  }
  if (tensor != nullptr) {
    index_put_(p.view, p.tensors, *tensor, accumulate);
  } else {
    index_put_(p.view, p.tensors, full({}, value.scalar(), p.view.options()), accumulate);
  }
  return x;
}

Tensor index(const Tensor& x, std::initializer_list<Index> indices) {
  return index(x, std::span<const Index>(indices.begin(), indices.size()));
}
const Tensor& index_put_(const Tensor& x, std::initializer_list<Index> indices, const Operand& value, bool accumulate) {
  return index_put_(x, std::span<const Index>(indices.begin(), indices.size()), value, accumulate);
}
Tensor Tensor::index(std::initializer_list<Index> indices) const { return lorry::index(*this, indices); }
const Tensor& Tensor::index_put_(std::initializer_list<Index> indices, const Operand& value, bool accumulate) const {
  return lorry::index_put_(*this, indices, value, accumulate);
}

}  // namespace lorry
