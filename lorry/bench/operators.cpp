// Single operators: elementwise ones on tensors that fit the first-level cache, so that computation dominates;
// reductions, normalisations and losses over rows, with their gradients, as in a training step; and sorting. Bytes are
// those of each operand, read or written once.

#include <fmt/core.h>

#include "lorry/autograd/engine.h"
#include "lorry/bench/suites.h"
#include "lorry/ops/ops.h"

namespace lorry::bench {
namespace {

using profile::do_not_optimize;

class OperatorCases {
 public:
  explicit OperatorCases(const Filter& filter) : filter_(filter) {}

  template <class F>
  void add(const std::string& name, DType dtype, double bytes, F&& call) {
    if (filter_(name))
      results_.push_back({.suite = "operators",
                          .name = name,
                          .time = profile::benchmark([&] { do_not_optimize(call()); }, {.device = default_device()}),
                          .dtype = std::string(lorry::name(dtype)),
                          .bytes = static_cast<int64_t>(bytes)});
  }
  std::vector<Result> results() const { return results_; }

 private:
  const Filter& filter_;
  std::vector<Result> results_;
};

/// Functions of one tensor, with 16 KB in f32.
void elementwise(OperatorCases& cases) {
  constexpr int64_t kElements = 4096;
  using Unary = Tensor (*)(const Tensor&);
  constexpr std::pair<const char*, Unary> kUnary[] = {{"exp", exp},  {"gelu", gelu}, {"gelu_tanh", gelu_tanh},
                                                      {"log", log},  {"silu", silu}, {"sin", sin},
                                                      {"tanh", tanh}};
  for (const auto& [name, call] : kUnary)
    for (const DType dtype : {kF32, kBF16, kF64}) {
      const Tensor x = ones({kElements}, {.dtype = dtype});
      cases.add(fmt::format("{} {} {}", name, kElements, dtype), dtype, 2.0 * static_cast<double>(x.nbytes()),
                [&] { return call(x); });
    }
  for (const int64_t rows : {8, 512}) {
    const Tensor x = ones({rows, 128}), bias = ones({128});
    cases.add(fmt::format("add a row, {} x 128", rows), kF32, 2.0 * static_cast<double>(x.nbytes()),
              [&] { return add(x, bias); });
  }
}

void reductions(OperatorCases& cases) {
  const Tensor vector = rand({1 << 24}), square = rand({4096, 4096}), rows = rand({4096, 1024}), small = rand({8, 128});
  const auto add = [&](const char* name, const Tensor& x, double passes, auto&& call) {
    cases.add(name, kF32, passes * static_cast<double>(x.nbytes()), [&] { return call(x); });
  };
  add("norm of 16 M", vector, 1, [](const Tensor& x) { return x.norm(); });
  add("max of 16 M", vector, 1, [](const Tensor& x) { return x.max(); });
  add("var of rows", square, 1, [](const Tensor& x) { return x.var({1}); });
  add("argmax of rows", square, 1, [](const Tensor& x) { return x.argmax(1); });
  add("softmax of columns, 4096 x 1024", rows, 2, [](const Tensor& x) { return x.softmax(0); });
  add("sort of rows, 4096 x 1024", rows, 4, [](const Tensor& x) { return std::get<0>(x.sort(1)); });
  add("topk 50 of rows, 4096 x 1024", rows, 1, [](const Tensor& x) { return std::get<0>(x.topk(50, 1)); });
  add("sum, 8 x 128", small, 1, [](const Tensor& x) { return x.sum(); });
  add("softmax, 8 x 128", small, 2, [](const Tensor& x) { return x.softmax(1); });
}

/// Operators over rows of 1024 as in a training step, forward and backward.
void with_gradients(OperatorCases& cases) {
  const Tensor x = rand({4096, 1024}).requires_grad_(), weight = rand({1024}).requires_grad_(),
               bias = rand({1024}).requires_grad_(), grad = rand({4096, 1024}), target = randint(0, 1024, {4096});
  const auto add = [&](const std::string& name, double forward, double backward, auto&& call) {
    const double bytes = static_cast<double>(x.nbytes());
    cases.add(name + ", 4096 x 1024", kF32, forward * bytes, call);
    const Tensor y = call(), y_grad = y.dim() == 0 ? Tensor() : grad;
    cases.add(name + " backward, 4096 x 1024", kF32, backward * bytes, [&] {
      return autograd::grad({y}, {x, weight, bias}, {y_grad}, {.retain_graph = true, .allow_unused = true})[0];
    });
  };
  add("layer_norm", 2, 3, [&] { return layer_norm(x, {1024}, weight, bias); });
  add("rms_norm", 2, 3, [&] { return rms_norm(x, {1024}, weight); });
  add("log_softmax", 2, 3, [&] { return x.log_softmax(1); });
  add("cross_entropy", 1, 2, [&] { return cross_entropy(x, target); });
  add("dropout", 2.25, 2.25, [&] { return dropout(x, 0.1); });
}

}  // namespace

std::vector<Result> operators_suite(const Filter& filter) {
  OperatorCases cases(filter);
  elementwise(cases);
  reductions(cases);
  with_gradients(cases);
  return cases.results();
}

}  // namespace lorry::bench
