// Copies, views, triangles and random numbers.

#include <algorithm>

#include "lorry/layout/views.h"
#include "lorry/ops/internal.h"
#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

using T = const Tensors&;
using Values = std::vector<double>;

bool between(const Values& result, double low, double high) {
  return std::all_of(result.begin(), result.end(), [=](double v) { return v >= low && v <= high; });
}
bool zero_or_one(const Values& result) {
  return std::all_of(result.begin(), result.end(), [](double v) { return v == 0 || v == 1; });
}
bool permutation_of_seven(const Values& result) {
  const Values wanted{0, 1, 2, 3, 4, 5, 6};
  return std::is_permutation(result.begin(), result.end(), wanted.begin(), wanted.end());
}
/// Three different columns of five in each row.
bool different_columns(const Values& result) {
  bool good = between(result, 0, 4);
  for (size_t i = 0; i + 2 < result.size(); i += 3)
    good &= result[i] != result[i + 1] && result[i] != result[i + 2] && result[i + 1] != result[i + 2];
  return good;
}

const Sample kSamples[] = {
    // ---- copies
    {.op = Op::copy,
     .inputs = {value({3, 4}), value({4})},
     .call = [](T t) -> Tensors { return {clone(t[0]).copy_(t[1])}; },
     .in_place = [](T t) { t[0].copy_(t[1]); },
     .leading = 1},
    {.op = Op::copy,
     .inputs = {value({3, 4}), value({3, 4})},
     .call = [](T t) -> Tensors { return {clone(t[0]).copy_(t[1])}; },
     .in_place = [](T t) { t[0].copy_(t[1]); },
     .leading = 3,
     .any_rank = true},
    {.op = Op::cast,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {t[0].to(kF32).to(kF64)}; },
     .leading = 1,
     .any_rank = true,
     .step = 0x1p-5},     // what f32 holds exactly
    {.op = Op::transfer,  // from the CPU to the CPU nothing is done
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {t[0].to(kCPU)}; },
     .leading = 1,
     .any_rank = true},
    {.op = Op::clone,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {clone(t[0])}; },
     .leading = 1,
     .any_rank = true},
    {.op = Op::fill,
     .inputs = {value({3, 4}), value({})},
     .call = [](T t) -> Tensors { return {clone(t[0]).fill_(t[1])}; },
     .in_place = [](T t) { t[0].fill_(t[1]); },
     .leading = 1},
    {.op = Op::fill,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {clone(t[0]).fill_(1)}; },
     .in_place = [](T t) { t[0].fill_(1); },
     .leading = 1,
     .any_rank = true},
    // ---- views
    {.op = Op::as_strided,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors {
       return {as_strided(t[0], {2, 3}, {4, 1}, 1)};
     },
     .by_memory = true},
    {.op = Op::as_strided,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors {
       return {as_strided(t[0], {3, 3}, {2, 1}, 2)};
     },
     .by_memory = true},
    {.op = Op::view,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors {
       return {view(t[0], {2, -1})};
     },
     .by_memory = true},
    {.op = Op::view,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors {
       return {unflatten(t[0], 1, {2, 2})};
     },
     .leading = 1},
    {.op = Op::view,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors {
       return {view_as(t[0], ones({2, 6}))};
     },
     .by_memory = true},
    {.op = Op::permute,
     .inputs = {value({2, 3, 4})},
     .call = [](T t) -> Tensors {
       return {permute(t[0], {2, 0, 1})};
     },
     .leading = 1},
    {.op = Op::transpose,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {transpose(t[0], 0, -1)}; },
     .leading = 1,
     .any_rank = true},
    {.op = Op::expand,
     .inputs = {value({3, 1})},
     .call = [](T t) -> Tensors {
       return {expand(t[0], {2, -1, 4})};
     },
     .leading = 1},
    {.op = Op::select,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {select(t[0], 1, -2)}; },
     .leading = 1},
    {.op = Op::slice,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {slice(t[0], 1, 1, 4, 2)}; },
     .leading = 1},
    {.op = Op::diagonal,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {diagonal(t[0], 1)}; },
     .leading = 1},
    {.op = Op::unfold,
     .inputs = {value({3, 5})},
     .call = [](T t) -> Tensors { return {unfold(t[0], 1, 2, 2)}; },
     .leading = 1},
    {.op = Op::unfold,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {unfold(t[0], 1, 3, 1)}; },
     .leading = 1},
    {.op = Op::embed,
     .inputs = {value({2, 3})},
     .call = [](T t) -> Tensors {
       return {embed(t[0], {4, 5}, {Layout::strided({2, 3}, {5, 1}), 6})};
     }},
    {.op = Op::embed,
     .inputs = {value({2, 3})},
     .call = [](T t) -> Tensors {
       return {embed(t[0], {6}, {Layout::strided({2, 3}, {2, 1}), 1})};
     }},
    // ---- new tensors
    {.op = Op::empty,
     .call = [](T) -> Tensors {
       return {empty({2, 3}).zero_()};
     },
     .holds = [](const Values& v) { return v == Values(6, 0.0); }},
    {.op = Op::arange, .call = [](T) -> Tensors { return {arange(1, 7.5, 1.5, {.dtype = kF64})}; }},
    {.op = Op::arange, .call = [](T) -> Tensors { return {arange(5, -3, -2)}; }},
    {.op = Op::linspace, .call = [](T) -> Tensors { return {linspace(-1, 2, 7, {.dtype = kF64})}; }},
    // ---- triangles
    {.op = Op::tril,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {tril(t[0], 1)}; },
     .in_place = [](T t) { t[0].tril_(1); },
     .out = [](T out, T t) { tril_out(out[0], t[0], 1); },
     .leading = 1},
    {.op = Op::triu,
     .inputs = {value({2, 3, 3})},
     .call = [](T t) -> Tensors { return {triu(t[0])}; },
     .in_place = [](T t) { t[0].triu_(); },
     .out = [](T out, T t) { triu_out(out[0], t[0]); },
     .leading = 1},
    // ---- random numbers
    {.op = Op::rand,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {rand_like(t[0], {}, &fresh_generator())}; },
     .accepts = floating,
     .holds = [](const Values& v) { return between(v, 0, 1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::randn,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {randn_like(t[0], {}, &fresh_generator())}; },
     .accepts = floating,
     .holds = [](const Values& v) { return between(v, -9, 9); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::randint,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {randint_like(t[0], 0, 2, {}, &fresh_generator())}; },
     .holds = zero_or_one,
     .leading = 1,
     .any_rank = true},
    {.op = Op::randperm,
     .call = [](T) -> Tensors { return {randperm(7, default_device(), &fresh_generator())}; },
     .holds = permutation_of_seven},
    {.op = Op::bernoulli,
     .inputs = {chance({3, 4})},
     .call = [](T t) -> Tensors { return {bernoulli(t[0], &fresh_generator())}; },
     .accepts = floating,
     .holds = zero_or_one,
     .leading = 1,
     .any_rank = true},
    {.op = Op::multinomial,
     .inputs = {chance({2, 5})},
     .call = [](T t) -> Tensors { return {multinomial(t[0], 3, false, &fresh_generator())}; },
     .accepts = floating,
     .holds = different_columns,
     .leading = 1},
    {.op = Op::uniform,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {clone(t[0]).uniform_(-1, 2, &fresh_generator())}; },
     .in_place = [](T t) { t[0].uniform_(-1, 2, &fresh_generator()); },
     .accepts = floating,
     .holds = [](const Values& v) { return between(v, -1, 2); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::normal,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {clone(t[0]).normal_(3, 0.5, &fresh_generator())}; },
     .in_place = [](T t) { t[0].normal_(3, 0.5, &fresh_generator()); },
     .accepts = floating,
     .holds = [](const Values& v) { return between(v, -2, 8); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::random,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {clone(t[0]).random_(0, 2, &fresh_generator())}; },
     .in_place = [](T t) { t[0].random_(0, 2, &fresh_generator()); },
     .holds = zero_or_one,
     .leading = 1,
     .any_rank = true},
    {.op = Op::coin,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {clone(t[0]).bernoulli_(0.3, &fresh_generator())}; },
     .in_place = [](T t) { t[0].bernoulli_(0.3, &fresh_generator()); },
     .holds = zero_or_one,
     .leading = 1,
     .any_rank = true},
};

}  // namespace

std::span<const Sample> view_samples() { return kSamples; }

}  // namespace lorry::test
