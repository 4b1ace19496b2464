// Compiled functions against the same functions as they are, to the bit: random ones (LORRY_TEST_SCALE multiplies
// the 500), and those whose units are known.

#include <gtest/gtest.h>

#include "lorry/compile/program.h"
#include "lorry/compile/simplify.h"
#include "tests/support/scale.h"
#include "tests/trace/random_programs.h"

namespace lorry::test {
namespace {

/// Expects the same of the compiled function over the recorded elements and over others.
compiler::Program expect_compiled(const MakeArguments& make, const Function& f) {
  const Outcome plain = run_plain(make, f, 1);
  const Traced traced = run_traced(make, f, 1);
  const compiler::Program program(traced.graph);
  SCOPED_TRACE(trace::to_string(traced.graph) + "after simplify():\n" + trace::to_string(program.graph()) +
               program.explain());
  for (const uint64_t seed : {1, 2, 2}) {
    const Outcome expected = seed == 1 ? plain : run_plain(make, f, seed);
    Outcome got{.results = {}, .arguments = make(seed)};
    got.results = program.run(got.arguments);
    expect_same(got, expected, "compiled");
    EXPECT_EQ(sharing(got), sharing(expected)) << "memory is shared otherwise";
  }
  return program;
}

std::vector<size_t> unit_sizes(const compiler::Program& program) {
  std::vector<size_t> sizes;
  for (const compiler::Unit& u : program.units()) sizes.push_back(u.nodes.size());
  return sizes;
}

TEST(Compile, random_functions_give_the_same_bits) {
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(scaled(500)); ++seed) {
    SCOPED_TRACE(fmt::format("function {}", seed));
    const RandomFunction f = random_function(seed, 5 + static_cast<int>(seed % 30));
    expect_compiled(f.make, f.call);
    if (HasFailure()) return;
  }
}

TEST(Compile, a_chain_is_one_unit) {
  const auto program = expect_compiled(randoms({{300, 70}, {70}}), [](const Tensors& x) {
    return Tensors{((x[0] * 2 + x[1]).tanh() - x[0]).relu() / 3};
  });
  EXPECT_EQ(unit_sizes(program), std::vector<size_t>{6});
  EXPECT_EQ(program.units()[0].inputs.size(), 4u);
  EXPECT_EQ(program.units()[0].outputs.size(), 1u);
}

// Chains of f32 long enough for threads, with values that are read again later, operands on either side, several
// results, and elements that are left over.
TEST(Compile, chains_of_f32) {
  for (const int64_t n : {1, 15, 63, 64, 65, 1000, 40000})
    expect_compiled(randoms({{n}, {n}, {n}}), [](const Tensors& x) {
      const Tensor a = x[0] * x[1], b = 2 - a, c = b.div(a.abs() + 1.5), d = a.pow(3) - b * b;
      const Tensor e = lerp(c, d, 0.25).sub(a), f = e.atan2(x[2]);
      x[2].mul_(e).add_(x[2] * f);
      x[1].sub_(x[0].square());
      return Tensors{a, f.clamp(-1, 1), addcmul(d, e, f, 0.5)};
    });
}

TEST(Compile, a_write_in_place_stays_in_place) {
  const auto program = expect_compiled(randoms({{300, 70}, {70}}), [](const Tensors& x) {
    x[0].mul_(2).add_(x[1]).tanh_();
    return Tensors{};
  });
  EXPECT_EQ(unit_sizes(program), std::vector<size_t>{3});
  EXPECT_EQ(program.graph().write_backs.size(), 1u);
}

TEST(Compile, what_needs_a_reduction_waits_for_it) {
  const auto program = expect_compiled(randoms({{30, 70}}), [](const Tensors& x) {
    const Tensor a = x[0].exp(), s = a.sum({1}, true);
    return Tensors{a / s * 2, s.log()};
  });
  EXPECT_EQ(unit_sizes(program), (std::vector<size_t>{1, 1, 2, 1}));
}

TEST(Compile, equal_calls_are_made_once_and_dead_ones_not_at_all) {
  const auto program = expect_compiled(randoms({{30}}), [](const Tensors& x) {
    const Tensor a = x[0].exp() + 1, b = x[0].exp() + 1, unused = x[0].cos();
    x[0].sin().add_(unused);
    return Tensors{a * b};
  });
  EXPECT_EQ(program.graph().nodes.size(), 3u);
}

TEST(Compile, equal_results_are_memory_of_their_own) {
  expect_compiled(randoms({{30}}), [](const Tensors& x) { return Tensors{x[0] + 1, x[0] + 1}; });
  expect_compiled(randoms({{30}}), [](const Tensors& x) {
    const Tensor y = x[0] * 2;
    x[0].mul_(2);
    return Tensors{y, x[0]};
  });
}

TEST(Compile, equal_values_that_a_list_writes_part_from_each_other) {
  expect_compiled(randoms({{30}}), [](const Tensors& x) {
    const Tensor a = x[0] + 1, b = x[0] + 1;
    const Tensors list{a, b}, others{x[0], x[0] * 2};
    foreach
      ::add_(list, others);
    return Tensors{a, b};
  });
}

TEST(Compile, draws_differ_from_each_other) {
  expect_compiled(randoms({{64}}), [](const Tensors& x) {
    return Tensors{dropout(x[0], 0.5), dropout(x[0], 0.5), rand({8}), rand({8})};
  });
}

}  // namespace
}  // namespace lorry::test
