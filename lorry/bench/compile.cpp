// Compiled functions compared with the same functions run eagerly. Bytes are those of arguments and results, read or
// written once: the bytes that a fused function moves. bench/peers/compile_torch.py has the same cases.

#include <fmt/core.h>

#include <memory>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/compile_cases.h"
#include "lorry/nn/gpt.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/optimizers.h"
#include "lorry/optim/schedule.h"

namespace lorry::bench {
namespace {

/// 20 operators that processors have instructions for.
Tensor arithmetic(const Tensor& x, const Tensor& y) {
  const Tensor a = x * 2 + 1, b = a * y - x, c = b / (y + 2), d = c.abs() + 1, e = d.sqrt() * a;
  const Tensor g = minimum(maximum(e, b), d), h = g.square() - c;
  return -(clamp(h * 0.5 + e, -3, 3) * y - x);
}

/// 20 operators, 8 of them exp, log, sin, cos, tanh, sigmoid, erf and log1p.
Tensor transcendental(const Tensor& x, const Tensor& y) {
  const Tensor a = (x * 0.5).exp(), b = (a + 1).log(), c = (b * x).sin(), d = (c + y).cos(), e = (d * a).tanh();
  const Tensor f = (e - b).sigmoid(), g = (f * 2).erf(), h = g.abs().log1p();
  return (h * c + d) / (f + 1);
}

/// 8 operators, one of them transcendental.
Tensor chain(const Tensor& x, const Tensor& y) { return sigmoid((x * 2 + y).abs() * y - x) * 0.5 + y; }

/// Larger on a GPU, where the others would fit the cache.
void large(CompileCases& cases) {
  const bool on_gpu = !default_device().is_cpu();
  const int64_t millions = on_gpu ? 64 : 16, elements = millions << 20, rows = 16384, n = on_gpu ? 4096 : 1024;
  const auto bytes = [](const Tensor& x, int operands) { return operands * x.nbytes(); };
  const auto over = [&](const char* name) { return fmt::format("{}, {} M", name, millions); };
  const auto over_rows = [&](const char* name) { return fmt::format("{}, {} x {}", name, rows, n); };
  {
    const Tensor x = randn({elements}), y = rand({elements});
    cases.add({.name = over("8 operators"), .bytes = bytes(x, 3)}, chain, x, y);
    cases.add({.name = over("20 arithmetic operators"), .bytes = bytes(x, 3)}, arithmetic, x, y);
    cases.add({.name = over("20 operators, 8 transcendental"), .bytes = bytes(x, 3)}, transcendental, x, y);
  }
  const Tensor x = randn({rows, n}), weight = randn({n}), bias = randn({n});
  cases.add(
      {.name = over_rows("mul and softmax"), .bytes = bytes(x, 2)},
      [](const Tensor& scores) { return softmax(scores * 0.125, -1); }, x);
  cases.add(
      {.name = over_rows("softmax of 5 operators"), .bytes = bytes(x, 2)},
      [](const Tensor& scores) {
        const Tensor terms = exp(scores - amax(scores, {-1}, true));
        return terms / terms.sum({-1}, true);
      },
      x);
  cases.add(
      {.name = over_rows("gelu and layer_norm"), .bytes = bytes(x, 2)},
      [&](const Tensor& data) { return layer_norm(gelu(data), {n}, weight, bias); }, x);
}

/// The cost of a call with almost no work.
void small(CompileCases& cases) {
  const Tensor x = randn({64}), y = rand({64}), a = ones({1}), b = ones({1}), c = ones({1});
  cases.add({.name = "20 arithmetic operators, 64 elements"}, arithmetic, x, y);
  cases.add(
      {.name = "guard of 3 arguments: mul and add, 1 element"},
      [](const Tensor& p, const Tensor& q, const Tensor& r) { return p * q + r; }, a, b, c);
}

/// A call with each of 50 text lengths: three are recorded (256 is also the width), the others follow from them.
void lengths(CompileCases& cases) {
  const CompileCase about{.name = "50 sequence lengths, 8 to 400 x 256"};
  if (!cases.wants(about.name)) return;
  const auto function = [](const Tensor& x) { return softmax(gelu(x * 0.125 + 1) - x, -1); };
  std::vector<Tensor> inputs;
  for (int64_t k = 1; k <= 50; ++k) inputs.push_back(randn({8 * k, 256}));
  const auto pass = [&](const auto& f) {
    Tensor last;
    for (const Tensor& x : inputs) last = f(x);
    return last;
  };
  const auto compiled = compile(function, cases.options());
  for (int round = 0; round < 2; ++round)
    for (const Tensor& x : inputs) require_same_bits(about.name, function(x), compiled(x));
  if (cases.compare(
          about, [&] { return pass(function); }, compiled, [&] { return pass(compiled); }))
    cases.add_first(
        about, [&] { return compile(function, cases.options()); }, pass);
}

/// A GPT with its optimizer and schedule.
struct Training {
  Training(const nn::GPTConfig& config, DType dtype) : model(config) { model.to(dtype); }

  Tensor step(const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = model.loss(x, y);
    loss.backward();
    optimizer.step();
    schedule.step();
    return loss.detach();
  }

  nn::GPT model;
  optim::AdamW optimizer{model.named_parameters(), {.lr = 1e-3, .weight_decay = 0.1}};
  optim::LRScheduler schedule{optimizer, {.kind = optim::Schedule::Kind::cosine, .warmup = 10, .steps = 1'000'000}};
};

void training(CompileCases& cases, const char* preset, int64_t batch, DType dtype) {
  const nn::GPTConfig config = nn::gpt_preset(preset);
  const CompileCase about{
      .name = fmt::format("{} training step, batch {} x {}, {}", preset, batch, config.context, name(dtype)),
      .tokens = batch * config.context,
      .dtype = dtype,
      .tolerance = dtype == kF32 ? 0 : 0.02};  // of the loss, because of products with epilogues
  if (!cases.wants(about.name)) return;
  const auto make = [&] {
    manual_seed(0);
    return std::make_unique<Training>(config, dtype);
  };
  const auto compiled_step = [&](Training& of, bool epilogues = true) {
    return compile([&of](const Tensor& x, const Tensor& y) { return of.step(x, y); },
                   {.wait = true, .epilogues = epilogues});
  };
  const Tensor tokens = randint(0, config.vocab, {batch, config.context + 1});
  const Tensor x = tokens.narrow(1, 0, config.context).contiguous(),
               y = tokens.narrow(1, 1, config.context).contiguous();
  const auto plain = make(), fused = make();
  const auto same = compiled_step(*fused, false), step = compiled_step(*fused);
  for (int round = 0; round < 8; ++round) require_same_bits(about.name, plain->step(x, y), same(x, y));
  const std::vector<Tensor> expected = plain->model.parameters(), got = fused->model.parameters();
  for (size_t i = 0; i < expected.size(); ++i) require_same_bits(about.name, expected[i], got[i]);

  if (cases.compare(
          about, [&] { return plain->step(x, y); }, step, [&] { return step(x, y); }))
    cases.add_first(about, make, [&](const auto& fresh) { return compiled_step(*fresh)(x, y); });
}

}  // namespace

std::vector<Result> compile_suite(const Filter& filter) {
  CompileCases cases(filter);
  {
    const NoGrad no_grad;
    large(cases);
    small(cases);
    lengths(cases);
  }
  memory::empty_cache(default_device());
  training(cases, "nano", 16, kF32);
  if (!default_device().is_cpu()) {
    memory::empty_cache(default_device());
    training(cases, "gpt2", 8, kBF16);
  }
  return cases.rows();
}

}  // namespace lorry::bench
