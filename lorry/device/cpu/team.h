#pragma once

// The thread team: the only way in which CPU kernels use several cores. It is made of OpenMP's threads, which oneDNN
// uses too. Invariant: results do not depend on how work is split. Kernels that combine partial results split into
// chunks of a fixed size (`for_each_chunk`), never by the number of threads.

#include <cstdint>
#include <type_traits>

namespace lorry::cpu {

/// The number of threads that parallel loops on this thread use: LORRY_THREADS, or the number of processors that this
/// process may run on. Fewer if the system has refused to start that many (RLIMIT_NPROC, RLIMIT_AS, a control group).
/// After fork, the child's first thread uses 1 if it ran parallel loops before the fork, because the other threads of
/// its team do not exist in the child. New threads of the child use the full number.
int threads();
/// Sets the number for the process; threads that the system refused earlier are tried again. Throws ValueError unless
/// 1 <= count <= 1024.
void set_threads(int count);

/// In this scope, libraries that use OpenMP (oneDNN) run on the calling thread only. Kernels split the work themselves,
/// in a way that does not depend on the number of threads.
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

/// Calls body(begin, end) for the parts of a partition of [0, count). Runs on the calling thread only if count <= grain
/// or if called inside a parallel loop. The first exception thrown by a body is rethrown.
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

/// Calls body(chunk, begin, end) for the chunks of `size` elements that cover [0, count). The chunks do not depend on
/// the number of threads.
template <class F>
void for_each_chunk(int64_t count, int64_t size, F&& body) {
  const int64_t chunks = (count + size - 1) / size;
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) body(c, c * size, c * size + size < count ? c * size + size : count);
  });
}

}  // namespace lorry::cpu
