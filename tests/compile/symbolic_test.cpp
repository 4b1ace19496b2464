// Recordings for sizes that were not recorded: they follow from those for others, or the function is recorded again.

#include <gtest/gtest.h>

#include "lorry/base/call_stack.h"
#include "lorry/compile/compile.h"
#include "lorry/lorry.h"
#include "tests/compile/many_sizes.h"
#include "tests/support/warnings.h"

namespace lorry::test {
namespace {

/// The lengths that differ, less the two that were recorded.
constexpr int64_t kDistinct = 9, kOthers = kDistinct - 2;

TEST(SymbolicSizes, two_recordings_serve_all_sizes) {
  const auto f = [](const Tensors& x) { return Tensors{((x[0] * 2 + x[1]).tanh() - x[0]).relu() / 3}; };
  const CompileStats stats = expect_same_over(f, rows);
  EXPECT_EQ(stats.recordings, 2);
  EXPECT_EQ(stats.resized, kOthers);
}

TEST(SymbolicSizes, a_function_that_reads_no_size_runs_only_to_be_recorded) {
  int runs = 0;
  const auto f = [&](const Tensor& x) {
    ++runs;
    return (x.unflatten(-1, {3, 4}).transpose(0, 1).flatten(1).sum({0}) + 1).exp() * x.mean();
  };
  const auto compiled = compile(f, {.wait = true});
  for (const int64_t length : kLengths) {
    const Tensor x = randn({length, 12});
    const Tensor got = compiled(x);
    const int before = runs;
    EXPECT_TRUE(got.equal(f(x))) << length << "\n" << compiled.explain();
    runs = before;
  }
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(compiled.stats().resized, kOthers);
  EXPECT_NE(compiled.explain().find("other sizes need no recording: s0 = size 0 of argument 0"), std::string::npos)
      << compiled.explain();
}

TEST(SymbolicSizes, never_records_each) {
  const auto f = [](const Tensors& x) { return Tensors{(x[0] * 2 + 1).exp()}; };
  EXPECT_EQ(expect_same_over(f, row, {.wait = true, .dynamic = Dynamic::never}).recordings, kDistinct);
}

// What a function does may depend on a size that it reads, in a way that two recordings do not show.
TEST(SymbolicSizes, sizes_that_are_read_tie_a_recording) {
  const auto branches = [](const Tensors& x) {
    return Tensors{x[0].size(0) > 30 ? (x[0] * 2 + 1).exp() : (x[0] * 3 - 1).sin()};
  };
  EXPECT_EQ(expect_same_over(branches, row).resized, 0);
  const auto by_sizes = [](const Tensors& x) { return Tensors{(x[0] * 2 + double(x[0].sizes()[0] / 2)).exp()}; };
  EXPECT_EQ(expect_same_over(by_sizes, row).resized, 0);
  const auto by_numel = [](const Tensors& x) {
    Tensor y = x[0] + 1;
    for (int64_t i = 0; i < y.numel() / 16; ++i) y = y.sin() * 2;
    return Tensors{y};
  };
  EXPECT_EQ(expect_same_over(by_numel, row).resized, 0);
  const auto by_strides = [](const Tensors& x) {
    return Tensors{(x[0].t() * 2 + double(x[0].t().stride(1) % 5)).exp()};
  };
  EXPECT_EQ(expect_same_over(by_strides, wide).resized, 0);
  const auto by_offset = [](const Tensors& x) {
    const Tensor y = x[0].select(0, 1);
    return Tensors{y.storage_offset() > 30 ? (y * 2 + 1).exp() : (y * 3 - 1).sin()};
  };
  EXPECT_EQ(expect_same_over(by_offset, wide).resized, 0);
  const auto by_storage = [](const Tensors& x) { return Tensors{(x[0] + double(x[0].storage().bytes() % 28)).exp()}; };
  EXPECT_EQ(expect_same_over(by_storage, row).resized, 0);
  const auto by_layout = [](const Tensors& x) { return Tensors{(x[0] + double(x[0].layout().sizes[0] % 7)).exp()}; };
  EXPECT_EQ(expect_same_over(by_layout, row).resized, 0);
  const auto of_result = [](const Tensors& x) {
    const Tensor y = x[0] * 2;
    return Tensors{y.nbytes() > 100 ? y.exp() - 1 : y.sin() + 1};
  };
  EXPECT_EQ(expect_same_over(of_result, row).resized, 0);
}

struct Halves : autograd::Function<Halves> {
  static Tensor forward(autograd::Context& context, const Tensor& x) {
    context.save_for_backward({x});
    return x * 2 + 1;
  }
  static std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& grads) {
    const Tensor x = context.saved_tensors()[0];
    return {x.size(0) > 30 ? grads[0] * 2 : grads[0] * 3 + x};
  }
};

TEST(SymbolicSizes, sizes_that_a_backward_reads_tie_a_recording) {
  const auto f = [](const Tensors& x) {
    const Tensor y = x[0].detach().requires_grad_();
    Halves::apply(y).exp().sum().backward();
    return Tensors{y.grad()};
  };
  EXPECT_EQ(expect_same_over(f, row).resized, 0);
  const auto compiled = compile([](const Tensor& x) { return Halves::apply(x).exp(); }, {.wait = true});
  for (const int64_t length : kLengths) {
    const Tensor x = randn({length}).requires_grad_(), y = x.detach().requires_grad_();
    compiled(x).sum().backward();
    Halves::apply(y).exp().sum().backward();
    EXPECT_TRUE(x.grad().equal(y.grad())) << length;
  }
  EXPECT_EQ(compiled.stats().resized, 0);
}

TEST(SymbolicSizes, explain_names_the_line_that_reads_a_size) {
  const auto compiled = compile([](const Tensor& x) { return (x.view({x.size(0) / 2, 2}) * 2 + 1).exp(); });
  for (const int64_t length : {8, 16, 32}) compiled(randn({length}));
  EXPECT_NE(compiled.explain().find("other sizes are recorded: the function reads a size that changes"),
            std::string::npos)
      << compiled.explain();
  const void* frames[8];
  const int count = call_stack(frames);
  if (count == 0 || source_line(frames[0]).file.empty()) GTEST_SKIP() << "no stack, or no lines without libdw";
  EXPECT_NE(compiled.explain().find("symbolic_test.cpp:"), std::string::npos) << compiled.explain();
}

// The caller vouches for what the function reads.
TEST(SymbolicSizes, always_trusts_sizes_that_shape_tensors) {
  const auto f = [](const Tensors& x) {
    const int64_t n = x[0].size(0);
    return Tensors{(x[0].view({2, n * 6}) * 2 + 1).exp(), (x[0] + zeros({n, 1})).sin() * x[1]};
  };
  EXPECT_EQ(expect_same_over(f, rows, {.wait = true, .dynamic = Dynamic::always}).resized, kOthers);
}

TEST(SymbolicSizes, sizes_that_do_not_change_may_be_read) {
  const auto f = [](const Tensors& x) {
    return Tensors{(x[0].view({-1, x[0].size(1) / 4, 4}) * double(x[1].numel())).exp() + 1};
  };
  EXPECT_EQ(expect_same_over(f, rows).resized, kOthers);
}

// slice() clamps its bounds, and the last index follows from the size.
TEST(SymbolicSizes, cuts_along_a_size_that_changes_tie_a_recording) {
  const auto first = [](const Tensors& x) { return Tensors{(x[0].slice(0, 0, 30) * 2 + 1).exp()}; };
  EXPECT_EQ(expect_same_over(first, row).resized, 0);
  const auto last = [](const Tensors& x) { return Tensors{(x[0].select(0, -1) * x[0] + 1).exp()}; };
  EXPECT_EQ(expect_same_over(last, row).resized, 0);
  const auto chunks = [](const Tensors& x) {
    const std::vector<Tensor> parts = x[0].chunk(2);
    return Tensors{(parts[0] * 2 + 1).exp(), parts.back().sin() + 1};
  };
  EXPECT_EQ(expect_same_over(chunks, row).resized, 0);
  const auto windows = [](const Tensors& x) { return Tensors{(x[0].unfold(0, 2, 2) * 2 + 1).exp()}; };
  EXPECT_EQ(expect_same_over(windows, row).resized, 0);
  const auto diagonal = [](const Tensors& x) { return Tensors{(x[0].diagonal() * 2 + 1).exp()}; };
  EXPECT_EQ(expect_same_over(diagonal, rows).resized, 0);
  const auto elsewhere = [](const Tensors& x) {
    return Tensors{(x[0].slice(1, 2, 7) * x[0].select(1, -1).unsqueeze(1) + 1).exp()};
  };
  EXPECT_EQ(expect_same_over(elsewhere, rows).resized, kOthers);
}

TEST(SymbolicSizes, several_symbols_and_products_of_them) {
  const auto f = [](const Tensors& x) {
    const Tensor scores = x[0].matmul(x[0].transpose(1, 2)) / 4;  // [b, t, t]
    const Tensor y = softmax(scores * 2, -1).matmul(x[0]);
    return Tensors{(y.reshape({-1, 12}) * 2 + x[0].flatten(0, 1)).exp(), (scores + 1).flatten().sin() * 2,
                   y.mean() + 1};
  };
  const auto compiled = compile(f, {.wait = true});
  for (const auto& [b, t] : {std::pair{2, 5}, {4, 5}, {4, 7}, {3, 9}, {9, 3}, {5, 64}, {7, 33}, {2, 100}, {6, 2}}) {
    const Tensors x{randn({b, t, 12})};
    const Tensors expected = f(x), got = compiled(x);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(bits_of(got[i]) == bits_of(expected[i])) << b << " " << t << " " << i << "\n" << compiled.explain();
  }
  EXPECT_EQ(compiled.stats().recordings, 4) << "t * t needs three sizes of t";
  EXPECT_EQ(compiled.stats().resized, 5);
}

TEST(SymbolicSizes, sums_of_sizes_take_three_recordings) {
  const auto f = [](const Tensors& x) { return Tensors{(cat({x[0], x[1]}) * 2 + 1).exp()}; };
  const auto make = [](int64_t n) { return Tensors{randn({n, 3}), randn({5, 3})}; };
  const CompileStats stats = expect_same_over(f, [&](int64_t n) {
    manual_seed(static_cast<uint64_t>(n));
    return make(n);
  });
  EXPECT_EQ(stats.resized, kDistinct - 4) << "3 is a size of its own";
}

TEST(SymbolicSizes, equal_sizes_stay_equal_and_others_different) {
  const auto f = [](const Tensors& x) { return Tensors{(x[0] * x[1] + 1).exp()}; };
  const auto compiled = compile(f, {.wait = true});
  const auto expect_equal = [&](const Dims& a, const Dims& b) {
    const Tensors x{randn(a), randn(b)};
    EXPECT_TRUE(compiled(x)[0].equal(f(x)[0])) << a << b << compiled.explain();
  };
  for (const int64_t n : {4, 6, 5, 9}) expect_equal({n, 7}, {n, 7});
  EXPECT_EQ(compiled.stats().resized, 2);
  expect_equal({7, 7}, {7, 7});
  for (const int64_t n : {4, 6, 5, 9}) expect_equal({n, 7}, {1, 7});
  for (const int64_t n : {4, 6, 5, 1, 0}) expect_equal({n, 7}, {7});
  EXPECT_THROW(compiled(Tensors{randn({4, 7}), randn({5, 7})}), ShapeError);
  EXPECT_THROW(compiled(Tensors{randn({8, 7}), randn({5, 7})}), ShapeError);
}

TEST(SymbolicSizes, gradients_and_leaves) {
  const nn::Linear up(12, 20), down(20, 12);
  const auto f = [&](const Tensor& x) { return down(gelu(up(x)) * 2).mean() + layer_norm(x, {12}).exp().sum(); };
  const auto compiled = compile(f, {.wait = true});
  for (const int64_t length : kLengths) {
    const Tensor x = randn({length, 12}).requires_grad_(), y = x.detach().requires_grad_();
    compiled(x).backward();
    const Tensor weight = up.weight.grad(), bias = down.bias.grad();
    up.weight.set_grad({}), up.bias.set_grad({}), down.weight.set_grad({}), down.bias.set_grad({});
    f(y).backward();
    EXPECT_TRUE(x.grad().equal(y.grad())) << length << compiled.explain();
    EXPECT_TRUE(weight.equal(up.weight.grad()) && bias.equal(down.bias.grad())) << length;
    up.weight.set_grad({}), up.bias.set_grad({}), down.weight.set_grad({}), down.bias.set_grad({});
  }
  EXPECT_EQ(compiled.stats().resized, kOthers - 1) << "a number that counts needs three sizes" << compiled.explain();
}

nn::GPTConfig small(bool rotary) {
  return {.vocab = 40, .context = 32, .layers = 2, .heads = 2, .width = 12, .dropout = 0.1, .rotary = rotary};
}

std::string explained;

/// Trains a GPT over batches of many sizes; the losses.
std::vector<float> train(bool rotary, bool is_compiled, CompileStats* stats = nullptr) {
  manual_seed(3);
  nn::GPT model(small(rotary));
  optim::AdamW optimizer(model.named_parameters(), {.lr = 1e-2});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = model.loss(x, y);
    loss.backward();
    optimizer.step({.max_norm = 1.0});
    return loss.detach();
  };
  const auto compiled = compile(step, {.wait = true, .epilogues = false});
  std::vector<float> losses;
  manual_seed(4);
  for (const auto& [b, t] : {std::pair{3, 8}, {3, 8}, {3, 9}, {5, 9}, {4, 17}, {6, 11}, {7, 31}, {3, 8}, {4, 17}}) {
    const Tensor x = randint(0, 40, {b, t}), y = randint(0, 40, {b, t});
    losses.push_back((is_compiled ? compiled(x, y) : step(x, y)).item<float>());
  }
  if (stats != nullptr) *stats = compiled.stats(), explained = compiled.explain();
  return losses;
}

