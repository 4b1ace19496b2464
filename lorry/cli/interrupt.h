#pragma once

// Ctrl-C and SIGTERM ask a long command to stop where it can be resumed. A second one ends it at once.

namespace lorry::cli {

/// While it lives, the first SIGINT or SIGTERM only raises the flag; the handlers of before come back at the end.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// True once a signal has arrived.
  bool raised() const;
};

}  // namespace lorry::cli
