// What moves elements: indexing, joining, copies between layouts and dtypes, and creation.

#include <fmt/core.h>

#include "lorry/autograd/engine.h"
#include "lorry/bench/operator_cases.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/benchmark.h"

namespace lorry::bench {
namespace {

using profile::do_not_optimize;

/// Rows of a table of embeddings, as many as a batch has tokens.
constexpr int64_t kRows = 8192, kTable = 50257, kWidth = 768;
constexpr double kRowBytes = 4.0 * kRows * kWidth;

void add_row_indexing(OperatorCases& cases) {
  add_case(cases, "index_select of 8192 rows of 50257 x 768 f32", kF32, 2 * kRowBytes, []() -> Call {
    const Tensor table = operand({kTable, kWidth}), rows = randint(0, kTable, {kRows});
    return [=] { do_not_optimize(table.index_select(0, rows)); };
  });
  add_case(cases, "index_select of 512 columns of 4096 x 1024 f32", kF32, 2 * 4.0 * 4096 * 512, []() -> Call {
    const Tensor x = operand({4096, 1024}), columns = randint(0, 1024, {512});
    return [=] { do_not_optimize(x.index_select(1, columns)); };
  });
  add_case(cases, "embedding of 8192 in 50257 x 768 f32", kF32, 2 * kRowBytes, []() -> Call {
    const Tensor table = operand({kTable, kWidth}), rows = randint(0, kTable, {kRows});
    return [=] { do_not_optimize(embedding(rows, table)); };
  });
  add_case(cases, "embedding backward of 8192 in 50257 x 768 f32", kF32, 3 * kRowBytes + 4.0 * kTable * kWidth,
           []() -> Call {
             const Tensor table = operand({kTable, kWidth}).requires_grad_(), rows = randint(0, kTable, {kRows});
             const Tensor y = embedding(rows, table), grad = operand(y.sizes());
             return [=] { do_not_optimize(autograd::grad({y}, {table}, {grad}, {.retain_graph = true})[0]); };
           });
  add_case(
      cases, "index_add of 8192 rows to 4096 x 768 f32", kF32, 3 * kRowBytes + 2 * 4.0 * 4096 * kWidth, []() -> Call {
        const Tensor x = operand({4096, kWidth}), source = operand({kRows, kWidth}), rows = randint(0, 4096, {kRows});
        return [=] { do_not_optimize(x.index_add(0, rows, source)); };
      });
  add_case(cases, "index_copy of 4096 rows to 8192 x 768 f32", kF32, 3 * kRowBytes, []() -> Call {
    const Tensor x = operand({kRows, kWidth}), source = operand({4096, kWidth}),
                 rows = randperm(kRows).narrow(0, 0, 4096).clone();
    return [=] { do_not_optimize(x.index_copy(0, rows, source)); };
  });
  add_case(cases, "index of rows by a vector, 8192 of 50257 x 768 f32", kF32, 2 * kRowBytes, []() -> Call {
    const Tensor table = operand({kTable, kWidth}), rows = randint(0, kTable, {kRows});
    return [=] { do_not_optimize(table.index({rows})); };
  });
  add_case(cases, "index_put of 8192 rows of 50257 x 768 f32, adding", kF32, 3 * kRowBytes, []() -> Call {
    const Tensor table = operand({kTable, kWidth}), rows = randint(0, kTable, {kRows}),
                 source = operand({kRows, kWidth});
    return [=] { table.index_put_({rows}, source, true); };
  });
}

void add_element_indexing(OperatorCases& cases) {
  constexpr double kBytes = 4096.0 * 1024;
  const auto matrix = [] { return operand({4096, 1024}); };
  const auto places = [] { return randint(0, 1024, {4096, 1024}); };
  add_case(cases, "gather along rows of 4096 x 1024 f32", kF32, 16 * kBytes,
           [=]() -> Call { return [x = matrix(), at = places()] { do_not_optimize(x.gather(1, at)); }; });
  add_case(cases, "gather along columns of 4096 x 1024 f32", kF32, 16 * kBytes,
           [=]() -> Call { return [x = matrix(), at = places()] { do_not_optimize(x.gather(0, at)); }; });
  add_case(cases, "scatter along rows of 4096 x 1024 f32", kF32, 20 * kBytes, [=]() -> Call {
    return [x = matrix(), at = places(), y = matrix()] { do_not_optimize(x.scatter(1, at, y)); };
  });
  add_case(cases, "scatter_add along rows of 4096 x 1024 f32", kF32, 20 * kBytes, [=]() -> Call {
    return [x = matrix(), at = places(), y = matrix()] { do_not_optimize(x.scatter_add(1, at, y)); };
  });
  add_case(cases, "masked_select of half of 4 M f32", kF32, 7.0 * kLarge, []() -> Call {
    const Tensor x = operand({kLarge}), chosen = x.lt(0.5);
    return [=] { do_not_optimize(x.masked_select(chosen)); };
  });
  add_case(cases, "nonzero of 16 M bool, a sixth", kBool, (1 << 24) * (1 + 8 / 6.0),
           []() -> Call { return [x = operand({1 << 24}).gt(0.9 - 0.8 / 6)] { do_not_optimize(x.nonzero()); }; });
}

void add_joining(OperatorCases& cases) {
  add_case(cases, "cat of 64 of 4096 x 16 along rows f32", kF32, 8.0 * 4096 * 1024, []() -> Call {
    std::vector<Tensor> parts;
    for (int i = 0; i < 64; ++i) parts.push_back(operand({4096, 16}));
    return [=] { do_not_optimize(cat(parts, 1)); };
  });
  add_case(cases, "cat of 4 of 1 M f32", kF32, 8.0 * kLarge, []() -> Call {
    std::vector<Tensor> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(operand({kLarge / 4}));
    return [=] { do_not_optimize(cat(parts)); };
  });
  add_case(cases, "stack of 8 of 512 x 1024 along the last f32", kF32, 8.0 * kLarge, []() -> Call {
    std::vector<Tensor> parts;
    for (int i = 0; i < 8; ++i) parts.push_back(operand({512, 1024}));
    return [=] { do_not_optimize(stack(parts, 2)); };
  });
  const Dims matrix = {4096, 1024};
  add_case(cases, "roll of 4096 x 1024 f32", matrix, kF32, 2, [](const Tensor& x) { return x.roll({100}, {1}); });
  add_case(cases, "flip of rows of 4096 x 1024 f32", matrix, kF32, 2, [](const Tensor& x) { return x.flip({1}); });
  add_case(cases, "repeat of 1024 x 1024 4 times f32", {1024, 1024}, kF32, 5, [](const Tensor& x) {
    return x.repeat({2, 2});
  });
  add_case(cases, "repeat_interleave by 4 of 1 M f32", {1 << 20}, kF32, 5,
           [](const Tensor& x) { return x.repeat_interleave(4); });
  add_case(cases, "tril of 2048 x 2048 f32", {2048, 2048}, kF32, 2, [](const Tensor& x) { return x.tril(); });
}

}  // namespace

void add_indexing_cases(OperatorCases& cases) {
  add_row_indexing(cases);
  add_element_indexing(cases);
  add_joining(cases);
}

void add_copy_cases(OperatorCases& cases) {
  for (const DType dtype : {kF32, kBF16, kF64, kU8})
    add_case(cases, fmt::format("contiguous of a transposed 4096 x 4096 {}", dtype), {4096, 4096}, dtype, 2,
             [](const Tensor& x) { return x.t().contiguous(); });
  add_case(cases, "contiguous of 64 x 32 x 32 x 64, channels first f32", {64, 32, 32, 64}, kF32, 2,
           [](const Tensor& x) {
             return x.permute({0, 3, 1, 2}).contiguous();
           });
  add_case(cases, "contiguous of 4 x 1024 x 16 x 64, heads first f32", {4, 1024, 16, 64}, kF32, 2,
           [](const Tensor& x) { return x.transpose(1, 2).contiguous(); });
  add_case(cases, "contiguous of every second of 8 M f32", {1 << 23}, kF32, 1.5,
           [](const Tensor& x) { return x.slice(0, 0, {}, 2).contiguous(); });
  add_case(cases, "add of a transposed 2048 x 2048 f32", {2048, 2048}, kF32, 3,
           [](const Tensor& x) { return x.add(x.t()); });
  add_case(cases, "clone of 16 M f32", {1 << 24}, kF32, 2, [](const Tensor& x) { return x.clone(); });
  add_case(cases, "clone of 4096 f32", {kSmall}, kF32, 2, [](const Tensor& x) { return x.clone(); });
  const auto cast = [&](DType from, DType to, Tensor (*call)(const Tensor&)) {
    add_case(cases, fmt::format("cast of 4 M {} to {}", from, to), {kLarge}, from,
             1 + static_cast<double>(size_of(to)) / static_cast<double>(size_of(from)), call);
  };
  cast(kF32, kBF16, [](const Tensor& x) { return x.to(kBF16); });
  cast(kBF16, kF32, [](const Tensor& x) { return x.to(kF32); });
  cast(kF32, kF16, [](const Tensor& x) { return x.to(kF16); });
  cast(kF32, kF64, [](const Tensor& x) { return x.to(kF64); });
  cast(kI64, kF32, [](const Tensor& x) { return x.to(kF32); });
  cast(kF32, kI32, [](const Tensor& x) { return x.to(kI32); });
  cast(kBool, kF32, [](const Tensor& x) { return x.to(kF32); });
  const auto create = [&](const std::string& name, DType dtype, int64_t elements, Tensor (*call)()) {
    add_case(cases, name, dtype, static_cast<double>(elements * size_of(dtype)),
             [=]() -> Call { return [=] { do_not_optimize(call()); }; });
  };
  create("zeros of 4 M f32", kF32, kLarge, [] { return zeros({kLarge}); });
  create("full of 4 M f32", kF32, kLarge, [] { return full({kLarge}, 1.5); });
  create("arange of 4 M i64", kI64, kLarge, [] { return arange(kLarge); });
  create("rand of 4 M f32", kF32, kLarge, [] { return rand({kLarge}); });
  create("randn of 4 M f32", kF32, kLarge, [] { return randn({kLarge}); });
  create("randint of 4 M i64", kI64, kLarge, [] { return randint(0, 1000, {kLarge}); });
  add_case(cases, "bernoulli of 4 M f32", {kLarge}, kF32, 2, [](const Tensor& x) { return x.bernoulli(); });
  add_case(cases, "multinomial 64 of rows of 64 x 50257 f32", {64, 50257}, kF32, 1,
           [](const Tensor& x) { return x.multinomial(64); });
}

}  // namespace lorry::bench
