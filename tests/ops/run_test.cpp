// Calls that are made again from what was announced: every row of the table, every form, every dtype and layout, to the
// bit; and what door::run refuses.

#include "lorry/ops/dispatch/run.h"

#include <gtest/gtest.h>

#include "lorry/lorry.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/pointwise_call.h"
#include "tests/ops/operator_samples.h"
#include "tests/support/announced_calls.h"

namespace lorry::test {
namespace {

using door::CallView;

/// How many calls of `op` were made again.
int expect_same_again(const std::vector<Heard>& calls, Op op) {
  int found = 0;
  for (const Heard& h : calls) {
    if (!h.done) continue;
    SCOPED_TRACE(name(h.op));
    const std::vector<Tensor> again = run_again(h);
    EXPECT_EQ(again.size(), h.outputs.size());
    found += h.op == op;
    if (h.op == Op::empty) continue;  // whose elements are what was there
    for (size_t i = 0; i < std::min(again.size(), h.outputs.size()); ++i) {
      EXPECT_EQ(again[i].defined(), h.outputs[i].defined());
      if (again[i].defined() && h.outputs[i].defined()) {
        EXPECT_TRUE(same_bits(again[i], h.outputs[i])) << "output " << i;
      }
    }
  }
  return found;
}

class Runs : public testing::TestWithParam<int> {
 protected:
  static Op op() { return static_cast<Op>(GetParam()); }
};

TEST_P(Runs, give_the_same_bits_from_what_was_announced) {
  int found = 0;
  for (const Sample* sample : samples_of(op()))
    for (const DType dtype : kDTypes)
      for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::sliced}) {
        if (!sample->accepts(dtype) || (sample->by_memory && memory != Memory::contiguous)) continue;
        SCOPED_TRACE(std::string(name(dtype)));
        const Tensors inputs = make_inputs(*sample, dtype, memory);
        Tensors results;
        found += expect_same_again(heard_of([&] { results = sample->call(inputs); }), op());
        if (sample->out != nullptr) {
          Tensors out;
          for (const Tensor& x : results) out.push_back(empty_like(x));
          found += expect_same_again(heard_of([&] { sample->out(out, inputs); }), op());
        }
        if (sample->in_place == nullptr) continue;
        const Tensors written = make_inputs(*sample, dtype, memory);
        found += expect_same_again(heard_of([&] { sample->in_place(written); }), op());
      }
  if (op() == Op::transfer && default_device().is_cpu()) GTEST_SKIP() << "nothing leaves the CPU";
  EXPECT_GT(found, 0) << "no sample announces the operator";
}

