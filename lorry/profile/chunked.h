#pragma once

// A list that one thread appends to while others read what is there: elements never move. A thread's log.

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace lorry::profile {

template <class T>
class Chunked {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  /// Two megabytes: a page of a large kind, so that a program is not stopped by a page fault every 64 elements.
  static constexpr size_t kChunkBytes = size_t{2} << 20;
  static constexpr size_t kChunk = (kChunkBytes - 64) / sizeof(T);

  Chunked() = default;
  ~Chunked() {
    for (Chunk* chunk = first_.load(std::memory_order_relaxed); chunk != nullptr;)
      munmap(std::exchange(chunk, chunk->next.load(std::memory_order_relaxed)), kChunkBytes);
  }
  Chunked(const Chunked&) = delete;
  Chunked& operator=(const Chunked&) = delete;

  // By the thread that owns the list:

  /// The next element, default-initialised; null if there is no memory for it. Others see it after publish().
  T* append() noexcept {
    if (used_ == kChunk || last_ == nullptr) [[unlikely]]
      if (!grow()) return nullptr;
    ++appended_;
    return new (last_->at(used_++)) T;
  }
  /// Others see all elements so far.
  void publish() noexcept { count_.store(appended_, std::memory_order_release); }
  /// Appends a copy and publishes it. Returns whether there was memory for it.
  bool push(const T& value) noexcept {
    T* const at = append();
    if (at == nullptr) return false;
    *at = value;
    publish();
    return true;
  }
  /// Takes the memory of the first elements now: a page of a large kind takes 0.2 ms.
  void reserve() noexcept {
    if (last_ == nullptr) grow();
  }
  /// The number of elements, those that others do not see yet included.
  size_t appended() const { return appended_; }

  // By any thread:

  size_t size() const { return count_.load(std::memory_order_acquire); }
  /// Calls f(value) for the elements that are there now.
  template <class F>
  void for_each(F&& f) const {
    size_t left = size();
    for (Chunk* chunk = first_.load(std::memory_order_acquire); left > 0;
         chunk = chunk->next.load(std::memory_order_acquire)) {
      const size_t here = left < kChunk ? left : kChunk;
      for (size_t i = 0; i < here; ++i) f(*std::launder(reinterpret_cast<const T*>(chunk->at(i))));
      left -= here;
    }
  }

 private:
  struct Chunk {
    alignas(64) std::atomic<Chunk*> next{nullptr};
    alignas(64) std::byte memory[kChunk * sizeof(T)];

    void* at(size_t i) { return memory + i * sizeof(T); }
  };
  /// Aligned to its size: more is mapped, and what is too much is given back.
  static Chunk* map_chunk() noexcept {
    void* const mapped =
        mmap(nullptr, 2 * kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    char* const first = static_cast<char*>(mapped);
    const size_t before = (kChunkBytes - reinterpret_cast<uintptr_t>(first) % kChunkBytes) % kChunkBytes;
    if (before > 0) munmap(first, before);
    munmap(first + before + kChunkBytes, kChunkBytes - before);
    madvise(first + before, kChunkBytes, MADV_HUGEPAGE);
    return new (first + before) Chunk;  // its elements stay as they are
  }
  bool grow() noexcept {
    static_assert(sizeof(Chunk) <= kChunkBytes);
    Chunk* const made = map_chunk();
    if (made == nullptr) return false;
    (last_ == nullptr ? first_ : last_->next).store(made, std::memory_order_release);
    last_ = made;
    used_ = 0;
    return true;
  }

  std::atomic<Chunk*> first_{nullptr};
  Chunk* last_ = nullptr;
  size_t used_ = 0, appended_ = 0;
  std::atomic<size_t> count_{0};
};

}  // namespace lorry::profile
