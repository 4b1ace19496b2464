#pragma once

// Ctrl-C and SIGTERM ask a long command to stop where it can be resumed. Another one ends it at once, unless it comes
// within half a second: then it is the same request, pressed twice. A signal that was ignored before stays ignored.

#include <signal.h>

#include <cstddef>
#include <memory>

namespace lorry::cli {

/// While it lives, SIGINT or SIGTERM first only raise the flag; the handlers of before come back at the end. Made on
/// the main thread, to which the system sends the signals of a process.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// True once a signal has arrived.
  bool raised() const;
  /// What the signal is called that arrived last, and that ends the command when it comes again. Only once raised.
  const char* name() const;

 private:
  std::unique_ptr<std::byte[]> stack_;  ///< of the handlers
  stack_t stack_before_{};
};

}  // namespace lorry::cli
