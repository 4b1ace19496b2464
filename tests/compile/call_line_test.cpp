// What splits a graph is told with the line of the program that did it. This file is compiled with line information.

#include <gtest/gtest.h>

#include <string>

#include "lorry/base/call_stack.h"
#include "lorry/lorry.h"
#include "tests/support/message.h"

namespace lorry::test {
namespace {

int line_of_read = 0;
[[gnu::always_inline]] inline float total(const Tensor& x) {
  line_of_read = __LINE__ + 1;
  return x.sum().item<float>();
}

bool has_lines() {
  const void* frames[8];
  const int count = call_stack(frames);
  return count > 0 && !source_line(frames[0]).file.empty();
}

TEST(CallLine, a_split_names_the_line_of_the_program_even_where_it_is_inlined) {
  if (!has_lines()) GTEST_SKIP() << "no stack, or no lines without libdw";
  const auto f = compile([](const Tensor& x) { return x * total(x); }, {.fullgraph = true});
  for (int call = 0; call < 2; ++call) {
    const std::string error = message<CompileError>([&] { f(ones({4})); });
    EXPECT_NE(error.find(fmt::format("call_line_test.cpp:{}", line_of_read)), std::string::npos) << error;
  }
}

TEST(CallLine, what_is_found_after_the_call_names_no_line) {
  if (!has_lines()) GTEST_SKIP() << "no stack, or no lines without libdw";
  Tensor held;
  const auto f = compile(
      [&](const Tensor& x) {
        held = x * 2;
        return held + 1;
      },
      {.fullgraph = true});
  std::string error;
  for (int call = 0; call < 4 && error.empty(); ++call) try {
      f(ones({4}));
    } catch (const CompileError& e) {
      error = e.what();
    }
  EXPECT_NE(error.find("still held"), std::string::npos) << error;
  EXPECT_EQ(error.find(".cpp:"), std::string::npos) << error;
}

}  // namespace
}  // namespace lorry::test
