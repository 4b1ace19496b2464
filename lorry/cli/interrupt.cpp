#include "lorry/cli/interrupt.h"

#include <csignal>
#include <cstdint>
#include <ctime>

namespace lorry::cli {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;  // the system saves vector registers there, up to 11 KiB

volatile std::sig_atomic_t g_raised = 0;  // the last signal
timespec g_first;                         // time of the first signal
constexpr int64_t kSamePressNs = 500'000'000;
struct sigaction g_before[2];
constexpr int kSignals[2] = {SIGINT, SIGTERM};

/// Uses only functions that POSIX allows in a handler.
void handle(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (g_raised == 0) {
    g_first = now;
  } else if (int64_t{now.tv_sec - g_first.tv_sec} * 1'000'000'000 + (now.tv_nsec - g_first.tv_nsec) > kSamePressNs) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  g_raised = signal;
}

}  // namespace

// For a large inner size, oneDNN's sgemm kernels point the stack register into a workspace on the heap. A handler on
// the interrupted stack would overwrite memory below that workspace, so handlers get a stack of their own.
Interrupt::Interrupt() : stack_(new std::byte[kStackBytes]) {
  stack_t stack{};
  stack.ss_sp = stack_.get();
  stack.ss_size = kStackBytes;
  sigaltstack(&stack, &stack_before_);
  g_raised = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  for (int i = 0; i < 2; ++i) {
    sigaction(kSignals[i], nullptr, &g_before[i]);
    if (g_before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  if (raised()) {
    stack_.release();  // the handlers go on using it
    return;
  }
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &g_before[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
}

bool Interrupt::raised() const { return g_raised != 0; }
const char* Interrupt::name() const { return g_raised == SIGTERM ? "SIGTERM" : "Ctrl-C"; }

}  // namespace lorry::cli
