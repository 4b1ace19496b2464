// The background compiler with a compiler and a loader of the test's own: no GPU and no NVRTC.

#include "lorry/kernels/cuda/fused/runtime_compiler.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/base/events.h"
#include "tests/support/scratch_folder.h"

namespace lorry::kernels::cuda::test {
namespace {

/// What stands for a loaded kernel: the cubin's text, for good.
const void* loaded(const std::string& cubin) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<std::string>> kAll;
  const std::lock_guard lock(mutex);
  return kAll.emplace_back(std::make_unique<std::string>(cubin)).get();
}
std::string text_of(const RuntimeKernel& kernel) { return *static_cast<const std::string*>(kernel.function()); }

class RuntimeCompilerTest : public testing::Test {
 protected:
  RuntimeCompiler::Parts parts(int threads = 2) {
    return {[this](const std::string& source, const std::string& architecture) {
              ++compiled_;
              if (gate_.valid()) gate_.wait();
              if (source == "bad") return Compiled{"", "line 1: no such word"};
              return Compiled{source + " for " + architecture, ""};
            },
            [this](const std::string& cubin, const std::string&, int) {
              ++loaded_;
              if (refuses_to_load_.exchange(false)) throw CudaError("no kernel image for this device");
              return loaded(cubin);
            },
            "test 1", threads, nullptr};
  }

  KernelCache cache_{std::nullopt};
  std::atomic<int> compiled_{0}, loaded_{0};
  std::atomic<bool> refuses_to_load_{false};
  std::shared_future<void> gate_;
};

TEST_F(RuntimeCompilerTest, compiles_in_the_background) {
  std::promise<void> open;
  gate_ = open.get_future().share();
  RuntimeCompiler compiler(parts(), cache_);
  const auto kernel = compiler.kernel({"k", "x"}, "sm_90", 0);
  EXPECT_EQ(kernel->function(), nullptr);
  EXPECT_EQ(kernel->refused(), "");
  open.set_value();
  kernel->wait();
  EXPECT_EQ(text_of(*kernel), "x for sm_90");
}

TEST_F(RuntimeCompilerTest, makes_one_kernel_of_equal_sources) {
  RuntimeCompiler compiler(parts(), cache_);
  const auto first = compiler.kernel({"k", "x"}, "sm_90", 0), second = compiler.kernel({"k", "x"}, "sm_90", 0);
  EXPECT_EQ(first, second);
  const auto other_device = compiler.kernel({"k", "x"}, "sm_90", 1), other = compiler.kernel({"k", "y"}, "sm_90", 0);
  for (const auto& kernel : {first, other_device, other}) kernel->wait();
  EXPECT_NE(first, other_device);
  EXPECT_EQ(text_of(*other), "y for sm_90");
  EXPECT_LE(compiled_, 3);
}

TEST_F(RuntimeCompilerTest, what_is_cached_is_ready_at_once_and_not_compiled) {
  { RuntimeCompiler(parts(), cache_).kernel({"k", "x"}, "sm_90", 0)->wait(); }
  EXPECT_EQ(compiled_, 1);
  RuntimeCompiler compiler(parts(), cache_);
  const auto kernel = compiler.kernel({"k", "x"}, "sm_90", 0);
  ASSERT_NE(kernel->function(), nullptr);
  EXPECT_EQ(text_of(*kernel), "x for sm_90");
  EXPECT_EQ(compiled_, 1);
  compiler.kernel({"k", "x"}, "sm_80", 0)->wait();
  EXPECT_EQ(compiled_, 2);
}

TEST_F(RuntimeCompilerTest, a_cached_kernel_that_cannot_be_loaded_is_compiled_again) {
  { RuntimeCompiler(parts(), cache_).kernel({"k", "x"}, "sm_90", 0)->wait(); }
  refuses_to_load_ = true;
  RuntimeCompiler compiler(parts(), cache_);
  const auto kernel = compiler.kernel({"k", "x"}, "sm_90", 0);
  kernel->wait();
  EXPECT_EQ(text_of(*kernel), "x for sm_90");
  EXPECT_EQ(compiled_, 2);
}

TEST_F(RuntimeCompilerTest, a_refused_source_is_told_once_with_its_file) {
  std::mutex mutex;
  std::vector<std::string> told;
  const auto before = events::set_handler([&](const events::Event& event) {
    const std::lock_guard lock(mutex);
    if (event.kind == events::Kind::warning) told.emplace_back(event.text);
  });
  {
    RuntimeCompiler compiler(parts(), cache_);
    const auto kernel = compiler.kernel({"fused_bad", "bad"}, "sm_90", 0);
    kernel->wait();
    compiler.kernel({"fused_bad", "bad"}, "sm_90", 0)->wait();
    EXPECT_EQ(kernel->function(), nullptr);
    EXPECT_EQ(kernel->refused(), "line 1: no such word");
  }
  events::set_handler(before);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("fused_bad could not be compiled"), std::string::npos) << told[0];
  const size_t at = told[0].find("is in "), end = told[0].find(".cu", at);
  ASSERT_NE(end, std::string::npos) << told[0];
  const std::string path = told[0].substr(at + 6, end + 3 - at - 6);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "bad");
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 077u, 0u);
  std::filesystem::remove(path);
}

