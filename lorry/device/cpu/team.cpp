#include "lorry/device/cpu/team.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <new>

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

/// The number of threads in this thread's OpenMP team, itself included. OpenMP starts threads when a larger team is
/// requested, and ends threads when a smaller one is. Restarting them costs far more than a loop (alternating 4 and 2
/// threads on two cores: 330 us per pair instead of 43). So every loop requests the whole team; members without work
/// return at once.
constinit thread_local int t_team = 1;
/// This thread came out of fork, so its OpenMP team exists in the parent process only. A team larger than one would
/// wait for those threads for ever.
constinit thread_local bool t_forked = false;
/// The size of the largest team that could be started, after the system refused a larger one. A larger one is not tried
/// again until set_threads is called.
struct Refusal {
  int most;
  uint32_t settings;  ///< the number of calls of set_threads before the refusal
};
constinit thread_local Refusal t_refusal = {kMaxThreads, 0};
constinit std::atomic<uint32_t> g_settings = 0;
/// Held while threads are started, so that two threads do not count the same free capacity.
constinit std::mutex g_turn;

/// The stack size of OpenMP's threads; 0 for the system's default.
size_t stack_bytes() {
  for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"}) {
    const auto value = env::text(name);
    if (!value) continue;
    char* rest = nullptr;
    const unsigned long long number = std::strtoull(value->c_str(), &rest, 10);
    while (std::isspace(static_cast<unsigned char>(*rest))) ++rest;
    const int unit = std::toupper(static_cast<unsigned char>(*rest));
    if (rest != value->c_str())
      return static_cast<size_t>(number) << (unit == 'B' ? 0 : unit == 'M' ? 20 : unit == 'G' ? 30 : 10);
  }
  return 0;
}

/// A thread that is started only to test whether the system allows it.
struct Trial {
  pthread_t thread;
  pid_t id;
  std::latch* end;
};

/// How many of `wanted` threads the system lets this process start now. Starts them all at the same time. When this
/// returns they have ended, in the kernel's count of threads too.
int startable(int wanted) {
  static const size_t stack = stack_bytes();
  std::latch end{1};
  const std::unique_ptr<Trial[]> trials(new (std::nothrow) Trial[static_cast<size_t>(wanted)]);
  pthread_attr_t attributes;
  if (trials == nullptr || pthread_attr_init(&attributes) != 0) return 0;
  if (stack != 0) pthread_attr_setstacksize(&attributes, stack);
  const auto run = [](void* data) -> void* {
    auto* const trial = static_cast<Trial*>(data);
    trial->id = gettid();
    trial->end->wait();
    return nullptr;
  };
  int started = 0;
  for (; started < wanted; ++started) {
    trials[started].end = &end;
    if (pthread_create(&trials[started].thread, &attributes, run, &trials[started]) != 0) break;
  }
  end.count_down();
  for (int i = 0; i < started; ++i) {
    pthread_join(trials[i].thread, nullptr);
    for (int turns = 0; turns < 100'000 && syscall(SYS_tgkill, getpid(), trials[i].id, 0) == 0; ++turns) sched_yield();
  }
  pthread_attr_destroy(&attributes);
  return started;
}

void forget_team_in_children() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      new (&g_turn) std::mutex;  // a thread that exists only in the parent may hold it
      if (t_team == 1) return;
      t_forked = true;
      t_team = 1;
      omp_set_num_threads(1);  // for other code that uses OpenMP on this thread
    });
  });
}

/// Makes OpenMP start this thread's team with `wanted` threads, or as many as the system allows. OpenMP would end the
/// process if it could not start a thread, so the number is tested first.
void grow_team(int wanted) {
  const std::scoped_lock lock(g_turn);
  forget_team_in_children();
  const int possible = t_team + startable(wanted - t_team);
  int present = 1;
#pragma omp parallel num_threads(possible)
  {
    if (omp_get_thread_num() == 0) present = omp_get_num_threads();  // OMP_THREAD_LIMIT may lower it
  }
  t_team = present;
  if (present < wanted) t_refusal = {present, g_settings.load(std::memory_order_relaxed)};
}

}  // namespace

int threads() {
  if (t_forked) return 1;
  const int wanted = count().load(std::memory_order_relaxed);
  return t_refusal.settings == g_settings.load(std::memory_order_relaxed) ? std::min(wanted, t_refusal.most) : wanted;
}

void set_threads(int wanted) {
  require<ValueError>(wanted >= 1 && wanted <= kMaxThreads, "set_threads: count out of range; got {}; expected 1 to {}",
                      wanted, kMaxThreads);
  count().store(wanted, std::memory_order_relaxed);
  g_settings.fetch_add(1, std::memory_order_relaxed);
  if (!t_forked) omp_set_num_threads(wanted);
}

SerialScope::SerialScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
SerialScope::~SerialScope() { omp_set_num_threads(before_); }

void detail::parallel(int64_t count, int64_t grain, void* context, Body body) {
  const int most = threads();
  const int64_t wanted = std::min<int64_t>(most, (count + grain - 1) / grain);
  if (wanted > t_team && !omp_in_parallel()) grow_team(static_cast<int>(wanted));
  const int team = static_cast<int>(std::min<int64_t>(wanted, t_team));
  if (team <= 1 || omp_in_parallel()) {
    body(context, 0, count);
    return;
  }
  std::exception_ptr failure;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
#pragma omp parallel num_threads(std::min(most, t_team))
  {
    const int index = omp_get_thread_num(), present = omp_get_num_threads();
    if (index == 0) t_team = present;
    const int64_t members = std::min(team, present), share = count / members, extra = count % members;
    const int64_t begin = index * share + std::min<int64_t>(index, extra),
                  end = index < members ? begin + share + (index < extra ? 1 : 0) : begin;
    try {
      if (begin < end) body(context, begin, end);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lorry::cpu