TEST(SymbolicSizes, a_training_step_over_batches_of_many_sizes) {
  for (const bool rotary : {false, true}) {
    CompileStats stats;
    EXPECT_EQ(train(rotary, true, &stats), train(rotary, false)) << rotary;
    EXPECT_EQ(stats.recordings, 4) << explained << "the optimizer's first step, then three sizes";
    EXPECT_EQ(stats.resized, 3);
  }
}

TEST(SymbolicSizes, an_error_of_the_function_is_thrown) {
  const Tensor table = randn({20, 3});
  const auto f = [&](const Tensors& x) { return Tensors{(x[0] + table.narrow(0, 0, x[0].size(0))).exp() * 2}; };
  const auto compiled = compile(f, {.wait = true, .dynamic = Dynamic::always});
  for (const int64_t n : {4, 6, 8}) EXPECT_TRUE(compiled(Tensors{randn({n, 3})})[0].defined());
  EXPECT_EQ(compiled.stats().resized, 1);
  EXPECT_THROW(compiled(Tensors{randn({21, 3})}), IndexError);
  const auto halves = [](const Tensors& x) { return Tensors{(x[0].view({2, -1}) * 2 + 1).exp()}; };
  const auto compiled_halves = compile(halves, {.wait = true});
  for (const int64_t n : {4, 6, 8}) EXPECT_TRUE(compiled_halves(Tensors{randn({n})})[0].defined());
  EXPECT_EQ(compiled_halves.stats().resized, 1);
  EXPECT_THROW(compiled_halves(Tensors{randn({9})}), ShapeError);
}

