#pragma once

// The thread team: the one way in which CPU kernels use several cores (OpenMP underneath, so that oneDNN shares the
// team). Invariant: how work is split never changes a result. Kernels that combine partial results split into chunks of
// a fixed size (`for_each_chunk`), never by the number of threads.

#include <cstdint>
#include <type_traits>

namespace lorry::cpu {

/// The number of threads that parallel loops use on this thread: LORRY_THREADS, or the processors this process may run
/// on. Fewer, once the system has refused to start so many (RLIMIT_NPROC, RLIMIT_AS, a control group). In a process
/// made by fork, 1 on the thread that forked if it had run loops on several threads before: they stayed behind. Its
/// other threads use as many as ever.
int threads();
/// Sets it for the process, and forgets what the system has refused. Throws ValueError unless 1 <= count <= 1024.
void set_threads(int count);

/// A scope in which libraries that use the same OpenMP team (oneDNN) run on the calling thread alone: kernels split the
/// work themselves, in ways that do not depend on the number of threads.
class SerialScope {
 public:
  SerialScope();
  ~SerialScope();
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;

 private:
  int before_;
};

namespace detail {
using Body = void (*)(void* context, int64_t begin, int64_t end);
void parallel(int64_t count, int64_t grain, void* context, Body body);
}  // namespace detail

/// Calls body(begin, end) over a partition of [0, count), on the calling thread alone when count <= grain or when
/// already inside a parallel loop. The first exception thrown by a body is rethrown here.
template <class F>
void parallel_for(int64_t count, int64_t grain, F&& body) {
  if (count <= grain) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  detail::parallel(count, grain, const_cast<void*>(static_cast<const void*>(&body)),
                   [](void* context, int64_t begin, int64_t end) {
                     (*static_cast<std::remove_reference_t<F>*>(context))(begin, end);
                   });
}

/// Calls body(chunk, begin, end) for the chunks of `size` elements that cover [0, count): the same chunks whatever the
/// number of threads.
template <class F>
void for_each_chunk(int64_t count, int64_t size, F&& body) {
  const int64_t chunks = (count + size - 1) / size;
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) body(c, c * size, c * size + size < count ? c * size + size : count);
  });
}

}  // namespace lorry::cpu
