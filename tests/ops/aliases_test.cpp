// Every row of tensor/aliases.def against the original: the function, the method, and the in-place and out forms that
// it has.

#include <gtest/gtest.h>

#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"

namespace lorry::test {
namespace {

#define LORRY_AFTER(...) __VA_OPT__(, ) __VA_ARGS__

/// What a row's arguments are called, so that its brackets can be called in a test.
struct Aliases : testing::Test {
  const Tensor other = sample({3, 4}, kF32, 2), vector = sample({5}, kF32, 3);
  const Scalar alpha = 0.5;
  const std::string_view rounding_mode = "floor";
  const std::optional<Operand> min = Operand(-0.5), max = Operand(0.75);
  const Dims source{0}, destination{-1};
  const int64_t dim0 = 0, dim1 = 1, dim = 1;
  const std::vector<Tensor> side_by_side{other, sample({3, 2}, kF32, 4)},
      one_below_another{other, sample({1, 4}, kF32, 5)};

  /// Within the domain of every function: 0 < x < 1.
  Tensor operand(std::string_view original) const {
    return original == "outer" ? vector.clone() : sample({3, 4}, kF32, 1).abs().div(4).add(0.01);
  }
};

TEST_F(Aliases, give_what_the_original_gives){
#define LORRY_ALIAS(alias, original, parameters, arguments)                        \
  {                                                                                \
    SCOPED_TRACE(#alias);                                                          \
    const Tensor x = operand(#original), want = original(x LORRY_AFTER arguments); \
    EXPECT_TRUE(same_bits(alias(x LORRY_AFTER arguments), want));                  \
    EXPECT_TRUE(same_bits(x.alias arguments, want));                               \
    EXPECT_EQ(alias(x LORRY_AFTER arguments).is_view(), want.is_view());           \
  }
#include "lorry/tensor/aliases.def"
}

TEST_F(Aliases, write_in_place_what_the_original_writes){
#define LORRY_ALIAS_IN_PLACE(alias, original, parameters, arguments) \
  {                                                                  \
    SCOPED_TRACE(#alias);                                            \
    const Tensor x = operand(#original), want = x.clone();           \
    want.original##_ arguments;                                      \
    EXPECT_TRUE(x.alias##_ arguments.is_same(x));                    \
    EXPECT_TRUE(same_bits(x, want));                                 \
    EXPECT_EQ(x.strides(), want.strides());                          \
  }
#include "lorry/tensor/aliases.def"
}

TEST_F(Aliases, write_into_a_given_tensor_what_the_original_returns){
#define LORRY_ALIAS_OUT(alias, original, parameters, arguments)                    \
  {                                                                                \
    SCOPED_TRACE(#alias);                                                          \
    const Tensor x = operand(#original), want = original(x LORRY_AFTER arguments); \
    const Tensor out = empty(want.sizes(), want.options());                        \
    EXPECT_TRUE(alias##_out(out, x LORRY_AFTER arguments).is_same(out));           \
    EXPECT_TRUE(same_bits(out, want));                                             \
  }
#include "lorry/tensor/aliases.def"
}

TEST_F(Aliases, of_binary_operators_take_a_number_first){
#define LORRY_ALIAS_BINARY(alias, original)                                              \
  {                                                                                      \
    SCOPED_TRACE(#alias);                                                                \
    EXPECT_TRUE(same_bits(alias(1.5, other), original(1.5, other)));                     \
    EXPECT_TRUE(same_bits(alias(other, 1.5), original(other, 1.5)));                     \
    const Tensor want = original(1.5, other), out = empty(want.sizes(), want.options()); \
    EXPECT_TRUE(same_bits(alias##_out(out, 1.5, other), want));                          \
  }
#include "lorry/tensor/aliases.def"
}

TEST_F(Aliases, of_lists_join_what_the_original_joins) {
#define LORRY_ALIAS_LIST(alias, original, parameters, arguments)                                   \
  {                                                                                                \
    SCOPED_TRACE(#alias);                                                                          \
    const auto& tensors = std::string_view(#original) == "cat" ? side_by_side : one_below_another; \
    const Tensor want = original arguments, out = empty(want.sizes(), want.options());             \
    EXPECT_TRUE(same_bits(alias arguments, want));                                                 \
    EXPECT_TRUE(same_bits(alias##_out(out LORRY_AFTER arguments), want));                          \
  }
#define LORRY_ALIAS_BRACED(alias, original, parameters, arguments) \
  EXPECT_TRUE(same_bits(alias({other, other}, dim), original({other, other}, dim)));
#include "lorry/tensor/aliases.def"
}

}  // namespace
}  // namespace lorry::test
