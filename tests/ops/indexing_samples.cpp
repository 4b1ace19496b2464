// Reading and writing at positions, joining, rearranging and sorting.

#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

using T = const Tensors&;

Tensors pair(const std::tuple<Tensor, Tensor>& result) { return {std::get<0>(result), std::get<1>(result)}; }

const Sample kSamples[] = {
    {.op = Op::gather,
     .inputs = {value({3, 4}), position({2, 4}, {0, 1, 2, 0, 2, 1, 1, 0})},
     .call = [](T t) -> Tensors { return {gather(t[0], 0, t[1])}; },
     .out = [](T out, T t) { gather_out(out[0], t[0], 0, t[1]); },
     .leading = 2},
    {.op = Op::gather,
     .inputs = {value({3, 4}), position({3, 2}, {0, 1})},
     .call = [](T t) -> Tensors { return {gather(t[0], -1, t[1])}; },
     .out = [](T out, T t) { gather_out(out[0], t[0], -1, t[1]); },
     .leading = 3},
    {.op = Op::scatter,
     .inputs = {value({3, 4}), position({2, 4}, {0, 1, 2, 0, 2, 0, 1, 1}), value({2, 4})},
     .call = [](T t) -> Tensors { return {scatter(t[0], 0, t[1], t[2])}; },
     .in_place = [](T t) { t[0].scatter_(0, t[1], t[2]); },
     .leading = 6},
    {.op = Op::scatter_add,
     .inputs = {value({3, 4}), position({2, 4}, {0, 1, 2, 0, 2, 1, 1, 0}), value({2, 4})},
     .call = [](T t) -> Tensors { return {scatter_add(t[0], 0, t[1], t[2])}; },
     .in_place = [](T t) { t[0].scatter_add_(0, t[1], t[2]); },
     .leading = 6},
    {.op = Op::index_select,
     .inputs = {value({3, 4}), position({3}, {2, 0, 2})},
     .call = [](T t) -> Tensors { return {index_select(t[0], 0, t[1])}; },
     .out = [](T out, T t) { index_select_out(out[0], t[0], 0, t[1]); },
     .leading = 2},
    {.op = Op::index_add,
     .inputs = {value({3, 4}), position({2}, {2, 0}), value({2, 4})},
     .call = [](T t) -> Tensors { return {index_add(t[0], 0, t[1], t[2], 2)}; },
     .in_place = [](T t) { t[0].index_add_(0, t[1], t[2], 2); },
     .leading = 6},
    {.op = Op::index_copy,
     .inputs = {value({3, 4}), position({2}, {2, 0}), value({2, 4})},
     .call = [](T t) -> Tensors { return {index_copy(t[0], 0, t[1], t[2])}; },
     .in_place = [](T t) { t[0].index_copy_(0, t[1], t[2]); },
     .leading = 6},
    {.op = Op::index_fill,
     .inputs = {value({3, 4}), position({2}, {3, 0})},
     .call = [](T t) -> Tensors { return {index_fill(t[0], 1, t[1], 1)}; },
     .in_place = [](T t) { t[0].index_fill_(1, t[1], 1); },
     .leading = 1},
    {.op = Op::index,
     .inputs = {value({3, 4}), position({2}, {2, 0}, true), position({2}, {1, -1}, true)},
     .call = [](T t) -> Tensors { return {index(t[0], Tensors{t[1], t[2]})}; },
     .leading = 6},
    {.op = Op::index_put,
     .inputs = {value({3, 4}), position({2}, {2, 0}), value({2, 4})},
     .call = [](T t) -> Tensors { return {index_put(t[0], Tensors{t[1]}, t[2])}; },
     .in_place = [](T t) { index_put_(t[0], Tensors{t[1]}, t[2]); },
     .leading = 6},
    {.op = Op::index_put,
     .inputs = {value({3, 4}), position({2}, {1, 1}), value({2, 4})},
     .call = [](T t) -> Tensors { return {index_put(t[0], Tensors{t[1]}, t[2], true)}; },
     .in_place = [](T t) { index_put_(t[0], Tensors{t[1]}, t[2], true); },
     .leading = 6},
    {.op = Op::nonzero,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {nonzero(t[0])}; },
     .out = [](T out, T t) { nonzero_out(out[0], t[0]); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::cat,
     .inputs = {value({3, 2}), value({3, 4})},
     .call = [](T t) -> Tensors { return {cat(t, 1)}; },
     .out = [](T out, T t) { cat_out(out[0], t, 1); },
     .leading = 3},
    {.op = Op::flip, .inputs = {value({3, 4})}, .call = [](T t) -> Tensors { return {flip(t[0], {-1})}; }, .leading = 1, .any_rank = true},
    {.op = Op::roll, .inputs = {value({3, 4})}, .call = [](T t) -> Tensors { return {roll(t[0], {1, -2}, {0, 1})}; }, .leading = 1},
    {.op = Op::sort,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return pair(sort(t[0], -1, true)); },
     .out = [](T out, T t) { sort_out(out[0], out[1], t[0], -1, true); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::topk,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return pair(topk(t[0], 1, -1)); },
     .out = [](T out, T t) { topk_out(out[0], out[1], t[0], 1, -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::topk,
     .inputs = {value({4, 3})},
     .call = [](T t) -> Tensors { return pair(topk(t[0], 3, 0, false)); },
     .out = [](T out, T t) { topk_out(out[0], out[1], t[0], 3, 0, false); }},
    {.op = Op::unique,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors {
       const Unique u = unique(t[0], true, true, true);
       return {u.values, u.inverse, u.counts};
     },
     .leading = 1,
     .any_rank = true},
};

}  // namespace

std::span<const Sample> indexing_samples() { return kSamples; }

}  // namespace lorry::test
