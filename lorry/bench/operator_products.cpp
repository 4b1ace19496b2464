// Matrix products, attention, chains with gradients, optimizer steps and the training step of a small GPT.

#include <fmt/core.h>

#include <memory>
#include <optional>

#include "lorry/autograd/engine.h"
#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/operator_cases.h"
#include "lorry/foreach/foreach.h"
#include "lorry/nn/gpt.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/clip.h"
#include "lorry/optim/optimizers.h"
#include "lorry/profile/benchmark.h"

namespace lorry::bench {
namespace {

using optim::Execution;
using profile::do_not_optimize;

void add_product(OperatorCases& cases, const std::string& name, DType dtype, int64_t batch, int64_t m, int64_t n,
                 int64_t k) {
  const double b = static_cast<double>(batch), rows = static_cast<double>(m), columns = static_cast<double>(n),
               inner = static_cast<double>(k);
  const double bytes = b * (rows * inner + inner * columns + rows * columns) * static_cast<double>(size_of(dtype));
  add_case(
      cases, fmt::format("{} {}", name, dtype), dtype, bytes,
      [=]() -> Call {
        const Tensor x = batch > 1 ? operand({batch, m, k}, dtype) : operand({m, k}, dtype),
                     y = batch > 1 ? operand({batch, k, n}, dtype) : operand({k, n}, dtype);
        return [=] { do_not_optimize(x.matmul(y)); };
      },
      2 * b * rows * columns * inner);
}

/// Attention of as many queries as keys.
struct AttentionCase {
  int64_t b, h, t, d;
  DType dtype;
  bool causal = true;
  std::optional<DType> mask{};  ///< of a mask [t, t]
  double dropout = 0;

