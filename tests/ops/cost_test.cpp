// What calls must move and compute (door::cost), against numbers counted by hand.

#include "lorry/ops/dispatch/cost.h"

#include <gtest/gtest.h>

#include "lorry/lorry.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry::test {
namespace {

using door::CallView;

/// The last call of an operator.
struct Meter {
  Op op;
  int calls = 0;
  door::Cost cost = {};
  int64_t block_bytes = 0;  ///< of an optimizer's step: those of its hyper blocks
};
Meter g_meter;

void measure(const CallView& call, void*) {
  if (call.op != g_meter.op) return;
  ++g_meter.calls;
  g_meter.cost = door::cost(call);
  if (call.op != Op::optimizer_step) return;
  g_meter.block_bytes = 0;
  for (const Tensor& x : call.outputs)  // hyper blocks are the last output of bytes
    if (x.dtype() == kU8) g_meter.block_bytes = x.nbytes();
}

template <class F>
void expect_cost(Op op, int64_t bytes, int64_t flops, const F& f) {
  SCOPED_TRACE(name(op));
  static constexpr door::Listener kListener{.bit = kUserMode, .after = measure};
  g_meter = {.op = op};
  {
    const door::ListenerScope listening(kListener);
    f();
  }
  EXPECT_EQ(g_meter.calls, 1);
  EXPECT_EQ(g_meter.cost.bytes, bytes);
  EXPECT_EQ(g_meter.cost.flops, flops);
}

TEST(Cost, of_elements_counts_each_once) {
  const Tensor a = ones({2, 3});
  expect_cost(Op::add, 3 * 24, 6, [&] { a.add(a); });
  expect_cost(Op::add, 2 * 24, 6, [&] { a.add_(1); });
  expect_cost(Op::fill, 24, 0, [&] { a.fill_(1); });
  expect_cost(Op::sum, 24 + 4, 6, [&] { a.sum(); });
  expect_cost(Op::transpose, 0, 0, [&] { a.transpose(0, 1); });
  const Tensor expanded = ones({3, 1}).expand({3, 100});
  expect_cost(Op::neg, 12 + 1200, 300, [&] { expanded.neg(); });  // a repeated element is read once
}

TEST(Cost, of_products_is_that_of_their_factors) {
  const Tensor a = ones({2, 3}), b = ones({3, 5}), q = ones({2, 3, 16, 4});
  expect_cost(Op::matmul, 4 * (6 + 15 + 10), 2 * 2 * 3 * 5, [&] { matmul(a, b); });
  expect_cost(Op::addmm, 4 * (5 + 6 + 15 + 10), 2 * 2 * 3 * 5, [&] { addmm(ones({5}), a, b); });
  const int64_t elements = 2 * 3 * 16 * 4, logsumexp = 2 * 3 * 16, products = 2 * (2 * 2 * 3 * 16 * 16 * 4);
  expect_cost(Op::attention, 4 * (4 * elements + logsumexp), products, [&] { scaled_dot_product_attention(q, q, q); });
  expect_cost(Op::attention, 4 * (4 * elements + logsumexp), products / 2,
              [&] { scaled_dot_product_attention(q, q, q, {}, {.causal = true}); });
}

TEST(Cost, of_indexing_is_that_of_the_elements_that_are_selected) {
  const Tensor wide = ones({10, 6}), index = arange(4);
  expect_cost(Op::index_fill, 4 * 8 + 4 * 6 * 4, 0, [&] { wide.index_fill_(0, index, 2); });
  expect_cost(Op::index_fill, 4 * 8 + 4 + 4 * 10 * 4, 0, [&] { wide.index_fill_(1, index, full({}, 2.0f)); });
  expect_cost(Op::index_put, 4 * 8 + 6 * 4 + 4 * 6 * 4, 0, [&] { wide.index_put_({index}, ones({6})); });
  expect_cost(Op::index_put, 2 * 4 * 8 + 4 + 2 * 16 * 4, 0, [&] {  // read and written
    wide.index_put_({index, index.unsqueeze(1)}, ones({}), true);
  });
  const Tensor cache = ones({4, 2, 2, 3}), two = ones({2, 2, 3}), one_each = zeros({2}, {kI32});
  expect_cost(Op::paged_write, 2 * 2 * 12 * 4 + 3 * 2 * 4, 0, [&] {  // block_table, slots and positions
    paged_write(cache, cache.clone(), two, two, zeros({2, 1}, {kI32}), one_each, one_each);
  });
  const Tensor i64 = zeros({2}, {kI64}), i32 = full({2}, -1, {kI32}), pair = zeros({2, 2}, {kI64});
  expect_cost(Op::advance_sequences, 2 * (16 + 32 + 2 * 3 * 8 + 16), 0, [&] {  // limits, keys, stops and next
    advance_sequences({i64, i32, i32.clone(), i64.clone(), zeros({2}, {kF64}), zeros({2, 4}, {kI64}),
                       zeros({0, 0}, {kBool}), i64.clone(), pair, zeros({2, 1, 3}, {kI64})},
                      i64.clone());
  });
  const Tensor table = ones({1000, 8}), rows = tensor({1, 2, 3});
  expect_cost(Op::embedding, 2 * 3 * 8 * 4 + 3 * 8, 0, [&] { embedding(rows, table); });
}

TEST(Cost, of_a_call_without_attributes_is_that_of_its_inputs) {
  const Tensor x = ones({10, 6}), index = arange(4), value = full({}, 2.0f);
  const door::Input inputs[] = {&x, &index, &value};
  const door::Cost cost = door::cost({.op = Op::index_fill, .in_place = true, .inputs = inputs, .outputs = {&x, 1}});
  EXPECT_EQ(cost.bytes, 4 * 8 + 4 + 4 * 6 * 4);
  EXPECT_EQ(door::cost({.op = Op::optimizer_step, .in_place = true, .inputs = inputs}).flops, 0);
  const door::Attribute many[] = {std::string("sgd"), int64_t{0}, INT64_MAX};
  EXPECT_EQ(door::cost({.op = Op::optimizer_step, .in_place = true, .inputs = inputs, .attributes = many}).flops,
            15 * (60 + 4 + 1));
}

/// Two tensors of 11 elements in all: 44 bytes of f32.
std::vector<Tensor> eleven(DType dtype = kF32) { return {ones({2, 3}, {dtype}), ones({5}, {dtype})}; }

TEST(Cost, of_lists_is_that_of_their_entries) {
  const NoGrad quiet;
  const foreach::TensorList x = eleven(), y = eleven(), half = eleven(kBF16);
  expect_cost(Op::foreach_add, 3 * 44, 11, [&] { foreach::add(x, y); });
  expect_cost(Op::foreach_add, 2 * 44, 11, [&] { foreach::add_(x, 1); });
  expect_cost(Op::foreach_mul, 2 * 44, 11, [&] { foreach::mul(x, std::vector<double>{1, 2}); });
  expect_cost(Op::foreach_mul, 2 * 44 + 2 * 4, 11, [&] { foreach::mul(x, ones({2})); });
  expect_cost(Op::foreach_gt, 2 * 44 + 11, 11, [&] { foreach::gt(x, y); });
  expect_cost(Op::foreach_addcmul, 4 * 44, 11, [&] { foreach::addcmul_(x, y, y, 0.5); });
  expect_cost(Op::foreach_copy, 22 + 44, 0, [&] { foreach::copy_(x, half); });
  expect_cost(Op::foreach_cast, 44 + 22, 0, [&] { foreach::to(x, kBF16); });
  expect_cost(Op::foreach_fill, 44, 0, [&] { foreach::fill_(x, 3); });
  expect_cost(Op::foreach_max, 44 + 2 * 4, 11, [&] { foreach::max(x); });
}

TEST(Cost, of_norms_and_clips_is_that_of_their_entries) {
  const NoGrad quiet;
  const foreach::TensorList x = eleven();
  const Tensor sum = foreach::power_sum(x), scale = full({}, 2, {.dtype = kF64});
  expect_cost(Op::norms, 44 + 3 * 8, 2 * 11, [&] { foreach::norms(x); });
  expect_cost(Op::foreach_norm, 44 + 2 * 4, 2 * 11, [&] { foreach::norm(x); });
  expect_cost(Op::foreach_norm, 44 + 2 * 2, 2 * 11, [&] { foreach::norm(x, 1, kBF16); });
  expect_cost(Op::total_norm, 44 + 8, 2 * 11, [&] { foreach::total_norm(x); });
  expect_cost(Op::power_sum, 44 + 8, 2 * 11, [&] { foreach::power_sum(x); });
  expect_cost(Op::finish_norm, 8 + 2 * 8, 0, [&] { foreach::finish_norm(sum); });
  expect_cost(Op::clip_factor, 44 + 2 * 8, 2 * 11, [&] { foreach::clip_factor(x); });
  expect_cost(Op::clip_factor, 44 + 8 + 2 * 8, 2 * 11, [&] { foreach::clip_factor(x, {.scale = scale}); });
  expect_cost(Op::scale_norm, 44 + 8 + 44, 11, [&] { foreach::scale_norm_(x, scale); });
  expect_cost(Op::clip_norm, 44 + 44 + 8, 3 * 11, [&] { foreach::clip_norm_(x, 1); });
}

/// A step of 11 elements whose arrays are `bytes` long in all, each counted as often as it is read or written.
template <class Make>
void expect_step(int64_t bytes, DType dtype, const optim::StepOptions& options, const Make& make) {
  std::vector<Tensor> params = eleven(dtype);
  std::vector<optim::NamedTensor> named;
  for (const Tensor& x : params) {
    x.requires_grad_().set_grad(ones(x.sizes(), x.options()));
    named.emplace_back("p" + std::to_string(named.size()), x);
  }
  auto optimizer = make(named);
  optimizer.step(options);
  for (const Tensor& x : params) x.set_grad(ones(x.sizes(), x.options()));
  g_meter = {.op = Op::optimizer_step};
  static constexpr door::Listener kListener{.bit = kUserMode, .after = measure};
  {
    const door::ListenerScope listening(kListener);
    optimizer.step(options);
  }
  EXPECT_EQ(g_meter.calls, 1);
  EXPECT_GT(g_meter.block_bytes, 0);
  EXPECT_EQ(g_meter.cost.bytes, bytes + 2 * g_meter.block_bytes) << "hyper blocks are read and written";
  EXPECT_EQ(g_meter.cost.flops, 15 * 11) << "of the parameters' elements, whatever their states are";
}

TEST(Cost, of_a_step_is_that_of_its_parameters) {
  using Params = const std::vector<optim::NamedTensor>&;
  const auto sgd = [](Params params) { return optim::SGD(params, {.lr = 0.1}); };
  const auto adamw = [](Params params) { return optim::AdamW(params, {}); };
  const int64_t param = 44, grad = 44, states = 2 * 44;
  expect_step(2 * param + grad, kF32, {}, sgd);
  expect_step(2 * param + grad + 2 * states, kF32, {}, adamw);
  expect_step(2 * param + 2 * grad + 2 * states, kF32, {.zero_grad = true}, adamw);
  const int64_t factor = 8;
  expect_step(2 * param + grad + 2 * states + factor, kF32, {.max_norm = 1}, adamw);
}

TEST(Cost, of_a_step_with_compressed_states_is_that_of_its_parameters) {
  using Params = const std::vector<optim::NamedTensor>&;
  const auto compressed = [](Params params) {
    return optim::AdamW(params, {.memory = {.masters = optim::Masters::f32, .states = optim::StateType::q8}});
  };
  // A state of 6 or 5 elements has as many codes, filled up to 8, and one f32 scale.
  const int64_t param = 22, grad = 22, master = 44, states = 2 * 2 * (8 + 4);
  expect_step(2 * param + grad + 2 * master + 2 * states, kBF16, {}, compressed);
}

}  // namespace
}  // namespace lorry::test
