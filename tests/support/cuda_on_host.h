#pragma once

// Enough of CUDA for a generated kernel to be compiled by the host's compiler and run there. Each thread of a block is
// a fiber (makecontext); barriers and exchanges in a warp let the others catch up, so that every thread takes part in
// each, as on a GPU. The source of such a test includes this before anything else.

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __CUDACC__
#define __CUDACC_RTC__
#define __host__
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)

namespace {

struct Index {
  unsigned x = 0;
} threadIdx, blockIdx, blockDim;

struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};

/// The threads of one block, taking turns.
class Block {
 public:
  static Block*& current() {
    static Block* block = nullptr;
    return block;
  }

  void run(unsigned threads, const std::function<void()>& kernel) {
    current() = this;
    kernel_ = &kernel;
    threads_.clear();
    for (unsigned t = 0; t < threads; ++t) {
      auto& thread = *threads_.emplace_back(std::make_unique<Thread>());
      thread.stack.resize(64 << 10);
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.data();
      thread.context.uc_stack.ss_size = thread.stack.size();
      thread.context.uc_link = &main_;
      makecontext(&thread.context, &Block::begin, 0);
    }
    exchanged_.assign(threads, 0);
    // Each thread runs to its next barrier; when all are there, again.
    for (bool left = true; left;) {
      left = false;
      for (unsigned t = 0; t < threads; ++t) {
        if (threads_[t]->ended) continue;
        now_ = t, threadIdx.x = t;
        swapcontext(&main_, &threads_[t]->context);
        left |= !threads_[t]->ended;
      }
    }
  }
  /// Lets every other thread come as far.
  void wait() {
    const unsigned mine = now_;
    swapcontext(&threads_[mine]->context, &main_);
  }
  /// The value of another thread, when every thread has given its own.
  uint64_t exchange(uint64_t mine, unsigned from) {
    exchanged_[now_] = mine;
    wait();
    const uint64_t other = exchanged_[from];
    wait();  // before anybody writes the next
    return other;
  }

 private:
  struct Thread {
    ucontext_t context;
    std::vector<char> stack;
    bool ended = false;
  };
  static void begin() {
    Block& block = *current();
    const unsigned mine = block.now_;
    (*block.kernel_)();
    block.threads_[mine]->ended = true;
  }
  ucontext_t main_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<uint64_t> exchanged_;
  const std::function<void()>* kernel_ = nullptr;
  unsigned now_ = 0;
};

[[maybe_unused]] void __syncthreads() { Block::current()->wait(); }
template <class T>
T exchanged(T x, unsigned from) {
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  bits = Block::current()->exchange(bits, from);
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask) {
  return exchanged(x, threadIdx.x ^ static_cast<unsigned>(mask));
}
template <class T>
T __shfl_sync(unsigned, T x, int lane) {
  return exchanged(x, threadIdx.x / 32 * 32 + static_cast<unsigned>(lane));
}
[[maybe_unused]] int min(int a, int b) { return a < b ? a : b; }
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, const T& x) {
  *to = x;
}
template <class T>
void __stwb(T* to, const T& x) {
  *to = x;
}
[[maybe_unused]] uint32_t __float_as_uint(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
[[maybe_unused]] float __uint_as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
[[maybe_unused]] uint64_t __cvta_generic_to_global(const void* at) { return reinterpret_cast<uint64_t>(at); }
[[maybe_unused]] double rsqrt(double x) { return 1 / std::sqrt(x); }
using std::isfinite;

}  // namespace

/// Runs a kernel whose threads wait for each other.
template <class Kernel, class Arguments>
void run_blocks(Kernel* kernel, const Arguments& arguments, unsigned blocks, unsigned threads) {
  blockDim.x = threads;
  Block block;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) block.run(threads, [&] { kernel(arguments); });
}
/// The same where they do not: one after the other.
template <class Kernel, class Arguments>
void run_threads(Kernel* kernel, const Arguments& arguments, unsigned blocks, unsigned threads) {
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(arguments);
}
