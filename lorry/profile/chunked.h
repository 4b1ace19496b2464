#pragma once

// A list that one thread appends to while others read what is there: elements never move. A thread's log.

#include <atomic>
#include <cstddef>
#include <memory>

namespace lorry::profile {

template <class T>
class Chunked {
 public:
  static constexpr size_t kChunk = 4096;

  Chunked() = default;
  ~Chunked() {
    for (Chunk* chunk = first_.load(std::memory_order_relaxed); chunk != nullptr;)
      delete std::exchange(chunk, chunk->next.load(std::memory_order_relaxed));
  }
  Chunked(const Chunked&) = delete;
  Chunked& operator=(const Chunked&) = delete;

  /// Only by the thread that owns the list. Returns whether there was memory for it.
  bool push(const T& value) noexcept {
    if (used_ == kChunk || last_ == nullptr) [[unlikely]]
      if (!grow()) return false;
    last_->values[used_++] = value;
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    return true;
  }
  size_t size() const { return count_.load(std::memory_order_acquire); }

  /// Calls f(value) for the elements that are there now.
  template <class F>
  void for_each(F&& f) const {
    size_t left = size();
    for (const Chunk* chunk = first_.load(std::memory_order_acquire); left > 0;
         chunk = chunk->next.load(std::memory_order_acquire)) {
      const size_t here = left < kChunk ? left : kChunk;
      for (size_t i = 0; i < here; ++i) f(chunk->values[i]);
      left -= here;
    }
  }

 private:
  struct Chunk {
    T values[kChunk];
    std::atomic<Chunk*> next{nullptr};
  };
  bool grow() noexcept {
    Chunk* const made = new (std::nothrow) Chunk;
    if (made == nullptr) return false;
    (last_ == nullptr ? first_ : last_->next).store(made, std::memory_order_release);
    last_ = made;
    used_ = 0;
    return true;
  }

  std::atomic<Chunk*> first_{nullptr};
  Chunk* last_ = nullptr;
  size_t used_ = 0;
  std::atomic<size_t> count_{0};
};

}  // namespace lorry::profile
