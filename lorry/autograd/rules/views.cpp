// Gradients of views. A view that keeps every element is undone by another view; one that selects elements is undone by
// embedding the gradient in zeros; one that repeats elements is undone by summing.

#include "lorry/layout/views.h"
#include "lorry/autograd/rules.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/sum_to_size.h"
#include "lorry/ops/views.h"

namespace lorry::autograd {
namespace {

/// The gradient of input 0 through a view that would have taken `view` from it, had it been row-major.
Grads embedded(const Call& c, const Grads& g, const View& view) { return {embed(g[0], c.sizes(0), view)}; }
Layout row_major(const Call& c) { return Layout::contiguous(c.sizes(0)); }

Grads as_strided_gradient(const Call& c, const Grads& g) {
  const Layout& from = c.layout(0);
  require<GradError>(
      !from.has_internal_overlap(),
      "as_strided: no gradient for an input whose elements overlap; got sizes {} and strides {}; clone it first",
      from.size_list(), from.stride_list());
  if (g[0].numel() == 0) return {zeros(c.sizes(0), g[0].options())};
  // Both geometries lie over one stretch of memory, counted from whichever begins first.
  const int64_t input_offset = c.attribute<int64_t>(3), output_offset = c.attribute<int64_t>(2),
                first = std::min(input_offset, output_offset);
  const Layout to = Layout::strided(c.attribute<Dims>(0), c.attribute<Dims>(1));
  const int64_t stretch = std::max(input_offset - first + from.extent(), output_offset - first + to.extent());
  return {as_strided(embed(g[0], {stretch}, {to, output_offset - first}), from.size_list(), from.stride_list(),
                     input_offset - first)};
}

constexpr Rule kRules[] = {
    {Op::view, kNothing, [](const Call& c, const Grads& g) -> Grads { return {reshape(g[0], c.sizes(0))}; }},
    {Op::permute, kNothing,
     [](const Call& c, const Grads& g) -> Grads {
       Dims dims = c.attribute<Dims>(0);
       for (int64_t& d : dims) d = d < 0 ? d + dims.size() : d;
       return {permute(g[0], views::inverse(dims))};
     }},
    {Op::transpose, kNothing,
     [](const Call& c, const Grads& g) -> Grads {
       return {transpose(g[0], c.attribute<int64_t>(0), c.attribute<int64_t>(1))};
     }},
    {Op::expand, kNothing, [](const Call& c, const Grads& g) -> Grads { return {sum_to_size(g[0], c.sizes(0))}; }},
    {Op::select, kNothing,
     [](const Call& c, const Grads& g) {
       return embedded(c, g, views::select(row_major(c), c.attribute<int64_t>(0), c.attribute<int64_t>(1)));
     }},
    {Op::slice, kNothing,
     [](const Call& c, const Grads& g) {
       const views::Range range{c.attribute<int64_t>(1), c.attribute<int64_t>(2), c.attribute<int64_t>(3)};
       return embedded(c, g, views::slice(row_major(c), static_cast<int>(c.attribute<int64_t>(0)), range));
     }},
    {Op::diagonal, kNothing,
     [](const Call& c, const Grads& g) {
       return embedded(
           c, g,
           views::diagonal(row_major(c), c.attribute<int64_t>(0), c.attribute<int64_t>(1), c.attribute<int64_t>(2)));
     }},
    {Op::unfold, kNothing,
     [](const Call& c, const Grads& g) {
       return embedded(
           c, g,
           views::unfold(row_major(c), c.attribute<int64_t>(0), c.attribute<int64_t>(1), c.attribute<int64_t>(2)));
     }},
    {Op::as_strided, kNothing, as_strided_gradient},
    // embed reads nothing from its result's memory: its gradient is the same view of a row-major gradient.
    {Op::embed, kNothing,
     [](const Call& c, const Grads& g) -> Grads {
       const Tensor from = g[0].contiguous();
       return {as_strided(from, c.attribute<Dims>(1), c.attribute<Dims>(2),
                          from.storage_offset() + c.attribute<int64_t>(3))};
     }},
    {Op::tril, kNothing, [](const Call& c, const Grads& g) -> Grads { return {tril(g[0], c.attribute<int64_t>(0))}; }},
    {Op::triu, kNothing, [](const Call& c, const Grads& g) -> Grads { return {triu(g[0], c.attribute<int64_t>(0))}; }},
};

}  // namespace

std::span<const Rule> view_rules() { return kRules; }

}  // namespace lorry::autograd