TEST_F(RuntimeCompilerTest, its_end_waits_for_one_and_leaves_the_rest) {
  std::promise<void> open;
  gate_ = open.get_future().share();
  std::vector<std::shared_ptr<const RuntimeKernel>> kernels;
  std::thread opener;
  {
    RuntimeCompiler compiler(parts(1), cache_);
    for (const char* source : {"a", "b", "c"}) kernels.push_back(compiler.kernel({"k", source}, "sm_90", 0));
    while (compiled_ == 0) std::this_thread::yield();
    opener = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      open.set_value();
    });
  }
  opener.join();
  EXPECT_EQ(compiled_, 1);
  EXPECT_NE(kernels[0]->function(), nullptr);
  for (const int k : {1, 2}) {
    kernels[static_cast<size_t>(k)]->wait();
    EXPECT_EQ(kernels[static_cast<size_t>(k)]->function(), nullptr);
  }
}

TEST_F(RuntimeCompilerTest, many_threads_ask_for_the_same_kernels) {
  RuntimeCompiler compiler(parts(), cache_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const auto kernel = compiler.kernel({"k", std::to_string(k)}, "sm_90", 0);
        kernel->wait();
        EXPECT_EQ(text_of(*kernel), std::to_string(k) + " for sm_90");
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled_, 50);
}

TEST_F(RuntimeCompilerTest, warms_up_once) {
  {
    RuntimeCompiler compiler(parts(), cache_);
    compiler.warm_up(), compiler.warm_up();
    compiler.kernel({"k", "x"}, "sm_90", 0)->wait();
    while (compiled_ < 2) std::this_thread::yield();
  }
  EXPECT_EQ(compiled_, 2);
}

TEST_F(RuntimeCompilerTest, a_compiler_that_is_missing_refuses_kernels_and_ends_nothing) {
  RuntimeCompiler::Parts missing = parts();
  missing.compile = [this](const std::string&, const std::string&) -> Compiled {
    ++compiled_;
    throw Error("nvrtc: the library is missing");
  };
  RuntimeCompiler compiler(std::move(missing), cache_);
  compiler.warm_up();
  const auto kernel = compiler.kernel({"k", "x"}, "sm_90", 0);
  kernel->wait();
  EXPECT_EQ(kernel->function(), nullptr);
  EXPECT_NE(kernel->refused().find("the library is missing"), std::string::npos);
  while (compiled_ < 2) std::this_thread::yield();
}

TEST_F(RuntimeCompilerTest, a_handler_of_events_that_throws_ends_nothing) {
  struct Restore {
    events::Handler before;
    ~Restore() { events::set_handler(before); }
  } const restore{events::set_handler([](const events::Event&) { throw std::runtime_error("no"); })};
  RuntimeCompiler compiler(parts(1), cache_);
  const auto bad = compiler.kernel({"k", "bad"}, "sm_90", 0), good = compiler.kernel({"k", "x"}, "sm_90", 0);
  bad->wait(), good->wait();
  EXPECT_EQ(bad->refused(), "line 1: no such word");
  EXPECT_EQ(text_of(*good), "x for sm_90");
}

/// Two jobs are compiled at the same time, although a thread is there already: the first waits for the second.
TEST_F(RuntimeCompilerTest, a_busy_thread_does_not_make_others_wait) {
  std::promise<void> second;
  RuntimeCompiler::Parts both = parts();
  both.compile = [&](const std::string& source, const std::string&) {
    if (source == "first") second.get_future().wait();
    if (source == "second") second.set_value();
    return Compiled{source, ""};
  };
  RuntimeCompiler compiler(std::move(both), cache_);
  compiler.kernel({"k", "before"}, "sm_90", 0)->wait();
  const auto first = compiler.kernel({"k", "first"}, "sm_90", 0);
  compiler.kernel({"k", "second"}, "sm_90", 0)->wait();
  first->wait();
}

TEST_F(RuntimeCompilerTest, does_not_warm_up_where_the_disk_has_kernels) {
  const lorry::test::ScratchFolder scratch;
  const std::string folder = scratch.root().string();
  KernelCache on_disk{folder};
  RuntimeCompiler(parts(), on_disk).kernel({"k", "x"}, "sm_90", 0)->wait();
  KernelCache again{folder};
  {
    RuntimeCompiler compiler(parts(), again);
    compiler.warm_up();
    compiler.kernel({"k", "x"}, "sm_90", 0)->wait();
  }
  EXPECT_EQ(compiled_, 1);
}

