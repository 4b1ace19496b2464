#pragma once

// A shared pointer whose count of owners lies in the object: one word, no control block. The count is atomic: an object
// may be released on any thread, and the last release happens after every other owner's last use.

#include <atomic>
#include <cstdint>
#include <utility>

namespace lorry {

/// Base class of counted objects. T::destroy() is called when the last owner releases the object.
class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  uint32_t owners() const { return owners_.load(std::memory_order_acquire); }

 private:
  template <class T>
  friend class IntrusivePtr;
  std::atomic<uint32_t> owners_{0};
};

template <class T>
class IntrusivePtr {
 public:
  constexpr IntrusivePtr() = default;
  constexpr IntrusivePtr(std::nullptr_t) {}
  explicit IntrusivePtr(T* p) : p_(p) {
    // No other thread can refer to an object without owners, so the first owner needs no atomic increment.
    if (p_ && p_->owners_.load(std::memory_order_relaxed) == 0) {
      p_->owners_.store(1, std::memory_order_relaxed);
    } else {
      retain();
    }
  }
  IntrusivePtr(const IntrusivePtr& other) : p_(other.p_) { retain(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> IntrusivePtr(const IntrusivePtr<U>& other) : p_(other.get()) { retain(); }
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~IntrusivePtr() { release(); }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const IntrusivePtr& a, const IntrusivePtr& b) { return a.p_ == b.p_; }

 private:
  void retain() {
    if (p_) p_->owners_.fetch_add(1, std::memory_order_relaxed);
  }
  void release() {
    if (!p_) return;
    // A sole owner needs no atomic write: no other thread can reach the count.
    if (p_->owners_.load(std::memory_order_acquire) == 1 || p_->owners_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      p_->destroy();
  }

  T* p_ = nullptr;
};

template <class T, class... Args>
IntrusivePtr<T> make_counted(Args&&... args) {
  return IntrusivePtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace lorry
