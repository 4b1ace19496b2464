// Rules as programs: what they take and move, and that in-place memory and joined rows change no number.

#include "lorry/optim/execution/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "lorry/formula/optimizers.h"
#include "tests/support/scale.h"

namespace lorry::optim::test {
namespace {

using kernels::recording::Node;
using kernels::recording::record;
using kernels::recording::Recorder;
using kernels::recording::Symbol;

StepShape shape_in(DType dtype) {
  return {.execution = Execution::foreach, .dtype = dtype, .grad_dtype = dtype, .memory = {}};
}

template <class Rule>
Program program_of(const formula::SettingsOf<Rule>& settings, const StepShape& shape) {
  return make_program([&](Symbol* values) { record<Rule>(settings, values); }, Rule::kStates, shape);
}

/// Bytes an element that a program reads and writes.
int64_t traffic(const Program& program) {
  int64_t bytes = 0;
  for (const Instruction& x : program.arrays) {
    bytes += size_of(x.out.dtype);
    for (int k = 0; k < x.arity; ++k) {
      bool again = false;
      for (int j = 0; j < k; ++j) again = again || x.in[j].is_same_memory(x.in[k]);
      if (x.in[k].is_array() && !again) bytes += size_of(x.in[k].dtype);
    }
  }
  return bytes;
}

TEST(Program, of_adamw_moves_no_more_than_pytorchs_operators_and_takes_one_copy_of_the_parameters) {
  // PyTorch: mul_, lerp_, mul_, addcmul_, sqrt, div_, add_, addcdiv_.
  const Program program = program_of<formula::AdamW<false>>({.weight_decay = 0.1}, shape_in(kF32));
  EXPECT_LE(traffic(program), 80);
  EXPECT_LE(program.arrays.size(), 8u);
  EXPECT_EQ(program.bytes_per_element(), 4);
}

TEST(Program, of_sgd_takes_no_memory) {
  const Program plain = program_of<formula::Sgd<false>>({}, shape_in(kF32)),
                momentum = program_of<formula::Sgd<true>>({.momentum = 0.9}, shape_in(kF32));
  EXPECT_EQ(plain.bytes_per_element(), 0);
  EXPECT_EQ(traffic(plain), 12);
  EXPECT_EQ(momentum.bytes_per_element(), 0);
  EXPECT_EQ(traffic(momentum), 32);
}

TEST(Program, widens_and_narrows_16_bit_parameters_on_the_way) {
  const Program program = program_of<formula::Sgd<false>>({}, shape_in(kBF16));
  EXPECT_EQ(program.arrays.size(), 1u);
  EXPECT_EQ(program.bytes_per_element(), 0);
  EXPECT_EQ(traffic(program), 6);
}

// ---- formulas from a seed -------------------------------------------------------------------------------------------

constexpr int kStateCount = 3;

template <class V, class H>
V random_operation(int which, const V& a, const V& b, const V& c, const H& hyper) {
  using formula::abs, formula::select, formula::sqrt;
  switch (which) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a / b;
    case 4:
      return a + b * c;
    case 5:
      return a - b * c;
    case 6:
      return a + hyper(0) * b * c;
    case 7:
      return a - hyper(1) * b / c;
    case 8:
      return a + hyper(2) * (b - a);
    case 9:
      return select((a > b) | (a != a), a, b);
    case 10:
      return select(a < b, b, c);
    case 11:
      return sqrt(abs(a));
    case 12:
      return -a;
    default:
      return hyper(0) * a + b;
  }
}

/// An update of random operations: of doubles, and of symbols with the same seed the same.
template <class V, class H>
void random_update(uint64_t seed, V* values, const H& hyper) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  std::vector<V> pool{values[0], values[1], values[2], values[3], values[4]};
  const auto any = [&]() -> V {
    return below(6) == 0    ? hyper(below(3))
           : below(12) == 0 ? V(0.5)
                            : pool[static_cast<size_t>(below(static_cast<int>(pool.size())))];
  };
  for (int i = 3 + below(14); i > 0; --i) {
    const V a = any(), b = any(), c = any();
    const V made = random_operation(below(14), a, b, c, hyper);
    const int target = below(2 + kStateCount);  // a value of the step's now and then, as rules assign them
    if (target != 1 && below(3) == 0) values[target] = made, pool[static_cast<size_t>(target)] = made;
    pool.push_back(made);
  }
  for (int k = 0; k < 2 + kStateCount; ++k)
    if (k != 1 && below(3) > 0) values[k] = any();
}

void record_random(uint64_t seed, Symbol* values) {
  random_update(seed, values,
                [](int k) { return Symbol(Recorder::current().input(Node::From::hyper, k, kF64, false)); });
}

/// Runs a program on one element.
class Interpreter {
 public:
  std::map<std::pair<Location::Kind, int>, double> memory;

