#include "lorry/memory/cpu_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

#include "lorry/base/env.h"
#include "lorry/base/integers.h"
#include "lorry/memory/process_memory.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LORRY_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define LORRY_ADDRESS_SANITIZER 1
#endif

namespace lorry::memory {
namespace {

// AddressSanitizer can check blocks only if each is allocated and freed with its exact size.
#ifdef LORRY_ADDRESS_SANITIZER
constexpr Caching kCaching = Caching::direct;
#else
constexpr Caching kCaching = Caching::on;
#endif

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kPlaces = (256 << 20) / kHugePage;  // see CpuProvider::pages
constexpr int64_t kSpared = 16 << 20;  // left free for the kernel's page tables and the program's own data

/// Takes pages from the system. Work is done when a call returns, so there are no events.
class CpuProvider final : public Provider {
 public:
  void* take(int64_t bytes) override { return kCaching == Caching::direct ? exact(bytes) : pages(bytes); }
  void give_back(void* data, int64_t bytes) noexcept override {
    if (kCaching == Caching::direct) {
      std::free(data);
    } else {
      if (bytes > kSmallSegment) --placed_[place_of(data)];
      unmap(data, span(bytes));
    }
  }
  int64_t discard(void* data, int64_t bytes, int64_t page) noexcept override {
    const auto begin = reinterpret_cast<uintptr_t>(data), unit = static_cast<uintptr_t>(page);
    const uintptr_t first = (begin + unit - 1) / unit * unit,
                    end = (begin + static_cast<uintptr_t>(bytes)) / unit * unit;
    if (first >= end || madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED) != 0) return 0;
    return static_cast<int64_t>(end - first);
  }
  /// The system grants more memory than it has, and kills a process that uses too much. So the available memory is read
  /// before memory is taken; again when an eighth of what was available has been taken since.
  bool has_room(int64_t bytes, int64_t reserved) override {
    if (bytes > unchecked_) {
      const int64_t available = process_memory_available(reserved) - kSpared;
      if (bytes > available) return false;
      unchecked_ = bytes + (available - bytes) / 8;
    }
    unchecked_ -= bytes;
    return true;
  }
  std::string situation(int64_t reserved) const override {
    return fmt::format(", the system leaves {} of {} to this process", process_memory_available(reserved),
                       process_memory_limit());
  }

  void* record(Stream) noexcept override { return nullptr; }
  bool done(Stream, void*) noexcept override { return true; }
  void wait(Stream, void*) noexcept override {}
  void recycle(Stream, void*) noexcept override {}
  bool capturing(Stream) noexcept override { return false; }
  void fill(void* data, unsigned char value, int64_t bytes, Stream) noexcept override {
    std::fill_n(static_cast<unsigned char*>(data), bytes, value);
  }
  bool holds(const void* data, unsigned char value, int64_t bytes, Stream) noexcept override {
    const auto* first = static_cast<const unsigned char*>(data);
    return std::all_of(first, first + bytes, [value](unsigned char byte) { return byte == value; });
  }

 private:
  static void* exact(int64_t bytes) {
    void* data = nullptr;
    return posix_memalign(&data, kLeastUnit, static_cast<size_t>(bytes)) == 0 ? data : nullptr;
  }
  static char* map(int64_t bytes) {
    void* const data =
        mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<char*>(data);
  }
  static void unmap(void* from, int64_t bytes) noexcept {
    if (bytes > 0) munmap(from, static_cast<size_t>(bytes));
  }
  static size_t place_of(const void* data) { return reinterpret_cast<uintptr_t>(data) / kHugePage % kPlaces; }

  /// The address space of a segment: for large ones an odd number of huge pages, the last of which may stay unused.
  /// Then neighbours of equal size begin in different places, up to 128 of them.
  static int64_t span(int64_t bytes) { return bytes > kSmallSegment ? round_up(bytes, kHugePage) | kHugePage : bytes; }

  /// Memory aligned to 2 MB. While at most 128 large segments are in use, a new one does not begin a multiple of 256 MB
  /// from another. If the system has no address space for a second attempt, memory may lie anywhere.
  ///
  /// AMD's first-level caches look for a line where a hash of its address says (Lipp et al., "Take A Way", section 3).
  /// Lines with the same hash remove each other, and so do arrays 256 MB apart, if they are read together: on two
  /// threads of an EPYC, maximum(out, x, y) of 4 M f32 took 0.9 to 1.8 ms, and 1.7 to 2.7 ms with the three 256 MB
  /// apart. The system places mappings mostly next to each other, so the second attempt is rare.
  void* pages(int64_t bytes) {
    const int64_t size = span(bytes);
    char* data = map(size);
    if (data == nullptr) return nullptr;
    const bool is_large = bytes > kSmallSegment;
    const int fewest = is_large ? *std::min_element(placed_.begin(), placed_.end()) : 0;
    const auto suits = [&](const char* at) {
      return reinterpret_cast<uintptr_t>(at) % kHugePage == 0 && (!is_large || placed_[place_of(at)] == fewest);
    };
    if (!suits(data)) {
      const int64_t spare = is_large ? kPlaces * kHugePage : kHugePage;  // somewhere in it is an address that suits
      if (char* const all = map(size + spare)) {
        unmap(data, size);
        data = all + (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
        while (!suits(data)) data += kHugePage;
        unmap(all, data - all);
        unmap(data + size, all + spare - data);
      }
    }
    if (is_large) {
      ++placed_[place_of(data)];
      madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);  // only advice: a kernel without huge pages ignores it
    }
    return data;
  }

  std::array<int, kPlaces> placed_{};  // the large segments in use, by where they begin in 256 MB
  int64_t unchecked_ = 0;              // bytes that may be taken before the available memory is read again
};

int64_t bound_from_environment() {
  constexpr int64_t kMost = int64_t{1} << 50;
  const auto wanted = env::integer("LORRY_CPU_CACHE", 0, kMost);
  return wanted ? *wanted : process_memory_limit() / 4;
}

}  // namespace

constinit std::atomic<CachingAllocator*> detail::g_cpu_allocator{nullptr};

CachingAllocator& detail::make_cpu_allocator() {
  static CachingAllocator& made = *new CachingAllocator(
      std::make_unique<CpuProvider>(), "cpu", kCaching,
      {.unit = kLeastUnit, .thread_budget = 256 << 10, .bound = bound_from_environment(), .pages = {kHugePage, 4096}});
  g_cpu_allocator.store(&made, std::memory_order_release);
  return made;
}

}  // namespace lorry::memory