TEST(SymbolicSizes, arguments_that_are_written_strided_or_share_memory) {
  const auto f = [](const Tensors& x) {
    const Tensor sum = x[0] + x[1].t();
    x[0].mul_(2).add_(sum);
    x[1].sub_(1);
    return Tensors{sum.exp() * 2};
  };
  const auto transposed = [](int64_t n) {
    manual_seed(static_cast<uint64_t>(n));
    const Tensor a = randn({n, 5}), b = randn({5, n});
    return Tensors{a, b};
  };
  EXPECT_EQ(expect_same_over(f, transposed).resized, kOthers);
  const auto shared = [](int64_t n) {
    manual_seed(static_cast<uint64_t>(n));
    const Tensor both = randn({2, n});
    return Tensors{both.select(0, 0), both.select(0, 1), both.select(0, 0)};
  };
  const auto writes = [](const Tensors& x) {
    x[0].mul_(2);
    x[1].add_(x[2]);
    return Tensors{(x[2] + x[1]).exp()};
  };
  EXPECT_EQ(expect_same_over(writes, shared).resized, kOthers);
  const auto steps = [](int64_t n) {
    manual_seed(static_cast<uint64_t>(n));
    return Tensors{randn({n, 6}).slice(1, 0, 6, 2)};
  };
  EXPECT_EQ(expect_same_over([](const Tensors& x) { return Tensors{(x[0] * 2 + 1).exp()}; }, steps).resized,
            kOthers - 2)
      << "it has 6 n - 1 elements around it, a sum, and 3 is a size of its own";
}

