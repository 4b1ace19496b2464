#include "lorry/device/cpu/team.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "lorry/base/env.h"
#include "lorry/base/error.h"

namespace lorry::cpu {
namespace {

constexpr int kMaxThreads = 1024;

int initial_threads() {
  if (const auto wanted = env::integer("LORRY_THREADS", 1, kMaxThreads)) return static_cast<int>(*wanted);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? std::max(1, CPU_COUNT(&allowed)) : 1;
}

std::atomic<int>& count() {
  static std::atomic<int> threads{initial_threads()};
  return threads;
}

}  // namespace

int threads() { return count().load(std::memory_order_relaxed); }

void set_threads(int wanted) {
  require<ValueError>(wanted >= 1 && wanted <= kMaxThreads, "set_threads: count out of range; got {}; expected 1 to {}", wanted, kMaxThreads);
  count().store(wanted, std::memory_order_relaxed);
  omp_set_num_threads(wanted);
}

SerialScope::SerialScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
SerialScope::~SerialScope() { omp_set_num_threads(before_); }

void detail::parallel(int64_t count, int64_t grain, void* context, Body body) {
  const int64_t team = std::min<int64_t>(threads(), (count + grain - 1) / grain);
  if (team <= 1 || omp_in_parallel()) {
    body(context, 0, count);
    return;
  }
  std::exception_ptr failure;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
#pragma omp parallel num_threads(static_cast<int>(team))
  {
    const int64_t index = omp_get_thread_num(), members = omp_get_num_threads();
    const int64_t share = count / members, extra = count % members;
    const int64_t begin = index * share + std::min(index, extra), end = begin + share + (index < extra ? 1 : 0);
    try {
      if (begin < end) body(context, begin, end);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lorry::cpu