TEST_P(Runs, are_differentiated_as_the_call_was) {
  if (row(op()).kind != OpKind::differentiable && row(op()).kind != OpKind::view) return;
  for (const Sample* sample : samples_of(op())) {
    if (sample->internal || sample->holds != nullptr || sample->inputs.empty()) continue;
    if (sample->inputs[0].role == SampleInput::Role::position || !sample->inputs[0].differentiable) continue;
    Tensors inputs = make_inputs(*sample, kF64);
    const std::vector<Heard> calls = heard_of([&] { sample->call(inputs); });
    for (const Heard& h : calls) {
      if (h.op != op() || h.in_place || h.out || h.numbers.contains(0) || !is_floating(h.tensors[0].dtype())) continue;
      Heard again = h;
      again.tensors[0] = h.tensors[0].detach().requires_grad_();
      EXPECT_TRUE(run_again(again)[0].requires_grad()) << name(op());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Runs, testing::ValuesIn(sampled_rows()),
                         [](const auto& info) { return std::string(kOps[info.param].name); });

TEST(RunsOfPointwise, give_the_same_bits_for_tensors_and_numbers) {
  for (int i = 0; i < kOpCount; ++i) {
    if (kOps[i].kind != OpKind::pointwise) continue;
    const Op op = static_cast<Op>(i);
    int found = 0;
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE(std::string(name(op)) + " " + std::string(name(dtype)));
      std::vector<Tensor> tensors;
      for (int k = 0; k < kOps[i].inputs; ++k)
        tensors.push_back((arange(6, {.dtype = kF64}).add(k + 1)).div(4 + k).to(dtype).reshape({2, 3}));
      if (op == Op::where) tensors[0] = tensors[0].ne(0);
      for (const bool numbers : {false, true}) {
        std::vector<Operand> operands(tensors.begin(), tensors.end());
        if (numbers && operands.size() > 1) operands.back() = Operand(Scalar(2));
        const auto quietly = [](const auto& f) {
          try {
            f();
          } catch (const Error&) {  // not of this dtype
          }
        };
        found += expect_same_again(heard_of([&] { quietly([&] { ops::call(op, operands); }); }), op);
        const Tensor self = tensors[0].clone();
        expect_same_again(
            heard_of([&] { quietly([&] { ops::call_in_place(op, self, std::span(operands).subspan(1)); }); }), op);
      }
    }
    EXPECT_GT(found, 0) << name(op);
  }
}

TEST(RunsOfPointwise, write_an_out_that_was_given) {
  const Tensor x = arange(6, {.dtype = kF32}).reshape({2, 3}), out = empty({2, 3}, {.dtype = kF64});
  const std::vector<Heard> calls = heard_of([&] { add_out(out, x, 2); });
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_TRUE(calls[0].out);
  EXPECT_EQ(calls[0].given.size(), 1u) << "what will be written is known before the call";
  expect_same_again(calls, Op::add);
}

/// Attention announces the key of its dropout, and its backward call announces the same one.
TEST(Run, attention_drops_the_same_forward_and_backward) {
  struct Case {
    int64_t heads_of_k;
    AttentionOptions options;
    bool mask, composite;
  };
  Generator generator(6);
  const auto with = [&](double dropout, bool causal) {
    return AttentionOptions{.dropout = dropout, .causal = causal, .enable_gqa = true, .generator = &generator};
  };
  for (const DType dtype : {kF32, kF64, kBF16})
    for (const Case& c : {Case{4, with(0.5, true), false, false},
                          {2, with(0.5, false), true, false},
                          {2, with(0.3, true), false, true},
                          {1, with(0, true), false, false}}) {
      SCOPED_TRACE(fmt::format("{}, {} heads of k, dropout {}", dtype, c.heads_of_k, c.options.dropout));
      const auto leaf = [&](int64_t heads) {
        return randn({2, heads, 40, 8}, {kF64}, &generator).to(dtype).requires_grad_();
      };
      const Tensor q = leaf(4), k = leaf(c.heads_of_k), v = leaf(c.heads_of_k);
      const Tensor mask = c.mask ? randn({40, 40}, {dtype}, &generator) : Tensor();
      const Tensor packed = randn({2, 20, 48}, {kF64}, &generator).to(dtype).requires_grad_();
      const std::vector<Heard> calls = heard_of([&] {
        scaled_dot_product_attention(q, k, v, mask, c.options).sum().backward({}, false, c.composite);
        AttentionOptions options = c.options;
        options.enable_gqa = false;
        packed_attention(packed, 2, options).sum().backward();
      });
      const auto seed = generator.state();
      EXPECT_EQ(expect_same_again(calls, Op::attention), 1);
      EXPECT_EQ(expect_same_again(calls, c.composite ? Op::coin : Op::attention_backward), 1);
      EXPECT_EQ(expect_same_again(calls, Op::packed_attention), 1);
      EXPECT_EQ(expect_same_again(calls, Op::packed_attention_backward), 1);
      EXPECT_EQ(generator.state(), seed) << "a call that is made again draws nothing new";
      for (const Tensor& x : {q, k, v, packed}) x.set_grad({});
    }
}

TEST(Run, refuses_what_is_not_of_the_operator) {
  const Tensor x = ones({2, 3});
  const door::Input input[] = {&x, &x};
  const auto refused = [&](const CallView& call, const char* why) {
    const std::string said = message<ValueError>([&] { door::run(call); });
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  const door::Attribute dims = Dims{0}, keep = true, number = int64_t{0};
  const door::Attribute two[] = {dims, keep}, wrong[] = {number, keep}, one[] = {dims};
  const std::span inputs(input);
  EXPECT_TRUE(same_bits(door::run({.op = Op::sum, .inputs = inputs.first(1), .attributes = two})[0], x.sum(0, true)));
  refused({.op = Op::sum, .inputs = inputs.first(1), .attributes = wrong}, "attribute 0 is of another kind; got i64");
  refused({.op = Op::sum, .inputs = inputs.first(1), .attributes = one}, "1 inputs and 1 attributes");
  refused({.op = Op::sum, .inputs = inputs, .attributes = two}, "\"x; dims, keepdim\"");
  refused({.op = Op::sum, .in_place = true, .inputs = inputs.first(1), .attributes = two}, "no such form");
  refused({.op = Op::add, .inputs = inputs, .attributes = one}, "2 inputs and 1 attributes");
  refused({.op = Op::add, .inputs = inputs.first(1)}, "1 inputs");
  refused({.op = Op::fill, .inputs = inputs}, "no such form");
  refused({.op = Op::count}, "no such operator");
  refused({.op = Op::foreach_add, .inputs = inputs}, "expected foreach::run");
  const Scalar two_as_number = 2;
  const Operand operand(two_as_number);
  const door::Input numbers[] = {operand, &x};
  refused({.op = Op::matmul, .inputs = numbers}, "input 0 is a number");
  const door::Attribute combine[] = {int64_t{0}, int64_t{77}}, reduction[] = {int64_t{-100}, int64_t{9}};
  const door::Input three[] = {&x, &x, &x};
  refused({.op = Op::scatter_reduce, .in_place = true, .inputs = three, .attributes = combine}, "no way to combine");
  refused({.op = Op::nll_loss, .inputs = three, .attributes = reduction}, "reduction is out of range");
}

TEST(Run, is_heard_by_those_who_listen) {
  const Tensor x = ones({4});
  const door::Input input[] = {&x};
  const std::vector<Heard> calls = heard_of([&] { door::run({.op = Op::exp, .inputs = input}); });
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].op, Op::exp);
}

}  // namespace
}  // namespace lorry::test
