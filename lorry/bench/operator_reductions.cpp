// Reductions, scans, and what is done to each row: normalisations and losses, with their gradients, as in a training
// step.

#include <fmt/core.h>

#include "lorry/autograd/engine.h"
#include "lorry/bench/operator_cases.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/benchmark.h"

namespace lorry::bench {
namespace {

using profile::do_not_optimize;

struct Reduction {
  const char* name;
  Tensor (*of_all)(const Tensor& x);  ///< null: it has no such form
  Tensor (*along)(const Tensor& x, int64_t dim);
};

constexpr Reduction kReductions[] = {
    {"sum", [](const Tensor& x) { return x.sum(); }, [](const Tensor& x, int64_t dim) { return x.sum({dim}); }},
    {"mean", [](const Tensor& x) { return x.mean(); }, [](const Tensor& x, int64_t dim) { return x.mean({dim}); }},
    {"amax", [](const Tensor& x) { return x.amax(); }, [](const Tensor& x, int64_t dim) { return x.amax({dim}); }},
    {"amin", [](const Tensor& x) { return x.amin(); }, nullptr},
    {"prod", [](const Tensor& x) { return x.prod(); }, [](const Tensor& x, int64_t dim) { return x.prod(dim); }},
    {"var", [](const Tensor& x) { return x.var(); }, [](const Tensor& x, int64_t dim) { return x.var({dim}); }},
    {"norm", [](const Tensor& x) { return x.norm(); }, [](const Tensor& x, int64_t dim) { return x.norm(2, {dim}); }},
    {"argmax", [](const Tensor& x) { return x.argmax(); }, [](const Tensor& x, int64_t dim) { return x.argmax(dim); }},
    {"any", [](const Tensor& x) { return x.gt(2).any(); }, nullptr},
    {"max with places", nullptr, [](const Tensor& x, int64_t dim) { return std::get<1>(x.max(dim)); }},
    {"logsumexp", nullptr, [](const Tensor& x, int64_t dim) { return x.logsumexp({dim}); }},
};

void add_reduction(OperatorCases& cases, const Reduction& op, DType dtype) {
  const auto add = [&](const std::string& name, const Dims& sizes, auto call) {
    add_case(cases, fmt::format("{}, {}", name, dtype), dtype, static_cast<double>((1 << 24) * size_of(dtype)),
             [=]() -> Call { return [=, x = operand(sizes, dtype)] { do_not_optimize(call(x)); }; });
  };
  if (op.of_all != nullptr) add(fmt::format("{} of 16 M", op.name), {1 << 24}, op.of_all);
  if (op.along == nullptr) return;
  const auto along = op.along;
  add(fmt::format("{} of rows of 4096 x 4096", op.name), {4096, 4096}, [=](const Tensor& x) { return along(x, 1); });
  add(fmt::format("{} of columns of 4096 x 4096", op.name), {4096, 4096}, [=](const Tensor& x) { return along(x, 0); });
}

/// A function of rows of x with a weight and a bias, and its gradients.
void add_with_gradients(OperatorCases& cases, const std::string& name, double forward, double backward,
                        Tensor (*call)(const Tensor& x, const Tensor& weight, const Tensor& bias)) {
  constexpr double kBytes = 4.0 * 4096 * 1024;
  add_case(cases, name + ", 4096 x 1024 f32", kF32, forward * kBytes, [=]() -> Call {
    return [=, x = operand({4096, 1024}), weight = operand({1024}), bias = operand({1024})] {
      do_not_optimize(call(x, weight, bias));
    };
  });
  add_case(cases, name + " backward, 4096 x 1024 f32", kF32, backward * kBytes, [=]() -> Call {
    const Tensor x = operand({4096, 1024}).requires_grad_(), weight = operand({1024}).requires_grad_(),
                 bias = operand({1024}).requires_grad_(), y = call(x, weight, bias), grad = operand(y.sizes());
    return [=] {
      do_not_optimize(autograd::grad({y}, {x, weight, bias}, {grad}, {.retain_graph = true, .allow_unused = true})[0]);
    };
  });
}

void add_cross_entropy(OperatorCases& cases) {
  add_case(cases, "cross_entropy, 4096 x 1024 f32", kF32, 4.0 * 4096 * 1024, []() -> Call {
    return
        [x = operand({4096, 1024}), target = randint(0, 1024, {4096})] { do_not_optimize(cross_entropy(x, target)); };
  });
  add_case(cases, "cross_entropy backward, 4096 x 1024 f32", kF32, 8.0 * 4096 * 1024, []() -> Call {
    const Tensor x = operand({4096, 1024}).requires_grad_(), y = cross_entropy(x, randint(0, 1024, {4096}));
    return [=] { do_not_optimize(autograd::grad({y}, {x}, {}, {.retain_graph = true})[0]); };
  });
}

}  // namespace

void add_reduction_cases(OperatorCases& cases) {
  for (const Reduction& op : kReductions) add_reduction(cases, op, kF32);
  add_reduction(cases, kReductions[0], kBF16);
  add_reduction(cases, kReductions[2], kBF16);
  add_reduction(cases, kReductions[0], kI64);
  add_case(cases, "sum of every second of 16 M f32", kF32, 4.0 * (1 << 24),
           []() -> Call { return [x = operand({1 << 24}).slice(0, 0, {}, 2)] { do_not_optimize(x.sum()); }; });
  add_case(cases, "sum of 8 x 128 f32", {8, 128}, kF32, 1, [](const Tensor& x) { return x.sum(); });
  add_case(cases, "count_nonzero of 16 M f32", {1 << 24}, kF32, 1, [](const Tensor& x) { return x.count_nonzero(); });
  add_case(cases, "cumsum of rows of 4096 x 1024 f32", {4096, 1024}, kF32, 2,
           [](const Tensor& x) { return x.cumsum(1); });
  add_case(cases, "cumsum of columns of 4096 x 1024 f32", {4096, 1024}, kF32, 2,
           [](const Tensor& x) { return x.cumsum(0); });
  add_case(cases, "cumsum of 4 M f32", {kLarge}, kF32, 2, [](const Tensor& x) { return x.cumsum(0); });
  add_case(cases, "cumsum of rows of 4096 x 1024 i64", {4096, 1024}, kI64, 2,
           [](const Tensor& x) { return x.cumsum(1); });
  add_case(cases, "cumprod of rows of 4096 x 1024 f32", {4096, 1024}, kF32, 2,
           [](const Tensor& x) { return x.cumprod(1); });
}

void add_row_cases(OperatorCases& cases) {
  const auto softmax_of = [&](const char* what, const Dims& sizes, DType dtype) {
    add_case(cases, fmt::format("softmax of rows of {} {}", what, dtype), sizes, dtype, 2,
             [](const Tensor& x) { return x.softmax(1); });
  };
  softmax_of("4096 x 1024", {4096, 1024}, kF32);
  softmax_of("4096 x 1024", {4096, 1024}, kBF16);
  softmax_of("64 x 64", {64, 64}, kF32);
  softmax_of("8 x 128", {8, 128}, kF32);
  softmax_of("16 M x 1", {1 << 24, 1}, kF32);
  softmax_of("1 x 16 M", {1, 1 << 24}, kF32);
  add_case(cases, "softmax of columns of 4096 x 1024 f32", {4096, 1024}, kF32, 2,
           [](const Tensor& x) { return x.softmax(0); });
  add_with_gradients(cases, "softmax", 2, 3,
                     [](const Tensor& x, const Tensor&, const Tensor&) { return x.softmax(1); });
  add_with_gradients(cases, "log_softmax", 2, 3,
                     [](const Tensor& x, const Tensor&, const Tensor&) { return x.log_softmax(1); });
  add_with_gradients(cases, "layer_norm", 2, 3, [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return layer_norm(x, {1024}, weight, bias);
  });
  add_with_gradients(cases, "rms_norm", 2, 3,
                     [](const Tensor& x, const Tensor& weight, const Tensor&) { return rms_norm(x, {1024}, weight); });
  add_with_gradients(cases, "gelu", 2, 3, [](const Tensor& x, const Tensor&, const Tensor&) { return gelu(x); });
  add_with_gradients(cases, "dropout", 2.25, 2.25,
                     [](const Tensor& x, const Tensor&, const Tensor&) { return dropout(x, 0.1); });
  add_cross_entropy(cases);
  const auto norm_of = [&](const char* what, const Dims& sizes) {
    add_case(cases, fmt::format("layer_norm of rows of {} f32", what), kF32, 8.0 * (1 << 24), [=]() -> Call {
      const Tensor x = operand(sizes), weight = operand({sizes[1]}), bias = operand({sizes[1]});
      return [=] { do_not_optimize(layer_norm(x, {x.size(1)}, weight, bias)); };
    });
  };
  norm_of("16 M x 1", {1 << 24, 1});
  norm_of("1 x 16 M", {1, 1 << 24});
  norm_of("16 x 1 M", {16, 1 << 20});
  add_case(cases, "layer_norm of rows of 4096 x 1024 bf16", {4096, 1024}, kBF16, 2,
           [](const Tensor& x) { return layer_norm(x, {1024}); });
}

void add_sorting_cases(OperatorCases& cases) {
  add_case(cases, "sort of rows of 4096 x 1024 f32", {4096, 1024}, kF32, 4,
           [](const Tensor& x) { return std::get<0>(x.sort(1)); });
  add_case(cases, "sort of 4 M f32", {kLarge}, kF32, 4, [](const Tensor& x) { return std::get<0>(x.sort(0)); });
  add_case(cases, "topk 50 of rows of 4096 x 1024 f32", {4096, 1024}, kF32, 1,
           [](const Tensor& x) { return std::get<0>(x.topk(50, 1)); });
  add_case(cases, "topk 50 of rows of 1000 x 50000 f32", {1000, 50000}, kF32, 1,
           [](const Tensor& x) { return std::get<0>(x.topk(50, 1)); });
  add_case(cases, "topk 1 of rows of 1000 x 1000 f32", {1000, 1000}, kF32, 1,
           [](const Tensor& x) { return std::get<0>(x.topk(1, 1)); });
  add_case(cases, "kthvalue 100 of rows of 4096 x 1024 f32", {4096, 1024}, kF32, 1,
           [](const Tensor& x) { return std::get<0>(x.kthvalue(100, 1)); });
  add_case(cases, "median of rows of 4096 x 1024 f32", {4096, 1024}, kF32, 1,
           [](const Tensor& x) { return std::get<0>(x.median(1)); });
  const auto of_whole = [&](const char* name, int64_t high, Tensor (*call)(const Tensor&)) {
    add_case(cases, name, kI64, 16.0 * kLarge,
             [=]() -> Call { return [=, x = randint(0, high, {kLarge})] { do_not_optimize(call(x)); }; });
  };
  of_whole("sort of 4 M i64", int64_t{1} << 40, [](const Tensor& x) { return std::get<0>(x.sort(0)); });
  of_whole("argsort of 4 M i64 below 1000", 1000, [](const Tensor& x) { return x.argsort(0); });
  of_whole("unique of 4 M i64", int64_t{1} << 40, [](const Tensor& x) { return x.unique().values; });
  of_whole("unique of 4 M i64 below 1000", 1000, [](const Tensor& x) { return x.unique().values; });
  for (const int64_t n : {int64_t{1000}, int64_t{1} << 24})
    add_case(cases, fmt::format("randperm of {}", n == 1000 ? "1000" : "16 M"), kI64, 8.0 * static_cast<double>(n),
             [=]() -> Call { return [=] { do_not_optimize(randperm(n)); }; });
}

}  // namespace lorry::bench
