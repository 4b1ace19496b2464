// Draws whose keys lie in memory: calls that are run again after advance() draw what the same calls would draw then.

#include "lorry/ops/random_capture.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "lorry/lorry.h"
#include "lorry/ops/dispatch/run.h"
#include "tests/ops/samples.h"
#include "tests/support/announced_calls.h"
#include "tests/support/message.h"

namespace lorry::test {
namespace {

using Tensors = std::vector<Tensor>;
using Calls = RandomCapture::Calls;

const std::vector<Device>& devices() {
  static const std::vector<Device> all{default_device()};
  return all;
}

/// Every operator that draws, once.
Tensors draw_all(Generator* generator) {
  const Tensor p = full({3, 50}, 0.5), x = ones({100}, {kF64}), q = arange(0, 2 * 2 * 9 * 8).to(kF32).div(100);
  const Tensor heads = q.reshape({2, 2, 9, 8});
  return {rand({100}, {}, generator),
          randn({7, 30}, {kBF16}, generator),
          randint(-5, 90, {100}, {kI32}, generator),
          randperm(100, default_device(), generator),
          bernoulli(p, generator),
          multinomial(p, 4, false, generator),
          multinomial(p, 90, true, generator),
          zeros({30, 7}).t().uniform_(-1, 1, generator),
          zeros({100}, {kF64}).normal_(2, 3, generator),
          zeros({100}, {kU8}).bernoulli_(0.3, generator),
          zeros({100}, {kI64}).random_(0, 1 << 20, generator),
          dropout(x, 0.4, true, generator),
          scaled_dot_product_attention(heads, heads, heads, {}, {.dropout = 0.5, .generator = generator}),
          packed_attention(q.reshape({2, 6, 24}), 2, {.dropout = 0.5, .generator = generator})};
}
constexpr uint64_t kDraws = 14;

void expect_same_bits(const Tensors& got, const Tensors& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << "result " << i;
}

/// The random results of calls that are made again.
Tensors run_all(const std::vector<Heard>& calls) {
  Tensors results;
  for (const Heard& h : calls) {
    const bool draws = std::ranges::any_of(
        h.attributes, [](const door::Attribute& a) { return std::holds_alternative<formula::RandomKey>(a); });
    if (draws) results.push_back(run_again(h)[0]);
  }
  return results;
}

class Captures : public testing::TestWithParam<Calls> {};

TEST_P(Captures, run_again_they_draw_as_eager_calls_would) {
  Generator eager(5), captured(5);
  randn({3}, {}, &eager), randn({3}, {}, &captured);
  RandomCapture capture(devices());
  Tensors first;
  const std::vector<Heard> calls = heard_of([&] {
    const RandomCapture::Scope scope(capture, GetParam());
    first = draw_all(&captured);
  });
  if (GetParam() == Calls::run) expect_same_bits(first, draw_all(&eager));
  EXPECT_EQ(capture.draws(), kDraws);
  EXPECT_EQ(captured.state(), eager.state()) << "calls that wait advance nothing";
  for (int run = 0; run < 4; ++run) {
    SCOPED_TRACE(run);
    if (run == 2) {  // draws between runs, and another seed
      for (Generator* g : {&eager, &captured}) randn({8}, {}, g);
    } else if (run == 3) {
      for (Generator* g : {&eager, &captured}) g->set_state({uint64_t{1} << 63 | 9, uint64_t{3} << 40});
    }
    capture.advance();
    expect_same_bits(run_all(calls), draw_all(&eager));
    EXPECT_EQ(captured.state(), eager.state());
  }
}

INSTANTIATE_TEST_SUITE_P(Random, Captures, testing::Values(Calls::run, Calls::wait),
                         [](const auto& info) { return info.param == Calls::run ? "that_run" : "that_wait"; });

TEST(RandomCapture, forward_and_backward_of_a_captured_call_drop_the_same) {
  Generator eager(2), captured(2);
  const auto step = [](Generator& g) {
    const Tensor x = ones({2, 2, 40, 8}).requires_grad_();
    const Tensor y = scaled_dot_product_attention(x, x.mul(0.5), x, {}, {.dropout = 0.4, .generator = &g});
    dropout(y, 0.3, true, &g).sum().backward();
    return x.grad();
  };
  const Tensor expected = step(eager);
  RandomCapture capture(devices());
  const RandomCapture::Scope scope(capture, Calls::run);
  EXPECT_TRUE(same_bits(step(captured), expected));
}

TEST(RandomCapture, generators_are_counted_each_for_itself) {
  Generator a(1), b(2), plain_a(1), plain_b(2);
  RandomCapture capture(devices());
  const auto call = [](Generator& x, Generator& y) {
    Tensors drawn{rand({50}, {}, &x), rand({50}, {}, &y), rand({50}, {}, &x)};
    Generator inside(7);  // another one each time: the same numbers in each run
    drawn.push_back(rand({50}, {}, &inside));
    return drawn;
  };
  const std::vector<Heard> calls = heard_of([&] {
    const RandomCapture::Scope scope(capture, Calls::wait);
    call(a, b);
  });
  EXPECT_EQ(capture.draws(), 3u);
  for (int run = 0; run < 3; ++run) {
    capture.advance();
    expect_same_bits(run_all(calls), call(plain_a, plain_b));
  }
  EXPECT_EQ(a.state(), (Generator::State{1, 6}));
  EXPECT_EQ(b.state(), (Generator::State{2, 3}));
  const auto state = capture.states(default_device()).to(kCPU).to_vector<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(state.begin(), state.begin() + 4), (std::vector<int64_t>{1, 4, 2, 2}));
}

TEST(RandomCapture, other_threads_draw_by_value) {
  Generator shared(4), plain(4);
  RandomCapture capture(devices());
  {
    const RandomCapture::Scope scope(capture, Calls::wait);
    rand({5}, {}, &shared);
    std::thread([&] { EXPECT_TRUE(same_bits(rand({50}, {}, &shared), rand({50}, {}, &plain))); }).join();
  }
  EXPECT_EQ(capture.draws(), 1u);
  EXPECT_EQ(shared.state(), (Generator::State{4, 1}));
}

TEST(RandomCapture, checkpointed_functions_draw_the_same_again) {
  const auto gradient = [] {
    const Tensor x = ones({400}).requires_grad_();
    autograd::checkpoint([&] { return dropout(x * 2, 0.5) * x; }).sum().backward();
    return Tensors{x.grad(), rand({20})};
  };
  manual_seed(8);
  const Tensors expected = gradient();
  manual_seed(8);
  RandomCapture capture(devices());
  const Tensor x = ones({400}).requires_grad_();
  Tensor y;
  {
    const RandomCapture::Scope scope(capture, Calls::run);
    expect_same_bits(gradient(), expected);
    y = autograd::checkpoint([&] { return dropout(x, 0.5) * x; }).sum();
  }
  EXPECT_EQ(capture.draws(), 3u) << "what is drawn again is no draw";
  EXPECT_EQ(default_generator().state(), (Generator::State{8, 3}));
  EXPECT_NE(message<CaptureError>([&] { y.backward(); }).find("in one capture"), std::string::npos);
}

TEST(RandomCapture, refuses_what_a_run_would_not_do) {
  Generator generator(3);
  RandomCapture capture(devices()), another(devices());
  const auto refused = [](const auto& f, const char* why) {
    const std::string said = message<CaptureError>(f);
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  {
    const RandomCapture::Scope scope(capture, Calls::wait);
    refused([&] { manual_seed(3); }, "manual_seed: a generator is seeded while its draws are captured");
    refused([&] { generator.set_state({1, 2}); }, "got seed 1 and offset 2");
    refused([&] { generator.state(); }, "read while");
    refused([&] { const RandomCapture::Scope second(another, Calls::wait); }, "being captured already");
    refused([&] { another.advance(); }, "advanced while");
    Generator inside(4);
    inside.manual_seed(5);
    EXPECT_EQ(inside.state(), (Generator::State{5, 0}));
  }
  std::vector<std::unique_ptr<Generator>> many;
  for (size_t i = 0; i <= RandomCapture::kMaxGenerators; ++i) many.push_back(std::make_unique<Generator>(i));
  const RandomCapture::Scope scope(capture, Calls::run);
  for (size_t i = 0; i < RandomCapture::kMaxGenerators; ++i)
    EXPECT_TRUE(same_bits(rand({9}, {}, many[i].get()), [&] {
      Generator same(i);
      return rand({9}, {}, &same);
    }()));
  refused([&] { rand({9}, {}, many.back().get()); }, "rand: captured calls draw from too many generators");
}

TEST(RandomCapture, refuses_draws_on_other_devices) {
  RandomCapture nowhere({});
  const RandomCapture::Scope scope(nowhere, Calls::wait);
  EXPECT_NE(message<CaptureError>([] { rand({3}); }).find("rand: random numbers are drawn on a device that is not"),
            std::string::npos);
}

}  // namespace
}  // namespace lorry::test
