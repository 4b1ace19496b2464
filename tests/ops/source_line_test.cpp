// The source line of a call, from a listener that keeps the stack.

#include <gtest/gtest.h>

#include <string>

#include "lorry/base/call_stack.h"
#include "lorry/lorry.h"
#include "lorry/ops/dispatch/listener.h"

namespace lorry {
namespace {

const void* g_frames[32];
int g_count = 0;
constexpr door::Listener kRecorder{.bit = kUserMode,
                                   .before = [](const door::CallView&, void*&) { g_count = call_stack(g_frames); }};

int line_of_call = 0;
[[gnu::noinline]] Tensor here(const Tensor& x) {
  line_of_call = __LINE__ + 1;
  Tensor sum = add(x, x);
  return sum;
}

TEST(SourceLines, of_a_call_are_among_the_frames_that_a_listener_keeps) {
  const Tensor x = ones({3});
  {
    const door::ListenerScope listening(kRecorder);
    here(x);
  }
  bool found = false, named = false;
  for (const void* frame : std::span(g_frames).first(g_count)) {
    const SourceLine line = source_line(frame);
    named |= !line.function.empty();
    if (line.function.find("here(") == std::string::npos) continue;
    found = true;
    if (line.file.empty()) continue;
    EXPECT_TRUE(line.file.ends_with("source_line_test.cpp")) << line.file;
    EXPECT_EQ(line.line, line_of_call);
  }
  if (!named) GTEST_SKIP() << "no stack, or no names without libdw";
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace lorry
