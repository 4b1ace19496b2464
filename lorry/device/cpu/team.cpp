#include "lorry/device/cpu/team.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <latch>
#include <mutex>
#include <vector>

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

/// The threads that OpenMP has for the loops of this thread, itself included. OpenMP starts more when a larger team is
/// asked for, and would end those that a smaller team has no use for: to start them again costs a hundred times what a
/// loop does (4 and 2 threads in turn on two cores: 330 us a pair instead of 35). So a team once made is asked for
/// again, and members without a share return at once.
constinit thread_local int t_team = 1;
/// This thread has forked: its OpenMP team stayed behind in the parent process, and a larger team than one would wait
/// for it for ever.
constinit thread_local bool t_forked = false;
/// The largest team that the system allowed when one could not be started whole. Until set_threads is called, nobody
/// tries again.
constinit std::atomic<int> g_allowed = kMaxThreads;

/// The stack that OpenMP gives to its threads, or 0 for the system's default.
size_t stack_bytes() {
  for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"}) {
    const auto value = env::text(name);
    if (!value) continue;
    char* rest = nullptr;
    const unsigned long long number = std::strtoull(value->c_str(), &rest, 10);
    while (std::isspace(static_cast<unsigned char>(*rest))) ++rest;
    const int unit = std::toupper(static_cast<unsigned char>(*rest));
    if (rest != value->c_str()) return static_cast<size_t>(number) << (unit == 'B' ? 0 : unit == 'M' ? 20 : unit == 'G' ? 30 : 10);
  }
  return 0;
}

/// How many of `wanted` threads the system lets this process start now. They are all there at once before any of them
/// ends.
int startable(int wanted) {
  static const size_t stack = stack_bytes();
  std::latch enough{1};
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return 0;
  if (stack != 0) pthread_attr_setstacksize(&attributes, stack);
  std::vector<pthread_t> threads;
  threads.reserve(static_cast<size_t>(wanted));
  const auto wait = [](void* latch) -> void* {
    static_cast<std::latch*>(latch)->wait();
    return nullptr;
  };
  for (pthread_t thread; static_cast<int>(threads.size()) < wanted && pthread_create(&thread, &attributes, wait, &enough) == 0;) threads.push_back(thread);
  enough.count_down();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return static_cast<int>(threads.size());
}

void forget_team_in_children() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      if (t_team == 1) return;
      t_forked = true;
      t_team = 1;
      omp_set_num_threads(1);  // for others who use OpenMP on this thread
    });
  });
}

/// Makes sure that OpenMP, which ends the process where it cannot start a thread, can have a team of that size; or of a
/// smaller one, which is returned.
int prepare_team(int wanted) {
  if (wanted > t_team) {
    forget_team_in_children();
    const int possible = t_team + startable(wanted - t_team);
    if (possible < wanted) g_allowed.store(wanted = possible, std::memory_order_relaxed);
  }
  return wanted;
}

}  // namespace

int threads() { return t_forked ? 1 : std::min(count().load(std::memory_order_relaxed), g_allowed.load(std::memory_order_relaxed)); }

void set_threads(int wanted) {
  require<ValueError>(wanted >= 1 && wanted <= kMaxThreads, "set_threads: count out of range; got {}; expected 1 to {}", wanted, kMaxThreads);
  count().store(wanted, std::memory_order_relaxed);
  g_allowed.store(kMaxThreads, std::memory_order_relaxed);
  if (!t_forked) omp_set_num_threads(wanted);
}

SerialScope::SerialScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
SerialScope::~SerialScope() { omp_set_num_threads(before_); }

void detail::parallel(int64_t count, int64_t grain, void* context, Body body) {
  const int most = threads();
  const int64_t wanted = std::min<int64_t>(most, (count + grain - 1) / grain);
  const int team = wanted <= 1 || omp_in_parallel() ? 1 : prepare_team(static_cast<int>(wanted));
  if (team == 1) {
    body(context, 0, count);
    return;
  }
  std::exception_ptr failure;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
#pragma omp parallel num_threads(std::min(most, std::max(team, t_team)))
  {
    const int index = omp_get_thread_num(), present = omp_get_num_threads();
    if (index == 0) t_team = present;  // fewer than asked for under OMP_THREAD_LIMIT
    const int64_t members = std::min(team, present), share = count / members, extra = count % members;
    const int64_t begin = index * share + std::min<int64_t>(index, extra), end = index < members ? begin + share + (index < extra ? 1 : 0) : begin;
    try {
      if (begin < end) body(context, begin, end);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lorry::cpu