  std::string name() const {
    return fmt::format("{} x {} x {} x {}{}{}{} {}", b, h, t, d, causal ? ", causal" : "",
                       mask ? fmt::format(", {} mask", *mask) : "",
                       dropout > 0 ? fmt::format(", dropout {}", dropout) : "", dtype);
  }
  double elements() const { return static_cast<double>(b * h * t * d); }
  /// Products of queries with keys, and of weights with values. Causal: half of the weights are 0.
  double flops() const { return (causal ? 2 : 4) * elements() * static_cast<double>(t); }
};

void add_attention(OperatorCases& cases, const AttentionCase& x) {
  const auto inputs = [x](bool with_gradient) {
    std::array<Tensor, 4> of;
    for (size_t i = 0; i < 3; ++i) of[i] = operand({x.b, x.h, x.t, x.d}, x.dtype).requires_grad_(with_gradient);
    if (x.mask) of[3] = operand({x.t, x.t}, *x.mask);
    return of;
  };
  const AttentionOptions options{.dropout = x.dropout, .causal = x.causal};
  const double bytes = x.elements() * static_cast<double>(size_of(x.dtype));
  add_case(
      cases, "attention of " + x.name(), x.dtype, 4 * bytes,
      [=]() -> Call {
        return [=, of = inputs(false)] {
          do_not_optimize(scaled_dot_product_attention(of[0], of[1], of[2], of[3], options));
        };
      },
      x.flops());
  add_case(
      cases, "attention backward of " + x.name(), x.dtype, 8 * bytes,
      [=]() -> Call {
        const auto of = inputs(true);
        const Tensor y = scaled_dot_product_attention(of[0], of[1], of[2], of[3], options),
                     grad = operand(y.sizes(), x.dtype);
        return [=] { do_not_optimize(autograd::grad({y}, {of[0], of[1], of[2]}, {grad}, {.retain_graph = true})[0]); };
      },
      2.5 * x.flops());
}

/// Parameters with gradients.
std::vector<Tensor> parameters(const std::vector<Dims>& shapes) {
  std::vector<Tensor> all;
  for (const Dims& sizes : shapes) {
    const Tensor x = operand(sizes).requires_grad_();
    x.set_grad(operand(sizes));
    all.push_back(x);
  }
  return all;
}

/// The shapes of a decoder of 60 M parameters: 8 layers 512 wide, as Llama has them, over 32000 tokens.
std::vector<Dims> llama_60m() {
  std::vector<Dims> shapes = {{32000, 512}, {512}, {32000, 512}};
  for (int layer = 0; layer < 8; ++layer)
    for (const Dims& x : {Dims{512, 512}, Dims{512, 512}, Dims{512, 512}, Dims{512, 512}, Dims{1376, 512},
                          Dims{1376, 512}, Dims{512, 1376}, Dims{512}, Dims{512}})
      shapes.push_back(x);
  return shapes;
}

int64_t elements_of(const std::vector<Dims>& shapes) {
  int64_t all = 0;
  for (const Dims& sizes : shapes) {
    int64_t n = 1;
    for (const int64_t x : sizes) n *= x;
    all += n;
  }
  return all;
}

/// Steps an optimizer. passes: how often a parameter's bytes are read or written.
template <class Options>
void add_step(OperatorCases& cases, const std::string& name, const std::vector<Dims>& shapes, double passes,
              Execution execution) {
  add_case(cases, name, kF32, 4 * passes * static_cast<double>(elements_of(shapes)), [=]() -> Call {
    const auto optimizer = std::make_shared<optim::OptimizerFor<Options>>(parameters(shapes), Options{}, execution);
    return [=] { optimizer->step(); };
  });
}

}  // namespace

void add_product_cases(OperatorCases& cases) {
  for (const int64_t n : {64, 256, 1024}) add_product(cases, fmt::format("matmul of {0} x {0}", n), kF32, 1, n, n, n);
  add_product(cases, "matmul of 1024 x 1024", kBF16, 1, 1024, 1024, 1024);
  add_product(cases, "matmul of 512 x 512", kF64, 1, 512, 512, 512);
  add_product(cases, "matmul of 256 x 256", kI64, 1, 256, 256, 256);
  add_product(cases, "bmm of 1024 of 16 x 16", kF32, 1024, 16, 16, 16);
  add_product(cases, "bmm of 64 of 128 x 128", kF32, 64, 128, 128, 128);
  add_case(cases, "mv of 4096 x 4096 f32", kF32, 4.0 * 4096 * 4096, []() -> Call {
    return [x = operand({4096, 4096}), y = operand({4096})] { do_not_optimize(x.mv(y)); };
  });
  add_case(cases, "dot of 4 M f32", kF32, 8.0 * kLarge,
           []() -> Call { return [x = operand({kLarge}), y = operand({kLarge})] { do_not_optimize(x.dot(y)); }; });
  constexpr double kLinear = 2.0 * 512 * 768 * 3072;
  add_case(
      cases, "linear of 512 x 768 to 3072 f32", kF32, 4.0 * (512 * 768 + 768 * 3072 + 512 * 3072),
      []() -> Call {
        return [x = operand({512, 768}), w = operand({3072, 768}), b = operand({3072})] {
          do_not_optimize(linear(x, w, b));
        };
      },
      kLinear);
  add_attention(cases, {4, 8, 256, 64, kF32});
}

OperatorCases attention_cases() {
  OperatorCases cases;
  for (const AttentionCase& x : {AttentionCase{2, 8, 2048, 64, kF32},
                                 {1, 8, 2048, 128, kF32},
                                 {1, 8, 4096, 128, kF32},
                                 {4, 16, 1024, 64, kBF16},
                                 {4, 16, 1000, 64, kBF16},
                                 {4, 16, 1000, 128, kBF16},
                                 {4, 16, 1024, 64, kBF16, false, kBool},
                                 {4, 16, 1024, 64, kBF16, false, kBF16},
                                 {4, 16, 1024, 64, kBF16, true, {}, 0.1}})
    add_attention(cases, x);
  return cases;
}

void add_training_cases(OperatorCases& cases) {
  const std::vector<Dims> many(10000, Dims{100}), wide = {{20 << 20}}, llama = llama_60m();
  for (const Execution execution : {Execution::loop, Execution::foreach, Execution::fused})
    add_step<optim::AdamWOptions>(cases, fmt::format("AdamW {} over 10000 of 100 f32", optim::name(execution)), many, 7,
                                  execution);
  add_step<optim::AdamWOptions>(cases, "AdamW fused over 20 M f32", wide, 7, Execution::fused);
  add_step<optim::AdamWOptions>(cases, "AdamW foreach over 20 M f32", wide, 7, Execution::foreach);
  add_step<optim::AdamWOptions>(cases, "AdamW fused over llama-60m f32", llama, 7, Execution::fused);
  add_step<optim::AdamWOptions>(cases, "AdamW foreach over llama-60m f32", llama, 7, Execution::foreach);
  add_step<optim::SGDOptions>(cases, "SGD fused over llama-60m f32", llama, 3, Execution::fused);
  add_case(cases, "clip_grad_norm over llama-60m f32", kF32, 4.0 * static_cast<double>(elements_of(llama)),
           [=]() -> Call { return [all = parameters(llama)] { do_not_optimize(optim::clip_grad_norm_(all, 1e9)); }; });
  add_case(cases, "foreach mul by a number, 1000 of 1000 f32", kF32, 8e6, []() -> Call {
    std::vector<Tensor> list;
    for (int i = 0; i < 1000; ++i) list.push_back(operand({1000}));
    return [=] { do_not_optimize(foreach::mul(list, 1.5)); };
  });
  add_case(cases, "chain of 100 small operators with gradients f32", kF32, 0, []() -> Call {
    return [x = operand({64}).requires_grad_()] {
      Tensor y = x;
      for (int i = 0; i < 50; ++i) y = (y * 1.01).tanh();
      do_not_optimize(autograd::grad({y.sum()}, {x})[0]);
    };
  });
  add_case(cases, "training step of nano, 16 x 128 f32", kF32, 0, []() -> Call {
    const auto model = std::make_shared<nn::GPT>(nn::gpt_preset("nano"));
    const auto optimizer = std::make_shared<optim::AdamW>(model->named_parameters());
    const Tensor tokens = randint(0, 256, {16, 129});
    return [=] {
      optimizer->zero_grad();
      model->loss(tokens.narrow(1, 0, 128), tokens.narrow(1, 1, 128)).backward();
      optimizer->step({.max_norm = 1});
    };
  });
}

}  // namespace lorry::bench