  void run(const Program& program) {
    for (const auto* list : {&program.numbers, &program.arrays})
      for (const Instruction& x : *list) {
        if (x.kind != Instruction::Kind::compute) {
          memory[{x.out.kind, x.out.index}] = memory.at({x.in[0].kind, x.in[0].index});
          continue;
        }
        double in[4] = {};
        for (int k = 0; k < x.arity; ++k)
          in[k] =
              x.in[k].kind == Location::Kind::constant ? x.in[k].constant : memory.at({x.in[k].kind, x.in[k].index});
        memory[{x.out.kind, x.out.index}] = value(x, in);
      }
  }

 private:
  static double value(const Instruction& x, const double* in) {
    const double a = in[0], b = in[1], c = in[2], d = in[3];
    if (x.blends) return a + c * (b - a);
    switch (x.op) {
      case Pointwise::add:
        return a + b;
      case Pointwise::sub:
        return a - b;
      case Pointwise::mul:
        return a * b;
      case Pointwise::div:
        return a / b;
      case Pointwise::neg:
        return -a;
      case Pointwise::abs:
        return std::fabs(a);
      case Pointwise::sqrt:
        return std::sqrt(a);
      case Pointwise::lt:
        return a < b;
      case Pointwise::gt:
        return a > b;
      case Pointwise::ne:
        return a != b;
      case Pointwise::logical_or:
        return a != 0 || b != 0;
      case Pointwise::where:
        return a != 0 ? b : c;
      case Pointwise::maximum:
        return a > b || a != a ? a : b;
      case Pointwise::add_scaled:
        return a + c * b;
      case Pointwise::addcmul:
        return a + d * b * c;
      case Pointwise::addcdiv:
        return a + d * b / c;
      default:
        ADD_FAILURE() << row(x.op).name;
        return 0;
    }
  }
};

/// How many formulas: LORRY_TEST_SCALE multiplies them.
uint64_t formula_count(int64_t count) { return static_cast<uint64_t>(lorry::test::scaled(count)); }

/// What a formula starts from: the parameter, the gradient and the states, and the hyper-parameters.
struct Numbers {
  explicit Numbers(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (double& x : values) x = normal(random);
    for (double& x : hyper) x = normal(random);
  }
  double values[2 + kStateCount], hyper[3];
};

/// Steps `numbers` by the program of a formula.
void run_program(uint64_t seed, const StepShape& shape, Numbers& numbers) {
  using Kind = Location::Kind;
  Interpreter interpreter;
  auto& memory = interpreter.memory;
  memory = {{{Kind::param, 0}, numbers.values[0]}, {{Kind::grad, 0}, numbers.values[1]}};
  if (shape.memory.masters == Masters::f32) memory[{Kind::master, 0}] = numbers.values[0];
  for (int k = 0; k < kStateCount; ++k) memory[{Kind::state, k}] = numbers.values[2 + k];
  for (int k = 0; k < 3; ++k) memory[{Kind::hyper, k}] = numbers.hyper[k];
  interpreter.run(make_program([&](Symbol* values) { record_random(seed, values); }, kStateCount, shape));
  numbers.values[0] = memory.at({Kind::param, 0});
  numbers.values[1] = memory.at({Kind::grad, 0});
  for (int k = 0; k < kStateCount; ++k) numbers.values[2 + k] = memory.at({Kind::state, k});
}

void expect_same(const Numbers& got, const Numbers& expected, uint64_t seed) {
  for (int k = 0; k < 2 + kStateCount; ++k) {
    const double a = got.values[k], b = expected.values[k];
    ASSERT_TRUE(a == b || (a != a && b != b)) << (k == 0   ? "parameter"
                                                  : k == 1 ? "gradients are only read"
                                                           : "state " + std::to_string(k - 2))
                                              << ", seed " << seed << ": " << a << " for " << b;
  }
}

TEST(Program, of_any_formula_gives_its_numbers_whatever_memory_it_shares) {
  for (uint64_t seed = 1; seed <= formula_count(20'000) && !HasFatalFailure(); ++seed) {
    Numbers got(seed), expected(seed);
    run_program(seed, shape_in(kF64), got);
    const double grad = expected.values[1];
    random_update(seed, expected.values, [&](int k) { return expected.hyper[k]; });
    expected.values[1] = grad;
    expect_same(got, expected, seed);
  }
}

// The interpreter stores numbers as they are, so that any difference from the program without stored states and rounded
// parameters is one of order. Masters that are split are left out: it reads no bits.
TEST(Program, of_any_formula_reads_old_values_before_it_stores_new_ones) {
  using S = StateType;
  for (const StateTypes& states : {StateTypes(S::q8), StateTypes(S::bf16, S::f32), StateTypes(S::f32, S::q8, S::f32)})
    for (const Masters masters : {Masters::none, Masters::stochastic, Masters::f32})
      for (uint64_t seed = 1; seed <= formula_count(2'000) && !HasFatalFailure(); ++seed) {
        Numbers got(seed), expected(seed);
        StepShape shape = shape_in(masters == Masters::none ? kF32 : kBF16);
        shape.memory = {.masters = masters, .states = states};
        run_program(seed, shape, got);
        run_program(seed, shape_in(kF32), expected);
        SCOPED_TRACE(fmt::format("states {}, masters {}", name(states), name(masters)));
        expect_same(got, expected, seed);
      }
}

}  // namespace
}  // namespace lorry::optim::test
