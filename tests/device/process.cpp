// What a process does to the runtime: it ends while objects and threads still compute, it forks, and it is refused
// threads. Each is tried in a process of its own, named by a word:
//
//   static_object     computes in the destructor of a static object, and in one of a thread-local object of the main
//                     thread
//   detached_thread   ends while other threads compute
//   fork              computes on several threads, forks, and computes in the child
//   address_space     asks for more threads than there is address space for
//   processes         asks for more threads than RLIMIT_NPROC allows
//
// Status 0: all values were right; 77: this cannot be tried here.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"

namespace {

using namespace lorry;

/// Products of every kind and loops on all threads, whose results are whole numbers: right, or not. Ends the process
/// where they are not.
void compute(const char* where) {
  const auto check = [&](const char* what, const Tensor& x, double expected) {
    if (x.to(kF64).eq(expected).all().item<bool>()) return;
    std::printf("%s: a wrong %s\n", where, what);
    std::fflush(stdout);
    std::_Exit(1);
  };
  for (const DType dtype : {kF32, kBF16, kF64, kI64}) {
    const Tensor a = ones({256, 128}, {dtype}), b = full({128, 192}, 2, {dtype});
    check("product", a.matmul(b), 256);
    check("transposed product", b.t().matmul(a.t()), 256);
    check("vector product", b.t().matmul(ones({128, 1}, {dtype})), 256);
  }
  const Tensor x = full({300'000}, 3.0f);
  check("sum", x.add(1).mul(2).sum(), 2'400'000);
  check("softmax", zeros({512, 256}).softmax(1), 1.0 / 256);
}

struct ComputesWhenDestroyed {
  const char* where = nullptr;
  ~ComputesWhenDestroyed() {
    if (where) compute(where);
  }
};

ComputesWhenDestroyed before_main;
thread_local ComputesWhenDestroyed of_the_thread;

int static_object() {
  of_the_thread.where = "thread-local object";
  before_main.where = "static object made before main";
  compute("main");
  static ComputesWhenDestroyed later;
  later.where = "static object made after the first product";
  return 0;
}

int detached_thread() {
  compute("main");
  for (int i = 0; i < 3; ++i)
    std::thread([] {
      while (true) compute("detached thread");
    }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  return 0;
}

int fork_and_compute() {
  compute("before fork");
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that waits for threads that stayed behind
    compute("child");
    bool right = cpu::threads() == 1;
    std::thread([&] {
      right = right && cpu::threads() == 4;
      compute("new thread of the child");
    }).join();
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      compute("grandchild");
      std::_Exit(0);
    }
    int status = 1;
    waitpid(grandchild, &status, 0);
    std::_Exit(right && status == 0 ? 0 : 2);
  }
  int status = 1;
  waitpid(child, &status, 0);
  compute("parent");
  if (status != 0)
    std::printf("the child ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return status == 0 ? 0 : 1;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kLimitsHold = false;  // its shadow takes terabytes of addresses, and its search for leaks a process
#else
constexpr bool kLimitsHold = true;
#endif

int with_fewer_threads(const char* limit) {
  if (!kLimitsHold) return 77;
  constexpr int kWanted = 64;
  cpu::set_threads(1);
  compute("one thread");
  rlimit most{};
  if (std::strcmp(limit, "address_space") == 0) {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    most.rlim_cur = most.rlim_max = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{200} << 20);
    if (setrlimit(RLIMIT_AS, &most) != 0) return 77;
  } else {
    // The limit does not hold for root, and counts all that a user runs: a user of this process alone is needed.
    const auto someone = static_cast<uid_t>(100'000 + getpid());
    if (geteuid() != 0 || setresuid(someone, someone, someone) != 0) return 77;
    most.rlim_cur = most.rlim_max = 6;
    if (setrlimit(RLIMIT_NPROC, &most) != 0) return 77;
  }
  cpu::set_threads(kWanted);
  for (int i = 0; i < 20; ++i) compute(limit);
  std::printf("%d of %d threads\n", cpu::threads(), kWanted);
  return cpu::threads() > 1 && cpu::threads() < kWanted ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  cpu::set_threads(4);
  if (what == "static_object") return static_object();
  if (what == "detached_thread") return detached_thread();
  if (what == "fork") return fork_and_compute();
  if (what == "address_space" || what == "processes") return with_fewer_threads(what.c_str());
  std::printf("expected static_object, detached_thread, fork, address_space or processes\n");
  return 1;
}
