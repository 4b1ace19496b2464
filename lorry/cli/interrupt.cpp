#include "lorry/cli/interrupt.h"

#include <csignal>

namespace lorry::cli {
namespace {

volatile std::sig_atomic_t g_raised = 0;
struct sigaction g_before[2];
constexpr int kSignals[2] = {SIGINT, SIGTERM};

}  // namespace

Interrupt::Interrupt() {
  g_raised = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { g_raised = 1; };
  action.sa_flags = SA_RESTART | SA_RESETHAND;  // the second signal takes the default action
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

Interrupt::~Interrupt() {
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &g_before[i], nullptr);
}

bool Interrupt::raised() const { return g_raised != 0; }

}  // namespace lorry::cli
