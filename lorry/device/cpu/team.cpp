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

/// The threads that OpenMP has for the loops of this thread, itself included. OpenMP starts more when a larger team is
/// asked for, and would end those that a smaller team has no use for: to start them again costs a hundred times what a
/// loop does (4 and 2 threads in turn on two cores: 330 us a pair instead of 43). So a team once made is asked for
/// again, and members without a share return at once.
constinit thread_local int t_team = 1;
/// This thread has forked: its OpenMP team stayed behind in the parent process, and a larger team than one would wait
/// for it for ever.
constinit thread_local bool t_forked = false;
/// The largest team that this thread could have when one could not be started whole. Until set_threads is called again,
/// it does not try.
struct Refusal {
  int most;
  uint32_t settings;  ///< calls of set_threads before it
};
constinit thread_local Refusal t_refusal = {kMaxThreads, 0};
constinit std::atomic<uint32_t> g_settings = 0;
/// One thread at a time starts others, so that none starts those that another has just tried.
constinit std::mutex g_turn;

/// The stack that OpenMP gives to its threads, or 0 for the system's default.
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

/// A thread that is started to see whether it can be.
struct Trial {
  pthread_t thread;
  pid_t id;
  std::latch* end;
};

/// How many of `wanted` threads the system lets this process start now: they are all there at once before any ends, and
/// have gone entirely, in the kernel's count too, when this returns.
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
      new (&g_turn) std::mutex;  // a thread that stayed behind may have held it
      if (t_team == 1) return;
      t_forked = true;
      t_team = 1;
      omp_set_num_threads(1);  // for others who use OpenMP on this thread
    });
  });
}

/// Lets OpenMP, which ends the process where it cannot start a thread, start the team for this thread's loops: of
/// `wanted` threads, or of as many as can be had.
void grow_team(int wanted) {
  const std::scoped_lock lock(g_turn);
  forget_team_in_children();
  const int possible = t_team + startable(wanted - t_team);
  int present = 1;
#pragma omp parallel num_threads(possible)
  {
    if (omp_get_thread_num() == 0) present = omp_get_num_threads();  // fewer than asked for under OMP_THREAD_LIMIT
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
