// A program that uses the second GPU alone leaves the first one without a context, which would take half a gigabyte of
// its memory. In a process of its own: whatever made a context before would hide who makes one here.
//
// Status 0: there was none after any step; 77: this machine has fewer than two GPUs.

#include <dlfcn.h>

#include <cstdio>
#include <functional>
#include <thread>

#include "lorry/device/device.h"
#include "lorry/memory/memory.h"
#include "lorry/ops/ops.h"

namespace {

using namespace lorry;

constexpr Device kSecond{DeviceType::cuda, 1};

/// Whether the first GPU has a context of this process. The driver itself is asked, which makes none.
bool first_has_context() {
  using GetState = int (*)(int device, unsigned* flags, int* active);
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  static const auto get_state =
      driver == nullptr ? nullptr : reinterpret_cast<GetState>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int active = 0;
  return get_state == nullptr || get_state(0, &flags, &active) != 0 || active != 0;
}

void run(const char* what, const std::function<void()>& step) {
  // A thread's first call matters, so each step is made by a thread that has no context, and by one that may.
  std::thread(step).join();
  step();
  if (!first_has_context()) return;
  std::printf("the first GPU has a context after %s\n", what);
  std::fflush(stdout);
  std::_Exit(1);
}

int second_alone() {
  run("the devices were counted", [] { device::info(kSecond); });
  run("a copy to the device", [] { ones({1000}, {.device = kCPU}).to(kSecond); });
  run("a copy of many chunks", [] { ones({10 << 20}, {.device = kCPU}).to(kSecond); });
  run("pinned memory", [] { ones({3 << 20}, {.device = kCPU}).pin_memory().to(kSecond, true); });
  run("kernels and their answers", [] {
    const Tensor x = ones({256, 256}, {.device = kSecond});
    x.add(1).sum().item<float>();
    x.gt(0).nonzero();
  });
  run("matrix products", [] {
    const Tensor x = ones({256, 256}, {.device = kSecond});
    x.matmul(x).sum().item<float>();
  });
  const Event start(kSecond, true), end(kSecond, true);
  const OwnedStream stream(kSecond);
  run("events were recorded", [&] {
    start.record(stream);
    end.record(stream);
  });
  run("events were asked", [&] { end.done(); });
  run("events were waited for", [&] { end.synchronize(); });
  run("events were compared", [&] { end.milliseconds_since(start); });
  run("events were made and destroyed", [] { const Event event(kSecond); });
  run("memory was used on a second stream", [&] {
    const Tensor x = ones({1 << 20}, {.device = kSecond});
    x.record_stream(stream);
  });
  run("the cache was emptied", [] { memory::empty_cache(kSecond); });
  run("a wait for the device", [] { device::synchronize(kSecond); });
  return 0;
}

}  // namespace

int main() {
  const int count = device::count(DeviceType::cuda);
  if (count >= 2) return second_alone();
  std::printf("needs two GPUs; this machine has %d\n", count);
  return 77;
}
