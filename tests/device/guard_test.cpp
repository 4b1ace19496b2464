// Whose device a thread has: Lorry's calls leave it as it was. The driver's stack of contexts is the test's own where
// no GPU is needed.

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/device.h"
#include "lorry/memory/memory.h"
#include "lorry/ops/ops.h"

namespace lorry::cuda {
namespace {

CUctx_st* context(int device) { return reinterpret_cast<CUctx_st*>(static_cast<intptr_t>(100 + device)); }

std::vector<CUctx_st*> g_contexts;  // the thread's stack
int g_calls = 0, g_refused = 0;     // g_refused: what a push answers

class Guards : public testing::Test {
 protected:
  void SetUp() override {
    g_contexts.clear(), g_calls = g_refused = 0;
    several_ = std::exchange(detail::g_several, true);
    current_ = std::exchange(detail::g_stack.current, [](CUctx_st** into) {
      ++g_calls;
      *into = g_contexts.empty() ? nullptr : g_contexts.back();
      return 0;
    });
    push_ = std::exchange(detail::g_stack.push, [](CUctx_st* pushed) {
      ++g_calls;
      if (g_refused == 0) g_contexts.push_back(pushed);
      return g_refused;
    });
    pop_ = std::exchange(detail::g_stack.pop, [](CUctx_st** into) {
      ++g_calls;
      *into = g_contexts.back();
      g_contexts.pop_back();
      return 0;
    });
    for (int i = 0; i < kMaxDevices; ++i) contexts_[i] = detail::g_stack.contexts[i].exchange(context(i));
  }
  void TearDown() override {
    detail::g_several = several_;
    detail::g_stack.current = current_, detail::g_stack.push = push_, detail::g_stack.pop = pop_;
    for (int i = 0; i < kMaxDevices; ++i) detail::g_stack.contexts[i] = contexts_[i];
  }

 private:
  bool several_;
  decltype(detail::ContextStack::current) current_;
  decltype(detail::ContextStack::push) push_;
  decltype(detail::ContextStack::pop) pop_;
  CUctx_st* contexts_[kMaxDevices];
};

TEST_F(Guards, give_the_thread_back_what_it_had_at_every_depth) {
  for (const bool has_one : {false, true}) {
    g_contexts.clear();
    if (has_one) g_contexts = {context(0)};
    const auto before = g_contexts;
    {
      const DeviceGuard outer(1);
      EXPECT_EQ(g_contexts.back(), context(1));
      {
        const DeviceGuard inner(2), again(2);
        EXPECT_EQ(g_contexts.back(), context(2));
        EXPECT_EQ(g_contexts.size(), before.size() + 2) << "the device that is current is not pushed again";
      }
      EXPECT_EQ(g_contexts.back(), context(1));
    }
    EXPECT_EQ(g_contexts, before);
  }
}

TEST_F(Guards, give_the_thread_back_what_it_had_when_an_exception_passes) {
  g_contexts = {context(0)};
  try {
    const DeviceGuard guard(3);
    throw std::runtime_error("in the scope of a guard");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(g_contexts, std::vector{context(0)});
}

TEST_F(Guards, that_fail_throw_or_say_so_and_pop_nothing) {
  g_contexts = {context(0)};
  g_refused = static_cast<int>(cudaErrorInvalidDevice);
  EXPECT_THROW(DeviceGuard(1), CudaError);
  {
    const DeviceGuard quiet(1, std::nothrow);
    EXPECT_FALSE(quiet.holds());
    const DeviceGuard here(0, std::nothrow);
    EXPECT_TRUE(here.holds());
  }
  EXPECT_EQ(g_contexts, std::vector{context(0)});
}

TEST_F(Guards, ask_nothing_where_there_is_one_device) {
  detail::g_several = false;
  {
    const DeviceGuard guard(0), quiet(0, std::nothrow);
    EXPECT_TRUE(quiet.holds());
  }
  EXPECT_EQ(g_calls, 0);
}

/// The runtime's current device of this thread.
int current_device() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

/// Calls of every kind on a device.
void work_on(Device device) {
  const Tensor x = randn({256, 256}, {kF32, device});
  EXPECT_GT(x.matmul(x).abs().sum().item<float>(), 0);
  x.sort(1);
  x.gt(0).nonzero();
  x.t().contiguous();
  ones({1000}, {.device = kCPU}).to(device).cpu();
  const OwnedStream stream(device);
  const Event event(device);
  event.record(stream);
  event.block(current_stream(device));
  {
    const StreamScope scope(stream);
    x.record_stream(stream);
    x.add(1);
  }
  stream.synchronize();
  device::synchronize(device);
  memory::empty_cache(device);
  device::memory_use(device);
}

TEST(ForeignKernels, run_on_the_device_that_their_thread_had_chosen) {
  const int count = device::count(DeviceType::cuda);
  if (count < 2) GTEST_SKIP() << "needs two GPUs; this machine has " << count;
  for (const int chosen : {0, 1}) {
    ASSERT_EQ(cudaSetDevice(chosen), cudaSuccess);
    for (const int8_t other : {int8_t{1}, int8_t{0}}) {
      work_on({DeviceType::cuda, other});
      EXPECT_EQ(current_device(), chosen) << "after work on " << static_cast<int>(other);
    }
    EXPECT_THROW(empty({int64_t{1} << 45}, {.device = {DeviceType::cuda, 1}}), OutOfMemory);
    EXPECT_EQ(current_device(), chosen) << "after an error";
  }
  std::thread([] {
    work_on({DeviceType::cuda, 1});
    EXPECT_EQ(current_device(), 0) << "a thread that has chosen none has the first";
  }).join();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

}  // namespace
}  // namespace lorry::cuda
