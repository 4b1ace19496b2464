// What the suite `compile` reports, and what it refuses to.

#include "lorry/bench/compile_cases.h"

#include <gtest/gtest.h>

#include "lorry/ops/ops.h"
#include "tests/support/message.h"

namespace lorry::bench {
namespace {

const Filter kAll = [](const std::string&) { return true; };

TEST(CompileCases, a_compiled_function_that_gives_other_bits_is_refused) {
  CompileCases cases(kAll);
  // Host code that changes from call to call: what a compiled function must not depend on.
  double calls = 0;
  const auto counts = [&](const Tensor& x) { return x * ++calls + 1; };
  const std::string refused = test::message<CompileError>([&] { cases.add({.name = "counting"}, counts, ones({8})); });
  EXPECT_NE(refused.find("'counting'"), std::string::npos) << refused;
  EXPECT_NE(refused.find("bytes of which differ"), std::string::npos) << refused;
  EXPECT_TRUE(cases.rows().empty());
}

TEST(CompileCases, bits_are_compared_where_numbers_are_equal) {
  const Tensor nan = full({3}, std::numeric_limits<double>::quiet_NaN());
  require_same_bits("equal NaN", nan, nan.clone());
  EXPECT_THROW(require_same_bits("signs of 0", zeros({3}), -zeros({3})), CompileError);
  EXPECT_THROW(require_same_bits("sizes", zeros({3}), zeros({3, 1})), CompileError);
  EXPECT_THROW(require_same_bits("dtypes", zeros({2}, {.dtype = kF32}), zeros({2}, {.dtype = kI32})), CompileError);
}

TEST(CompileCases, a_function_in_which_there_is_nothing_to_fuse_has_no_compiled_row) {
  CompileCases cases(kAll);
  cases.add(
      {.name = "matmul"}, [](const Tensor& x) { return matmul(x, x); }, ones({4, 4}));
  ASSERT_EQ(cases.rows().size(), 1u);
  EXPECT_EQ(cases.rows()[0].implementation, "lorry eager");
}

}  // namespace
}  // namespace lorry::bench
