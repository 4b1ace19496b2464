// Gradients of reading and writing at positions. Reading is undone by adding at the same positions, writing by reading
// there; what a write replaced receives nothing.

#include "lorry/ops/indexing.h"
#include "lorry/autograd/rules.h"
#include "lorry/kernels/indexing.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/joining.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/reduce.h"
#include "lorry/ops/sum_to_size.h"
#include "lorry/ops/views.h"

namespace lorry::autograd {
namespace {

int64_t dim(const Call& c) { return c.attribute<int64_t>(0); }
Tensor zeros_like_input(const Call& c, const Tensor& g) { return zeros(c.sizes(0), g.options()); }
Tensor if_needed(const Call& c, int i, const auto& gradient) { return c.needs(i) ? gradient() : Tensor(); }

/// The part of a source that a smaller index reads has gradients; the rest has none. An index without elements may have
/// any rank, and a number counts as a vector of one.
Tensor padded(const Call& c, int i, const Tensor& given) {
  const Dims sizes = c.sizes(i);
  if (given.sizes() == sizes) return given;
  if (given.numel() == 0) return zeros(sizes, given.options());
  if (sizes.empty()) return given.reshape(sizes);
  const Tensor gradient = given.dim() == 0 ? given.unsqueeze(0) : given;
  const Layout whole = Layout::contiguous(sizes);
  return embed(gradient, sizes, {Layout::strided(gradient.sizes(), whole.stride_list()), 0});
}

/// The opposite: the part of the source that the index reads.
Tensor covered(const Tensor& source, const Dims& sizes) {
  if (source.dim() == 0) return source.reshape(sizes);
  Tensor part = source;
  for (int d = 0; d < part.dim(); ++d) part = part.narrow(d, 0, sizes.empty() ? 1 : sizes[d]);
  return part.reshape(sizes);
}

/// Gradients of self and source, from what each element of them multiplies the gradient of its result by.
Grads scatter_gradients(const Call& c, const Tensor& grad_self, const Tensor& grad_source) {
  return {grad_self, Tensor(), if_needed(c, 2, [&] { return padded(c, 2, grad_source); })};
}

/// A product's derivative is the product of the others: the result divided by the element, unless that is 0. Of the
/// zeros in one product, a single one multiplies the rest, and of two each multiplies the rest times the other; that is
/// 0, but its derivative is not.
Grads scatter_prod_gradient(const Call& c, const Tensor& g, const Tensor& x, const Tensor& source, const Tensor& index,
                            int64_t d) {
  const Tensor y = c.output();
  const Tensor x_is_0 = x.detach().eq(0), source_is_0 = source.detach().eq(0);
  const Tensor zeros_met = x_is_0.to(kI64).scatter_add(d, index, source_is_0.to(kI64));
  const Tensor rest = x.masked_fill(x_is_0, 1).scatter_reduce(d, index, source.masked_fill(source_is_0, 1), "prod");
  const Tensor sum_of_zeros =
      x.masked_fill(x_is_0.logical_not(), 0).scatter_add(d, index, source.masked_fill(source_is_0.logical_not(), 0));
  const auto others = [](const Tensor& value, const Tensor& is_0, const Tensor& product, const Tensor& met,
                         const Tensor& all_but_zeros, const Tensor& zeros) {
    const Tensor other_zero = zeros.sub(value).masked_fill(met.ne(2), 0).masked_fill(met.eq(1), 1);
    return all_but_zeros.mul(other_zero).where(is_0, product.div(value.masked_fill(is_0, 1)));
  };
  const auto at = [&](const Tensor& t) { return t.gather(d, index); };
  return scatter_gradients(
      c, if_needed(c, 0, [&] { return g.mul(others(x, x_is_0, y, zeros_met, rest, sum_of_zeros)); }),
      if_needed(c, 2, [&] {
        return at(g).mul(others(source, source_is_0, at(y), at(zeros_met), at(rest), at(sum_of_zeros)));
      }));
}

/// Everything that equals the extreme shares its gradient evenly, as in amax.
Grads scatter_extreme_gradient(const Call& c, const Tensor& g, const Tensor& x, const Tensor& source,
                               const Tensor& index, int64_t d) {
  const Tensor y = c.output().detach();
  const Tensor x_is_it = x.detach().eq(y), source_is_it = source.detach().eq(y.gather(d, index));
  const Tensor share = g.div(x_is_it.to(kI64).scatter_add(d, index, source_is_it.to(kI64)).clamp_min(1));
  return scatter_gradients(c, if_needed(c, 0, [&] { return share.mul(x_is_it); }),
                           if_needed(c, 2, [&] { return share.gather(d, index).mul(source_is_it); }));
}

Grads scatter_reduce_gradient(const Call& c, const Grads& g) {
  const Tensor index = c.input(1), source = covered(c.input(2), index.sizes());
  if (index.numel() == 0) return {g[0], Tensor(), if_needed(c, 2, [&] { return zeros(c.sizes(2), g[0].options()); })};
  const bool product = static_cast<kernels::Combine>(c.attribute<int64_t>(1)) == kernels::Combine::multiply;
  return (product ? scatter_prod_gradient : scatter_extreme_gradient)(c, g[0], c.input(0), source, index, dim(c));
}

/// The gradient of the number that filled slices: what arrived at them, each counted once.
Tensor filled_gradient(const Call& c, const Tensor& g) {
  Dims along = Dims::filled(static_cast<int>(g.dim()), 1);
  const int d = static_cast<int>(dim(c));
  if (g.dim() > 0) along[d] = g.size(d);
  const Tensor others = ones(along, {kBool, g.device()}).index_fill_(d, c.input(1), false);
  return g.masked_fill(others, 0).sum().to(c.dtype(2));
}

/// The index tensors of index (1 to inputs - 1) and of index_put (1 to inputs - 2).
std::vector<Tensor> indices(const Call& c, int count) {
  std::vector<Tensor> out;
  for (int i = 1; i <= count; ++i) out.push_back(c.defined(i) ? c.input(i) : Tensor());
  return out;
}

/// What arrived at the rows that the source of index_add or index_copy was written to. A number is a vector of one.
Tensor rows_read(const Call& c, const Tensor& g) {
  return reshape(index_select(g.dim() == 0 ? g.unsqueeze(0) : g, dim(c), c.input(1)), c.sizes(2));
}

constexpr uint32_t kIndices = kInputs & ~kInput0;

constexpr Rule kRules[] = {
    {Op::gather, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {zeros_like_input(c, g[0]).scatter_add_(dim(c), c.input(1), g[0]), Tensor()};
     }},
    {Op::scatter, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {if_needed(c, 0, [&] { return scatter(g[0], dim(c), c.input(1), 0); }), Tensor(),
               if_needed(c, 2, [&] { return padded(c, 2, gather(g[0], dim(c), c.input(1))); })};
     }},
    {Op::scatter_add, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {g[0], Tensor(), if_needed(c, 2, [&] { return padded(c, 2, gather(g[0], dim(c), c.input(1))); })};
     }},
    {Op::scatter_reduce, kInput0 | kInput1 | kInput2 | kOutput0, scatter_reduce_gradient},
    {Op::index_select, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {zeros_like_input(c, g[0]).index_add_(dim(c), c.input(1), g[0]), Tensor()};
     }},
    {Op::index_add, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {g[0], Tensor(), if_needed(c, 2, [&] { return rows_read(c, g[0]); })};
     }},
    {Op::index_copy, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {if_needed(c, 0, [&] { return index_fill(g[0], dim(c), c.input(1), 0); }), Tensor(),
               if_needed(c, 2, [&] { return rows_read(c, g[0]); })};
     }},
    {Op::index_fill, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {if_needed(c, 0, [&] { return index_fill(g[0], dim(c), c.input(1), 0); }), Tensor(),
               if_needed(c, 2, [&] { return filled_gradient(c, g[0]); })};
     }},
    {Op::index, kIndices,
     [](const Call& c, const Grads& g) -> Grads {
       Grads out(static_cast<size_t>(c.inputs()));
       out[0] = index_put_(zeros_like_input(c, g[0]), indices(c, c.inputs() - 1), g[0], true);
       return out;
     }},
    {Op::index_put, kIndices,
     [](const Call& c, const Grads& g) -> Grads {
       const int values = c.inputs() - 1;
       const std::vector<Tensor> at = indices(c, values - 1);
       Grads out(static_cast<size_t>(c.inputs()));
       if (c.needs(0)) out[0] = c.attribute<bool>(0) ? g[0] : index_put(g[0], at, zeros({}, g[0].options()));
       if (c.needs(values)) out[static_cast<size_t>(values)] = sum_to_size(index(g[0], at), c.sizes(values));
       return out;
     }},
    {Op::cat, kNothing,
     [](const Call& c, const Grads& g) -> Grads {
       Grads out(static_cast<size_t>(c.inputs()));
       int64_t at = 0;
       for (int i = 0; i < c.inputs(); ++i) {
         const Dims sizes = c.sizes(i);
         if (sizes == Dims{0} && g[0].dim() != 1) continue;  // a vector without elements joined nothing
         const int64_t length = sizes[static_cast<int>(dim(c))];
         if (c.needs(i)) out[static_cast<size_t>(i)] = narrow(g[0], dim(c), at, length).to(c.dtype(i));
         at += length;
       }
       return out;
     }},
    {Op::flip, kNothing, [](const Call& c, const Grads& g) -> Grads { return {flip(g[0], c.attribute<Dims>(0))}; }},
    {Op::roll, kNothing,
     [](const Call& c, const Grads& g) -> Grads {
       Dims back = c.attribute<Dims>(0);
       for (int64_t& shift : back) shift = -shift;
       return {roll(g[0], back, c.attribute<Dims>(1))};
     }},
    // Overwritten by random numbers: the history ends here.
    {Op::uniform, kNothing, [](const Call&, const Grads&) -> Grads { return {Tensor()}; }},
    {Op::normal, kNothing, [](const Call&, const Grads&) -> Grads { return {Tensor()}; }},
    {Op::random, kNothing, [](const Call&, const Grads&) -> Grads { return {Tensor()}; }},
    {Op::coin, kNothing, [](const Call&, const Grads&) -> Grads { return {Tensor()}; }},
};

}  // namespace

std::span<const Rule> indexing_rules() { return kRules; }

}  // namespace lorry::autograd
