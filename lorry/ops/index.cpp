// Indexing by tensors: the primitive operators index and index_put.
//
// With an index for some dimensions and none for the others, the result has the shape
//   before + B + after   when the indexed dimensions are neighbours,
//   B + before + after   when others stand between them,
// where B is the broadcast shape of the indices and before/after are the sizes of the dimensions without one (NumPy's
// rule). A plan brings both to one walk over the result's shape in which the indexed operand has stride 0 along B.

#include <algorithm>

#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/index_support.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

struct IndexPlan {
  Dims sizes;            ///< of the result
  Layout source;         ///< the indexed tensor, walked over them
  kernels::Array index;  ///< the same for the positions
  int64_t size = 0, step = 0;
  kernels::Negative negative = kernels::Negative::wraps;
  Tensor keep;  ///< owns what `index` points to
};

/// The defined indices as i64, every one checked against its dimension.
std::vector<Tensor> checked(const Tensor& x, const std::vector<Tensor>& indices) {
  require<IndexError>(static_cast<int64_t>(indices.size()) <= x.dim(), "too many indices; got {} for {}",
                      indices.size(), x);
  std::vector<Tensor> out(indices.size());
  bool any = false;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].defined()) continue;
    out[d] = indexing::positions(indices[d]);
    require_same_device(x, out[d]);
    any = true;
  }
  require<IndexError>(any, "no index given for {}", x);
  return out;
}

IndexPlan plan(const Tensor& x, const std::vector<Tensor>& indices) {
  Dims common;
  FixedVector<int, kMaxRank> indexed;
  for (int d = 0; d < static_cast<int>(indices.size()); ++d) {
    const Tensor& index = indices[static_cast<size_t>(d)];
    if (!index.defined()) continue;
    common = broadcast(common, index.sizes());
    indexed.push_back(d);
  }
  for (const int d : indexed) {
    const int64_t size = x.layout().sizes[d];
    // Without any position there is nothing to check, and an index into an empty dimension is only wrong when it is
    // used.
    if (checked_numel(common) > 0) indexing::check(indices[static_cast<size_t>(d)], -size, size, d);
  }
  const bool neighbours = indexed.back() - indexed[0] + 1 == indexed.size();
  const int before = neighbours ? indexed[0] : 0;

  IndexPlan p;
  Layout at;  // of the positions: moves along B only
  const Layout b = Layout::contiguous(common);
  const auto push = [&](int64_t size, int64_t source_stride, int64_t index_stride) {
    p.sizes.push_back(size);
    const int i = p.sizes.size() - 1;
    p.source.sizes[i] = at.sizes[i] = size;
    p.source.strides[i] = source_stride;
    at.strides[i] = index_stride;
    p.source.rank = at.rank = i + 1;
  };
  Layout alone = b;  // strides of a single index over B; several are flattened into a contiguous one
  if (indexed.size() == 1) alone = expand(indices[static_cast<size_t>(indexed[0])].layout(), common);
  for (int d = 0; d < before; ++d) push(x.layout().sizes[d], x.layout().strides[d], 0);
  for (int d = 0; d < b.rank; ++d) push(b.sizes[d], 0, alone.strides[d]);
  for (int d = before; d < x.layout().rank; ++d)
    if (!indexed.contains(d)) push(x.layout().sizes[d], x.layout().strides[d], 0);

  if (indexed.size() == 1) {
    p.keep = indices[static_cast<size_t>(indexed[0])];
    p.size = x.layout().sizes[indexed[0]];
    p.step = x.layout().strides[indexed[0]];
  } else {
    p.keep = empty(common, {kI64, x.device()});
    kernels::IndexTerm terms[kMaxRank];
    int count = 0;
    p.size = 1;
    for (const int d : indexed) {
      const Tensor& index = indices[static_cast<size_t>(d)];
      p.size += std::max<int64_t>(x.layout().sizes[d] - 1, 0) * x.layout().strides[d];
      terms[count++] = {indexing::restrided(index, expand(index.layout(), common)), x.layout().sizes[d],
                        x.layout().strides[d]};
    }
    if (p.keep.numel() > 0) backend(x).indexing->flatten(array(p.keep), terms, count, current_stream(x.device()));
    p.step = 1;
    p.negative = kernels::Negative::skipped;
  }
  p.index = indexing::restrided(p.keep, at);
  return p;
}

/// x (undefined or not) and the indices as inputs of a call, one slot a dimension of x.
std::vector<Tensor> inputs_of(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values) {
  std::vector<Tensor> inputs;
  if (x.defined()) inputs.push_back(x);
  inputs.insert(inputs.end(), indices.begin(), indices.end());
  if (values.defined()) inputs.push_back(values);
  return inputs;
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<Tensor>& given) {
  const Running running("index");
  require_defined(x, "x");
  const std::vector<Tensor> indices = checked(x, given);
  const std::vector<Tensor> inputs = inputs_of(x, indices, {});
  return door::call(Op::index, inputs, [&] {
    const IndexPlan p = plan(x, indices);
    const Tensor out = empty(p.sizes, x.options());
    if (out.numel() > 0)
      backend(x).indexing->take({.out = array(out),
                                 .source = indexing::restrided(x, p.source),
                                 .index = p.index,
                                 .size = p.size,
                                 .step = p.step,
                                 .negative = p.negative},
                                current_stream(x.device()));
    return out;
  });
}

