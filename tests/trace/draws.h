#pragma once

// Functions that draw random numbers, called again and again: as they are, and by what was recorded of them.

#include "tests/trace/support.h"

namespace lorry::test {

/// Every operator that draws, in calls of x [64] and weights [4, 30].
inline Function draw_all() {
  return [](const Tensors& x) {
    const Tensor p = x[1].sigmoid(), heads = x[0].reshape({1, 2, 8, 4}), noise = empty({30, 4});
    rand({5});  // is not read
    noise.t().uniform_(-1, 1);
    x[0].add_(zeros({64}).bernoulli_(0.5));
    return Tensors{noise,
                   rand({64}) + x[0],
                   randn({7, 3}, {kBF16}),
                   randint(-5, 90, {20}),
                   randperm(50),
                   bernoulli(p),
                   multinomial(p, 4),
                   multinomial(p, 40, true),
                   zeros({9}, {kF64}).normal_(2, 3),
                   zeros({9}).bernoulli_(0.5),
                   zeros({9}, {kI64}).random_(0, 1000),
                   dropout(x[0], 0.4),
                   scaled_dot_product_attention(heads, heads, heads, {}, {.dropout = 0.5}),
                   packed_attention(x[1].reshape({1, 5, 24}), 2, {.dropout = 0.5})};
  };
}

/// Calls f and what was made of it four times from one seed, over arguments that go on from call to call, with another
/// seed between: the same bits, and the same state of the generator.
template <class Run>
void expect_draws_go_on(const MakeArguments& make, const Function& f, const Run& run) {
  Outcome plain{.results = {}, .arguments = make(1)}, got{.results = {}, .arguments = make(1)};
  Generator::State now{11, 0};
  for (int call = 0; call < 4; ++call) {
    SCOPED_TRACE(fmt::format("call {}", call));
    if (call == 2) now = {uint64_t{1} << 40, uint64_t{1} << 33};
    const auto from_now = [&](Outcome& outcome, const auto& function) {
      default_generator().set_state(now);
      outcome.results = function(outcome.arguments);
      outcome.drawn = default_generator().state();
    };
    from_now(plain, f);
    from_now(got, run);
    expect_same(got, plain, "run again");
    EXPECT_GT(plain.drawn.offset, now.offset);
    now = plain.drawn;
  }
}

}  // namespace lorry::test
