#include "lorry/cli/interrupt.h"

#include <csignal>

namespace lorry::cli {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;  // the vector registers that the system saves there take up to 11 KiB

volatile std::sig_atomic_t g_raised = 0;  // the signal that arrived last
struct sigaction g_before[2];
constexpr int kSignals[2] = {SIGINT, SIGTERM};

}  // namespace

// oneDNN's sgemm kernels point the stack register into a workspace on the heap where the inner size is large. A handler that ran
// on the interrupted stack would then overwrite what lies below that workspace, so it gets a stack of its own.
Interrupt::Interrupt() : stack_(new std::byte[kStackBytes]) {
  stack_t stack{};
  stack.ss_sp = stack_.get();
  stack.ss_size = kStackBytes;
  sigaltstack(&stack, &stack_before_);
  g_raised = 0;
  struct sigaction action {};
  action.sa_handler = [](int signal) { g_raised = signal; };
  action.sa_flags = SA_RESTART | SA_RESETHAND | SA_ONSTACK;  // the second signal takes the default action
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

Interrupt::~Interrupt() {
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &g_before[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
}

bool Interrupt::raised() const { return g_raised != 0; }
const char* Interrupt::name() const { return g_raised == SIGTERM ? "SIGTERM" : "Ctrl-C"; }

}  // namespace lorry::cli
