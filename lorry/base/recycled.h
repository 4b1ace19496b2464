#pragma once

// For small objects that are created and destroyed in every call, such as a tensor's node. Each thread reuses the
// memory of its last few objects, which takes a third of the instructions of malloc and free.

#include <cstddef>
#include <new>

namespace lorry::detail {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LORRY_SANITIZED true
#elif defined(__has_feature)
#define LORRY_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define LORRY_SANITIZED false
#endif
#if LORRY_SANITIZED
inline constexpr bool kRecycle = false;  // a sanitizer can only detect use after free if the memory is freed
#else
inline constexpr bool kRecycle = true;
#endif
#undef LORRY_SANITIZED

/// Memory that a thread keeps for its next objects of one class. It has no destructor, so it is still valid for objects
/// that are released after the thread's other thread-local objects.
struct RecycledMemory {
  struct Free {
    Free* next;
  };
  Free* first;
  int count;
  int limit;   ///< of `count`; 0 until the thread's first object is deleted, and when the thread is ending
  bool ended;  ///< the thread is ending
};

/// Base class of T. Provides its operators new and delete.
template <class T>
class Recycled {
 public:
  static void* operator new(size_t bytes) {
    if (RecycledMemory& list = t_list; kRecycle && list.first != nullptr && bytes == sizeof(T)) [[likely]] {
      Free* memory = list.first;
      list.first = memory->next;
      --list.count;
      return memory;
    }
    return ::operator new(bytes);
  }
  static void operator delete(void* memory, size_t bytes) noexcept {
    if (RecycledMemory& list = t_list; kRecycle && list.count < list.limit && bytes == sizeof(T)) [[likely]] {
      list.first = new (memory) Free{list.first};
      ++list.count;
      return;
    }
    give_back(memory);
  }

 private:
  using Free = RecycledMemory::Free;
  static constexpr int kMost = 64;
  struct AtThreadEnd {
    ~AtThreadEnd() {
      t_list.limit = 0;
      t_list.ended = true;
      while (Free* memory = t_list.first) {
        t_list.first = memory->next;
        ::operator delete(memory);
      }
    }
  };

  [[gnu::noinline]] static void give_back(void* memory) noexcept {
    ::operator delete(memory);
    if (!kRecycle || t_list.limit != 0 || t_list.ended) return;
    static thread_local const AtThreadEnd at_thread_end;
    static_cast<void>(&at_thread_end);
    t_list.limit = kMost;
  }

  static inline constinit thread_local RecycledMemory t_list{nullptr, 0, 0, false};
};

}  // namespace lorry::detail
