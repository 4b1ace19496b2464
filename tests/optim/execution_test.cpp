// loop, foreach and fused are executions of one formula: the same bits, whatever the shapes, dtypes and layouts.

#include <cmath>

#include "tests/optim/support.h"
#include "tests/support/dtypes.h"

namespace lorry::optim::test {
namespace {

/// A model's worth of odd tensors: empties, single elements, tails of registers, sizes over a block, layouts of every
/// kind.
std::vector<NamedTensor> model(DType dtype) {
  std::mt19937_64 random(5);
  std::vector<NamedTensor> params;
  for (const Dims& sizes :
       {Dims{}, Dims{0}, Dims{1}, Dims{3, 5}, Dims{17}, Dims{2, 0, 4}, Dims{7, 9, 11}, Dims{33, 31}, Dims{1, 1025}})
    params.emplace_back(fmt::format("p{}", params.size()), parameter(random_tensor(random, sizes, dtype)));
  const Tensor transposed = empty_strided({6, 10}, {1, 6}, {.dtype = dtype}),
               non_dense = empty_strided({5, 4}, {7, 1}, {.dtype = dtype});
  for (const Tensor& x : {transposed, non_dense}) x.copy_(random_tensor(random, x.sizes(), dtype));
  params.emplace_back("transposed", parameter(transposed));
  params.emplace_back("non_dense", parameter(non_dense));
  for (int i = 0; i < 40; ++i)
    params.emplace_back(fmt::format("bias{}", i), parameter(random_tensor(random, {i % 13}, dtype)));
  return params;
}

/// Gives every parameter a gradient; some miss one now and then.
void give_gradients(const std::vector<NamedTensor>& params, int step) {
  std::mt19937_64 random(1000 + step);
  for (const auto& [name, param] : params) {
    const Tensor grad =
        random_tensor(random, param.sizes(), param.dtype(), std::ldexp(1.0, static_cast<int>(random() % 12) - 8));
    const bool missing = random() % 10 == 0;
    param.set_grad(missing ? Tensor() : grad);
  }
}

template <class Optimizer, class Options>
void expect_same_bits(const Options& options, DType dtype, int steps, const std::vector<double>& factors = {}) {
  SCOPED_TRACE(fmt::format("{} steps in {}", steps, dtype));
  const auto looped = model(dtype), listed = model(dtype), fused = model(dtype), compiled = model(dtype);
  Optimizer by_loop(looped, options, Execution::loop), is_foreach(listed, options, Execution::foreach),
      by_kernel(fused, options, Execution::fused), is_compiled(compiled, options, Execution::compiled);
  for (int step = 0; step < steps; ++step) {
    for (const auto* params : {&looped, &listed, &fused, &compiled}) give_gradients(*params, step);
    const Tensor factor =
        factors.empty() ? Tensor() : tensor_of({factors[static_cast<size_t>(step) % factors.size()]}, {}, kF64);
    for (Optimizer* optimizer : {&by_loop, &is_foreach, &by_kernel, &is_compiled}) optimizer->step(factor);
  }
  for (const auto* params : {&listed, &fused, &compiled})
    for (size_t i = 0; i < looped.size(); ++i)
      EXPECT_EQ(bits(looped[i].second), bits((*params)[i].second)) << looped[i].first;
  const TensorMap states = by_loop.state_dict();
  for (const TensorMap& others : {is_foreach.state_dict(), by_kernel.state_dict(), is_compiled.state_dict()}) {
    ASSERT_EQ(states.size(), others.size());
    for (const auto& [name, state] : states) EXPECT_EQ(bits(state), bits(others.at(name))) << name;
  }
}

TEST(Execution, all_executions_of_adamw_agree_to_the_bit_over_1000_steps) {
  expect_same_bits<AdamW>(AdamWOptions{.lr = 0.01, .weight_decay = 0.1}, kF32, 1000);
}

TEST(Execution, all_executions_of_sgd_agree_to_the_bit_over_1000_steps) {
  expect_same_bits<SGD>(SGDOptions{.lr = 0.001, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, kF32, 1000);
}

TEST(Execution, every_option_and_dtype_agrees_to_the_bit) {
  for (const DType dtype : lorry::test::kFloatingDTypes) {
    expect_same_bits<AdamW>(AdamWOptions{.lr = 0.02, .amsgrad = true}, dtype, 12);
    expect_same_bits<AdamW>(AdamWOptions{.weight_decay = 0, .maximize = true}, dtype, 12);
    expect_same_bits<Adam>(AdamOptions{.beta1 = 0, .weight_decay = 0.1}, dtype, 12);
    expect_same_bits<SGD>(SGDOptions{.lr = 0.1}, dtype, 12);
    expect_same_bits<SGD>(
        SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.1, .maximize = true}, dtype, 12);
  }
}

TEST(Execution, masters_agree_to_the_bit) {
  for (const DType dtype : lorry::test::kNarrowDTypes) {
    expect_same_bits<AdamW>(AdamWOptions{.lr = 0.02, .amsgrad = true, .memory = {.masters = Masters::f32}}, dtype, 12);
    expect_same_bits<Adam>(AdamOptions{.weight_decay = 0.1, .memory = {.masters = Masters::f32}}, dtype, 12);
    expect_same_bits<SGD>(SGDOptions{.lr = 0.1, .memory = {.masters = Masters::f32}}, dtype, 12);
    expect_same_bits<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .memory = {.masters = Masters::f32}}, dtype, 12);
  }
}

TEST(Execution, scaled_and_skipped_steps_agree_to_the_bit) {
  const std::vector<double> factors = {NAN, 0.5, 1.0 / 3, NAN, 1};
  for (const DType dtype : lorry::test::kFloatingDTypes)
    for (const bool masters : {false, true}) {
      expect_same_bits<AdamW>(
          AdamWOptions{.lr = 0.02, .amsgrad = true, .memory = {.masters = masters ? Masters::f32 : Masters::none}},
          dtype, 11, factors);
      expect_same_bits<SGD>(SGDOptions{.lr = 0.1,
                                       .momentum = 0.9,
                                       .dampening = 0.2,
                                       .memory = {.masters = masters ? Masters::f32 : Masters::none}},
                            dtype, 11, factors);
    }
}

TEST(Execution, automatic_is_fused) { EXPECT_EQ(SGD(model(kF32)).execution(), Execution::fused); }

TEST(Execution, is_parsed_by_name) {
  EXPECT_EQ(parse_execution("loop"), Execution::loop);
  EXPECT_EQ(message<ValueError>([] { parse_execution("fast"); }),
            "execution: unknown name; got 'fast'; expected automatic, loop, foreach, fused or compiled");
}

}  // namespace
}  // namespace lorry::optim::test
