// Lesson 14: fewer bits an element, and what is lost.

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/nn/gpt.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/optimizers.h"
#include "lorry/profile/lossy.h"

namespace lorry::bench::lessons {
namespace {

/// The largest error of an element that is kept in a type, relative to the element. Infinite if one overflows.
double largest_error(const Tensor& x, DType dtype) {
  const Tensor back = x.to(dtype).to(kF32);
  return ((back - x).abs() / (x.abs() + 1e-30)).max().item<double>();
}

void rates(LessonRun& run) {
  const int64_t n = run.pick<int64_t>(1 << 24, 1 << 28);
  run.compare("kept in fewer bits", fmt::format("{} numbers, scaled in place", quantity(static_cast<double>(n), "")));
  for (const DType dtype : {kF32, kF16, kBF16}) {
    // given: kept in fewer bits
    const Tensor exact = randn({n});
    const Tensor x = exact.to(dtype);

    const double bytes = 2.0 * static_cast<double>(x.nbytes());
    Way& way = run.way("scaled in place", std::string(name(dtype)), {.bytes = bytes}, [&] { x.mul_(1); });
    way.figures = {{"memory", static_cast<double>(x.nbytes()), "B"},
                   {"largest relative error", largest_error(exact, dtype)}};
  }
  run.conclude({.faster = "Half the bytes are moved in less time.",
                .same = "Converting the elements takes what the bytes save.",
                .slower = "Converting the elements takes more than the bytes save."});
}

void casts(LessonRun& run) {
  const int64_t n = run.pick(768, 4096);
  // given: cast for each use
  const Tensor a = randn({n, n});
  const Tensor b = randn({n, n}).to(kBF16);
  const Tensor kept = a.to(kBF16);

  const auto size = static_cast<double>(n);
  const Work work{.bytes = 3.0 * static_cast<double>(b.nbytes()), .flops = 2 * size * size * size, .dtype = "bf16"};
  Work casting = work;
  casting.bytes += static_cast<double>(a.nbytes() + b.nbytes());
  casting.calls = 2;
  run.compare("cast for each use", fmt::format("a weight of {0} x {0}, used in bf16", n));
  run.way("cast for each product", casting, [&] { return matmul(a.to(kBF16), b); });
  run.way("cast once and kept", work, [&] { return matmul(kept, b); });
  run.conclude({.faster = "The cast reads and writes the whole weight each time.",
                .same = "The cast is hidden by the product at this size.",
                .slower = "Casting each time does no harm here."});
}

/// What becomes of numbers beyond a type's range.
void ranges(LessonRun& run) {
  for (const DType dtype : {kF16, kBF16})
    for (const double value : {70000.0, 1e-8, 1.001}) {
      const double stored = full({1}, value, {.dtype = kF64}).to(dtype).to(kF64).item<double>();
      run.note(fmt::format("{:g} in {} becomes {:g}.", value, dtype, stored));
    }
}

/// 8 bits an element: how much smaller, how long it takes, and how far the result is off.
void eight_bits(LessonRun& run) {
  const int64_t n = run.pick<int64_t>(1 << 22, 1 << 26);
  // given: 8 bits an element
  const Tensor x = randn({n});

  run.compare("8 bits an element", fmt::format("{} normal numbers, compressed", quantity(static_cast<double>(n), "")));
  const auto add = [&](const QuantScheme& scheme) {
    const profile::TensorLoss loss = profile::tensor_loss(x, scheme);
    const double bytes = static_cast<double>(x.nbytes()) * (1 + loss.rate());
    Way& way =
        run.way("codes of one byte", to_string(scheme), {.bytes = bytes}, [&] { return quantize(x, scheme).codes; });
    way.figures = {{"bytes an original byte", loss.rate()},
                   {"largest error", loss.max_error},
                   {"signal to noise in dB", loss.snr_db}};
  };
  for (const QuantScheme& scheme :
       {QuantScheme::blocks(), QuantScheme::float8_e5m2(), QuantScheme::float8_e4m3(true), QuantScheme::int8()})
    add(scheme);
  run.conclude({.faster = "One scale for all takes least time, and one large element spoils it for all.",
                .same = "The schemes cost the same; choose by their errors.",
                .slower = "The scheme with a scale for each block is no slower, and its error follows the elements."});
}

/// Products of 8-bit integers, beside those of floats.
void products_of_int8(LessonRun& run) {
  const int64_t n = run.pick(512, 4096);
  // given: products of int8
  const Tensor a = randint(-127, 128, {n, n}, {.dtype = kI8});
  const Tensor b = randint(-127, 128, {n, n}, {.dtype = kI8});
  const Tensor fa = a.to(kF32), fb = b.to(kF32);

  const auto size = static_cast<double>(n);
  const Work work{.flops = 2 * size * size * size, .dtype = "f32"};
  run.compare("products of int8", fmt::format("{0} x {0} by {0} x {0}", n));
  run.way("in f32", work, [&] { return matmul(fa, fb); });
  run.way("in int8", {.bytes = 6 * size * size}, [&] { return int8_matmul(a, b); });
  run.conclude({.faster = "This device multiplies 8-bit integers at a higher rate.",
                .same = "This device gains nothing from 8-bit products, only from their smaller memory.",
                .slower = "This device has no fast 8-bit products: compress what is stored, not what is computed."});
}

/// A small model that has learnt a text: what compressing its weights costs its predictions, layer by layer.
void losses_of_a_model(LessonRun& run) {
  const nn::GPTConfig config{.vocab = 32, .context = 32, .layers = 2, .heads = 2, .width = 64};
  nn::GPT model(config);
  model.to(run.device());
  // Sums of two numbers before it: a rule that a small model learns in a second.
  const Tensor text = empty({8, config.context + 1}, {.dtype = kI64, .device = kCPU});
  int64_t* const tokens = text.data<int64_t>();
  for (int64_t i = 0; i < text.numel(); ++i)
    tokens[i] = i % (config.context + 1) < 2 ? (7 * i) % config.vocab : (tokens[i - 1] + tokens[i - 2]) % config.vocab;
  const Tensor batch = text.to(run.device());
  const profile::TokenBatch pair{batch.slice(1, 0, config.context).contiguous(),
                                 batch.slice(1, 1, config.context + 1).contiguous()};
  optim::AdamW optimizer(model.named_parameters(), {.lr = 5e-3});
  {
    const ModeScope learning(kGradMode, 0);
    for (int step = 0; step < 120; ++step) {
      model.loss(pair.tokens, pair.targets).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  for (const QuantScheme& scheme : {QuantScheme::int8_per_channel(0), QuantScheme::float8_e5m2(true)}) {
    const profile::LossByLayer found = profile::loss_by_layer(model, {&pair, 1}, scheme);
    const auto worst = std::ranges::max_element(found.layers, {}, &profile::LayerLoss::added);
    run.note(
        fmt::format("{}: a small GPT's loss of {:.4f} nats becomes {:.4f} with all weights compressed; the layer "
                    "that costs most is {} ({:+.2g}).",
                    found.scheme, found.loss, found.all.loss, worst->name, worst->added));
  }
}

}  // namespace

void compression(LessonRun& run) {
  rates(run);
  casts(run);
  ranges(run);
  eight_bits(run);
  products_of_int8(run);
  losses_of_a_model(run);
}

}  // namespace lorry::bench::lessons