const Tensor& index_put_(const Tensor& x, const std::vector<Tensor>& given, const Tensor& values, bool accumulate) {
  const Running running("index_put");
  require_defined(x, "self");
  require_defined(values, "values");
  require_same_device(x, values);
  indexing::require_same_dtype(x, values);
  const std::vector<Tensor> indices = checked(x, given);
  const std::vector<Tensor> inputs = inputs_of({}, indices, values);
  return door::call_in_place(
      Op::index_put, x, inputs,
      [&] {
        std::vector<Tensor> safe;
        for (const Tensor& i : indices) safe.push_back(i.defined() ? indexing::apart(i, x) : i);
        const IndexPlan p = plan(x, safe);
        const Tensor from = indexing::apart(values, x);
        const Layout source = expand(from.layout(), p.sizes);
        if (source.numel() > 0)
          backend(x).indexing->put({.target = indexing::restrided(x, p.source),
                                    .source = indexing::restrided(from, source),
                                    .index = p.index,
                                    .size = p.size,
                                    .step = p.step,
                                    .combine = accumulate ? kernels::Combine::add : kernels::Combine::assign,
                                    .negative = p.negative},
                                   current_stream(x.device()));
      },
      accumulate);
}

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) {
  const Running running("index_put");
  require_defined(x, "x");
  const Tensor out = x.clone();
  index_put_(out, indices, values, accumulate);
  return out;
}

Tensor nonzero(const Tensor& x) {
  const Running running("nonzero");
  require_defined(x, "x");
  // for the size of the result
  announce_host_read(x, waits::Wait::size, "use nonzero_static(x, size), whose result has as many rows as you say");
  return door::call(Op::nonzero, {&x}, [&] {
    const Tensor from = x.contiguous();
    const auto& kernels = *backend(x).indexing;
    const Stream stream = current_stream(x.device());
    const int64_t count = kernels.count_nonzero(array(from), stream);
    const Tensor out = empty({count, x.dim()}, {kI64, x.device()});
    if (out.numel() > 0) kernels.nonzero({.out = array(out), .x = array(from)}, stream);
    return out;
  });
}

std::tuple<Tensor, Tensor> nonzero_static_with_count(const Tensor& x, int64_t size, int64_t fill_value) {
  const Running running("nonzero_static_with_count");
  require_defined(x, "x");
  require<ValueError>(size >= 0,
                      "size is negative; got {} for {}; expected the number of rows of the result, 0 or more; {} are "
                      "always enough",
                      size, x, x.numel());
  auto [coordinates, count] = door::call(
      Op::nonzero_static, {&x},
      [&] {
        const Tensor from = x.contiguous();
        const std::array<Tensor, 2> out{empty({size, x.dim()}, {kI64, x.device()}), empty({}, {kI64, x.device()})};
        backend(x).indexing->nonzero(
            {.out = array(out[0]), .x = array(from), .count = array(out[1]).as<int64_t>(), .fill = fill_value},
            current_stream(x.device()));
        return out;
      },
      size, fill_value);
  return {coordinates, count};
}

Tensor nonzero_static(const Tensor& x, int64_t size, int64_t fill_value) {
  const Running running("nonzero_static");
  return std::get<0>(nonzero_static_with_count(x, size, fill_value));
}

std::vector<Tensor> where(const Tensor& condition) {
  const Running running("where");
  require_defined(condition, "the condition");
  return unbind(nonzero(condition.dim() == 0 ? unsqueeze(condition, 0) : condition), 1);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  const Running running("masked_select");
  require_defined(x, "x");
  require_defined(mask, "mask");
  require<DTypeError>(mask.dtype() == kBool, "mask is not boolean; got {}", mask);
  const Dims common = broadcast(x.sizes(), mask.sizes());
  Tensor from = expand(x, common), chosen = expand(mask, common);
  if (from.dim() > 1 && from.is_contiguous()) {  // one coordinate for each element is enough
    from = ravel(from);
    chosen = ravel(chosen);
  }
  return common.empty() ? index(unsqueeze(from, 0), where(chosen)) : index(from, where(chosen));
}

const Tensor& masked_select_out(const Tensor& out, const Tensor& x, const Tensor& mask) {
  const Running running("masked_select");
  return write_out(out, masked_select(x, mask));
}
const Tensor& nonzero_out(const Tensor& out, const Tensor& x) {
  const Running running("nonzero");
  return write_out(out, nonzero(x));
}
const Tensor& nonzero_static_out(const Tensor& out, const Tensor& x, int64_t size, int64_t fill_value) {
  const Running running("nonzero_static");
  return write_out(out, nonzero_static(x, size, fill_value));
}

Tensor Tensor::nonzero() const { return lorry::nonzero(*this); }
Tensor Tensor::nonzero_static(int64_t size, int64_t fill_value) const {
  return lorry::nonzero_static(*this, size, fill_value);
}
Tensor Tensor::masked_select(const Tensor& mask) const { return lorry::masked_select(*this, mask); }

}  // namespace lorry
