#pragma once

// Ctrl-C and SIGTERM request a long command to stop at a point from which it can be resumed. A second signal ends it at
// once, unless it comes within half a second of the first: that counts as the same request. A signal that was ignored
// before stays ignored.

#include <signal.h>

#include <cstddef>
#include <memory>

namespace lorry::cli {

/// During its lifetime, the first SIGINT or SIGTERM only sets a flag. At the end the previous handlers are restored,
/// unless a signal has arrived: then the process is about to end, and the same press may still send another one.
/// Must be made on the main thread, to which the system delivers the signals of a process.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Whether a signal has arrived.
  bool raised() const;
  /// The name of the signal that arrived last; the same signal again ends the command. Call only if raised() is true.
  const char* name() const;

 private:
  std::unique_ptr<std::byte[]> stack_;  ///< of the handlers
  stack_t stack_before_{};
};

}  // namespace lorry::cli
