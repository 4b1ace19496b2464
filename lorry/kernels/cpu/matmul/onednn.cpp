#include "lorry/kernels/cpu/matmul/onednn.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace lorry::kernels::cpu::onednn {
namespace {

/// Threads count themselves in different slots, so that they do not share a cache line.
struct alignas(64) Slot {
  std::atomic<int32_t> inside;
};

constexpr uint32_t kSlots = 64;
constinit Slot g_slots[kSlots] = {};  // no destructor: used until the process has ended
constinit std::atomic<bool> g_closed = false;
constinit std::atomic<uint32_t> g_next_slot = 0;
constinit thread_local Slot* t_slot = nullptr;

Slot& slot() {
  if (t_slot == nullptr) t_slot = &g_slots[g_next_slot.fetch_add(1, std::memory_order_relaxed) % kSlots];
  return *t_slot;
}

/// The kinds of products after whose first one the handler was registered.
constinit std::atomic<uint32_t> g_kinds[(1 << 17) / 32] = {};

/// Waits for at most a second, because exit may have been called inside a call, by a signal handler.
void close() {
  g_closed.store(true);
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (Slot& s : g_slots)
    while (s.inside.load() != 0 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
}

}  // namespace

// Sequentially consistent on both sides: either the call sees that oneDNN is closed, or close() sees the call.
Call::Call() : inside_(true) {
  slot().inside.fetch_add(1);
  if (g_closed.load()) [[unlikely]] {
    slot().inside.fetch_sub(1);
    inside_ = false;
  }
}

Call::~Call() {
  if (inside_) slot().inside.fetch_sub(1);
}

void close_at_exit(int64_t m, int64_t n, int64_t k, uint32_t flags) {
  const auto power = [](int64_t size) { return std::min(static_cast<uint32_t>(std::bit_width(uint64_t(size))), 15u); };
  const uint32_t kind = power(m) | power(n) << 4 | power(k) << 8 | flags << 12, bit = 1u << kind % 32;
  std::atomic<uint32_t>& known = g_kinds[kind / 32];
  if ((known.load(std::memory_order_relaxed) & bit) != 0) [[likely]]
    return;
  if ((known.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) std::atexit(close);
}

}  // namespace lorry::kernels::cpu::onednn