TEST_F(RuntimeCompilerTest, code_that_is_made_quickly_is_used_until_better_code_is_there) {
  std::promise<void> open;
  gate_ = open.get_future().share();
  RuntimeCompiler::Parts both = parts(1);
  both.compile_quickly = [](const std::string& source, const std::string&) { return Compiled{"quick " + source, ""}; };
  RuntimeCompiler compiler(std::move(both), cache_);
  const auto kernel = compiler.kernel({"k", "x"}, "sm_90", 0);
  while (kernel->function() == nullptr) std::this_thread::yield();
  EXPECT_EQ(text_of(*kernel), "quick x");
  open.set_value();
  kernel->wait();
  EXPECT_EQ(text_of(*kernel), "x for sm_90");
  EXPECT_EQ(compiled_, 1);
}

TEST_F(RuntimeCompilerTest, code_that_cannot_be_made_quickly_is_made_fully) {
  std::atomic<int> quick{0};
  RuntimeCompiler::Parts both = parts(1);
  both.compile_quickly = [&](const std::string& source, const std::string&) {
    ++quick;
    if (source == "throws") throw Error("no such flag");
    return Compiled{};
  };
  RuntimeCompiler compiler(std::move(both), cache_);
  for (const char* source : {"x", "throws"}) {
    const auto kernel = compiler.kernel({"k", source}, "sm_90", 0);
    while (kernel->function() == nullptr) std::this_thread::yield();
    EXPECT_EQ(text_of(*kernel), std::string(source) + " for sm_90");
  }
  EXPECT_EQ(quick, 2);
  EXPECT_EQ(compiled_, 2);
}

TEST_F(RuntimeCompilerTest, code_that_was_made_quickly_stays_if_there_is_no_better) {
  RuntimeCompiler::Parts both = parts(1);
  both.compile_quickly = [](const std::string& source, const std::string&) { return Compiled{"quick " + source, ""}; };
  RuntimeCompiler compiler(std::move(both), cache_);
  const auto kernel = compiler.kernel({"k", "bad"}, "sm_90", 0);
  while (kernel->function() == nullptr) std::this_thread::yield();
  kernel->wait();
  EXPECT_EQ(kernel->refused(), "");
  EXPECT_EQ(text_of(*kernel), "quick bad");
}

TEST_F(RuntimeCompilerTest, what_somebody_waits_for_is_compiled_once) {
  std::promise<void> open;
  gate_ = open.get_future().share();
  std::atomic<int> quick{0};
  RuntimeCompiler::Parts both = parts(1);
  both.compile_quickly = [&](const std::string& source, const std::string&) {
    if (++quick == 1) gate_.wait();
    return Compiled{"quick " + source, ""};
  };
  RuntimeCompiler compiler(std::move(both), cache_);
  const auto first = compiler.kernel({"k", "first"}, "sm_90", 0), second = compiler.kernel({"k", "second"}, "sm_90", 0);
  std::thread waits([&] { second->wait(); });
  while (quick == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  open.set_value();
  waits.join();
  first->wait();
  EXPECT_EQ(quick, 1);
  EXPECT_EQ(text_of(*second), "second for sm_90");
}

/// In a process of its own: NVRTC's functions at exit must find nobody compiling.
void end_while_kernels_compile(int milliseconds) {
  ::setenv("LORRY_CACHE_DIR", "off", 1);
  ::setenv("TMPDIR", "/nowhere", 1);  // without a GPU kernels are refused, and their sources would be written
  RuntimeCompiler::get().warm_up();
  for (int k = 0; k < 6; ++k) {
    std::string source = fmt::format("extern \"C\" __global__ void k{}(float* x) {{\n  float a = x[threadIdx.x];\n", k);
    for (int i = 0; i < 40; ++i) source += fmt::format("  a = sinf(a) * cosf(a + {0}); x[{0}] = a;\n", i + k);
    RuntimeCompiler::get().kernel({fmt::format("k{}", k), source + "}\n"}, "sm_90", 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  std::exit(0);
}

TEST(RuntimeCompilerAtExit, a_process_may_end_while_kernels_compile) {
  if (const std::string& why = Nvrtc::get().missing(); !why.empty()) GTEST_SKIP() << why;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int milliseconds : {0, 5, 10, 20, 40, 70, 120, 250})
    EXPECT_EXIT(end_while_kernels_compile(milliseconds), testing::ExitedWithCode(0), "") << milliseconds;
}

}  // namespace
}  // namespace lorry::kernels::cuda::test
