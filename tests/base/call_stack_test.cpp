// Walks of a thread's stack, and the functions and lines of what they find.

#include "lorry/base/call_stack.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace lorry {
namespace {

struct Stack {
  const void* frames[64] = {};
  int count = 0;
};

// The empty statement after a call keeps it from being the last, which would not return here.
[[gnu::noinline]] void innermost(Stack& stack) {
  stack.count = call_stack(stack.frames);
  asm volatile("");
}
[[gnu::noinline]] void outer(Stack& stack, int depth) {
  if (depth == 0)
    innermost(stack);
  else
    outer(stack, depth - 1);
  asm volatile("");
}

/// The names of the functions on a stack; a name is empty where a build without libdw does not find it.
std::vector<std::string> functions(const Stack& stack) {
  std::vector<std::string> names;
  for (int i = 0; i < stack.count; ++i) names.push_back(source_line(stack.frames[i]).function);
  return names;
}

bool can_name_functions() {
  Stack stack;
  innermost(stack);
  return stack.count > 0 && !source_line(stack.frames[0]).function.empty();
}

TEST(CallStack, is_innermost_first) {
  if (!can_name_functions()) GTEST_SKIP() << "no stack, or no names without libdw";
  Stack stack;
  outer(stack, 2);
  const std::vector<std::string> names = functions(stack);
  ASSERT_GE(names.size(), 5u);
  EXPECT_NE(names[0].find("innermost("), std::string::npos) << names[0];
  for (int i = 1; i < 4; ++i) EXPECT_NE(names[i].find("outer("), std::string::npos) << names[i];
  EXPECT_NE(names[4].find("is_innermost_first"), std::string::npos) << names[4];
}

TEST(CallStack, tells_file_and_line_of_a_call) {
  Stack stack;
  const int line = __LINE__ + 1;
  innermost(stack);
  if (stack.count < 2 || source_line(stack.frames[0]).file.empty()) GTEST_SKIP() << "no lines without libdw";
  const SourceLine found = source_line(stack.frames[1]);
  EXPECT_TRUE(found.file.ends_with("call_stack_test.cpp")) << found.file;
  EXPECT_EQ(found.line, line);
}

/// Two functions that are inlined, one into the other.
[[gnu::always_inline]] inline void inlined(Stack& stack) { innermost(stack); }
[[gnu::always_inline]] inline void inlined_again(Stack& stack) { inlined(stack); }

TEST(CallStack, the_lines_of_inlined_calls_are_told_too) {
  Stack stack;
  const int line = __LINE__ + 1;
  inlined_again(stack);
  if (stack.count < 2 || source_line(stack.frames[0]).file.empty()) GTEST_SKIP() << "no lines without libdw";
  const std::vector<SourceLine> lines = source_lines(stack.frames[1]);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2].line, line);
  EXPECT_TRUE(lines[2].file.ends_with("call_stack_test.cpp")) << lines[2].file;
  EXPECT_LT(lines[0].line, lines[1].line);
  const auto frames = std::span<const void* const>(stack.frames).first(static_cast<size_t>(stack.count));
  EXPECT_NE(describe(calling_line(frames)).find("call_stack_test.cpp:"), std::string::npos);
}

TEST(CallStack, lorrys_own_frames_are_no_line_of_a_program) {
  EXPECT_EQ(describe(calling_line({})), "");
  const void* const own[] = {reinterpret_cast<const char*>(&source_line) + 1};
  EXPECT_EQ(describe(calling_line(own)), "");
  EXPECT_EQ(describe({.function = "main", .file = "a.cpp", .line = 3}), "a.cpp:3");
  EXPECT_EQ(describe({.function = "main", .file = {}}), "main");
  EXPECT_EQ(
      describe({.function = "std::vector<int> user::Net<a::B<int> >::step(std::map<int, int> const&)::{lambda()#1}"
                            "::operator()() const [clone .constprop.0]",
                .file = {}}),
      "user::Net::step");
  EXPECT_EQ(describe({.function = "(anonymous namespace)::f(int)", .file = {}}), "anonymous::f");
}

TEST(CallStack, fills_what_it_is_given) {
  Stack stack;
  EXPECT_EQ(call_stack({}), 0);
  const void* frame = nullptr;
  outer(stack, 3);
  EXPECT_LE(call_stack({&frame, 1}), 1);
  Stack deep;
  outer(deep, 100);
  EXPECT_EQ(deep.count, stack.count == 0 ? 0 : 64);
}

TEST(CallStack, is_that_of_each_thread) {
  std::vector<std::thread> threads;
  std::vector<Stack> stacks(4);
  for (Stack& stack : stacks)
    threads.emplace_back([&stack] {
      for (int i = 0; i < 1000; ++i) outer(stack, 2);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Stack& stack : stacks) {
    EXPECT_EQ(stack.count > 4, stacks[0].count > 4);
    for (int i = 0; i < std::min(4, stack.count); ++i) EXPECT_EQ(stack.frames[i], stacks[0].frames[i]);
  }
}

/// What code without frame pointers leaves in the register: any number.
[[gnu::noinline]] int with_frame_pointer(uintptr_t value, Stack& stack) {
  uintptr_t frame[2] = {value, reinterpret_cast<uintptr_t>(&functions)};
#if defined(__x86_64__)
  // A call from a frame whose register points at `frame`: the walk takes the two numbers there for a caller.
  asm volatile(
      "sub $256, %%rsp\n"  // past what the compiler may keep below the stack pointer
      "push %%rbp\n"
      "mov %%rsp, %%rbx\n"
      "mov %[frame], %%rbp\n"
      "and $-16, %%rsp\n"
      "call *%[walk]\n"
      "mov %%rbx, %%rsp\n"
      "pop %%rbp\n"
      "add $256, %%rsp\n"
      :
      : [frame] "r"(&frame[0]), [walk] "r"(static_cast<void (*)(Stack&)>(innermost)), "D"(&stack)
      : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
#else
  innermost(stack);
#endif
  return frame[0] == value;
}

TEST(CallStack, ends_where_a_frame_pointer_is_none) {
  const uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  for (const uintptr_t value : {uintptr_t{0}, uintptr_t{1}, here + 3, here - 4096, ~uintptr_t{0}, ~uintptr_t{7},
                                here + (uintptr_t{1} << 40), uintptr_t{4096}}) {
    Stack stack;
    EXPECT_TRUE(with_frame_pointer(value, stack));
#if defined(__x86_64__)
    EXPECT_EQ(stack.count, 3) << "innermost, the false caller, and what that one holds";
    EXPECT_EQ(stack.frames[2], reinterpret_cast<const void*>(&functions));
#endif
  }
}

TEST(CallStack, is_there_in_a_child_that_forked_while_lines_were_asked_for) {
  Stack stack;
  outer(stack, 1);
  std::atomic<bool> over{false};
  std::thread asks([&] {
    while (!over)
      for (int i = 0; i < stack.count; ++i) source_line(stack.frames[i]);
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(30);
      Stack again;
      outer(again, 1);
      _Exit(again.count > 0 && source_line(again.frames[0]).function != source_line(stack.frames[0]).function);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  over = true;
  asks.join();
}

TEST(SourceLines, of_no_code_are_empty) {
  const int number = 0;
  for (const void* address : {static_cast<const void*>(&number), static_cast<const void*>(nullptr)}) {
    const SourceLine found = source_line(address);
    EXPECT_EQ(found.function, "");
    EXPECT_EQ(found.file, "");
    EXPECT_EQ(found.line, 0);
  }
}

}  // namespace
}  // namespace lorry
