// Gradients of reading and writing at positions. Reading is undone by adding at the same positions, writing by reading there; what
// a write replaced receives nothing.

#include "lorry/ops/indexing.h"
#include "lorry/autograd/rules.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/joining.h"
#include "lorry/ops/sum_to_size.h"
#include "lorry/ops/views.h"

namespace lorry::autograd {
namespace {

int64_t dim(const Call& c) { return c.attribute<int64_t>(0); }
Tensor zeros_like_input(const Call& c, const Tensor& g) { return zeros(c.sizes(0), g.options()); }
Tensor if_needed(const Call& c, int i, const auto& gradient) { return c.needs(i) ? gradient() : Tensor(); }

/// The part of a source that a smaller index reads has gradients; the rest has none.
Tensor padded(const Call& c, int i, const Tensor& gradient) {
  const Dims sizes = c.sizes(i);
  if (gradient.sizes() == sizes) return gradient;
  const Layout whole = Layout::contiguous(sizes);
  return embed(gradient, sizes, {Layout::strided(gradient.sizes(), whole.stride_list()), 0});
}

/// The index tensors of index (1 to inputs - 1) and of index_put (1 to inputs - 2).
std::vector<Tensor> indices(const Call& c, int count) {
  std::vector<Tensor> out;
  for (int i = 1; i <= count; ++i) out.push_back(c.defined(i) ? c.input(i) : Tensor());
  return out;
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
    {Op::index_select, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {zeros_like_input(c, g[0]).index_add_(dim(c), c.input(1), g[0]), Tensor()};
     }},
    {Op::index_add, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {g[0], Tensor(), if_needed(c, 2, [&] { return reshape(index_select(g[0], dim(c), c.input(1)), c.sizes(2)); })};
     }},
    {Op::index_copy, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {if_needed(c, 0, [&] { return index_fill(g[0], dim(c), c.input(1), 0); }), Tensor(),
               if_needed(c, 2, [&] { return reshape(index_select(g[0], dim(c), c.input(1)), c.sizes(2)); })};
     }},
    {Op::index_fill, kInput1,
     [](const Call& c, const Grads& g) -> Grads {
       return {index_fill(g[0], dim(c), c.input(1), 0), Tensor()};
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