TEST(SymbolicSizes, draws_go_on) {
  const auto f = [](const Tensors& x) { return Tensors{dropout(x[0] * 2, 0.4) + 1, (x[0] + 1).exp() * x[1]}; };
  EXPECT_EQ(expect_same_over(f, rows).resized, kOthers);
}

TEST(SymbolicSizes, a_captured_tensor_that_is_replaced) {
  Tensor weight = randn({12});
  const auto f = [&](const Tensors& x) { return Tensors{(x[0] * weight + 1).exp()}; };
  const auto compiled = compile(f, {.wait = true});
  expect_same_over(f, compiled, rows);
  const int64_t before = compiled.stats().resized;
  EXPECT_EQ(before, kOthers);
  weight = randn({12});
  expect_same_over(f, compiled, rows);
  EXPECT_EQ(compiled.stats().resized, 2 * kOthers) << compiled.explain();
}

TEST(SymbolicSizes, the_limit_drops_what_is_made_again) {
  Warnings warnings;
  const auto f = [](const Tensors& x) { return Tensors{(x[0] * 2 + 1).exp()}; };
  auto compiled = compile(f, {.wait = true, .cache_size_limit = 3});
  for (int64_t n = 2; n < 60; ++n) EXPECT_TRUE(compiled(row(n))[0].equal(f(row(n))[0]));
  EXPECT_EQ(compiled.stats().recordings, 2);
  EXPECT_EQ(compiled.stats().resized, 56);
  EXPECT_EQ(compiled.stats().cached, 3);
  EXPECT_EQ(std::ranges::count_if(warnings.texts, [](const auto& x) { return x.find("exceed") != x.npos; }), 2)
      << "those of the two that ran: " << warnings.all();
  compiled.reset();
  for (int64_t n = 2; n < 5; ++n) compiled(row(n));
  EXPECT_EQ(compiled.stats().recordings, 4);
}

}  // namespace
}  // namespace lorry::test
