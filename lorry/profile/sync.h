#pragma once

// Hidden waits for a GPU, made visible: for a scope, every call of this thread after which the host would wait for the
// device is an error, or a warning that names operator and line.
//
//   for (int step = 0; step < 100; ++step) {
//     const auto no_waits = profile::forbid_sync();
//     train(batch);                      // loss.item() in it throws SynchronisationError
//     const auto except = profile::allow_sync();
//     if (step % 10 == 0) print(loss.item<float>());
//   }
//
// A hidden wait is one that a program did not ask for: item(), to_vector(), printing, nonzero, masked_select, unique,
// copies to the host, copies of pinned memory without non_blocking, copies of more than 16 MB of pageable memory, and
// memory that returns to the system because none is left. synchronize() of a device, a stream or an event was asked for
// and is allowed, unless SyncOptions::asked_too. PyTorch's set_sync_debug_mode draws the line in the same place.
//
// Scopes nest; the innermost one decides. They cost nothing where nothing is waited for.

#include "lorry/base/synchronisation_error.h"
#include "lorry/base/waits.h"

namespace lorry::profile {

struct SyncOptions {
  bool asked_too = false;  ///< waits that the program asked for, such as device::synchronize(), count too
  /// Reads of tensors on the CPU count too, although nothing waits for them: item(), to_vector(), printing, nonzero,
  /// masked_select, unique. They are what would wait if the program ran on a GPU.
  bool also_cpu = false;
};

/// What the functions below return: ends the scope when it is destroyed, on the same thread.
class SyncScope : waits::RuleScope {
 public:
  explicit SyncScope(const waits::Rule& rule) : RuleScope(rule) {}
};

/// A hidden wait throws SynchronisationError before anything is waited for. The message has the operator, the line of
/// the program (built with -fno-omit-frame-pointer -g1) and what to do instead. Two kinds are allowed and reported as
/// by warn_sync: what is done once (events::Wait::setup, such as choosing the fastest kernel), and memory that returns
/// to the system outside of an allocation (events::Wait::memory), because releasing a tensor must not fail.
[[nodiscard]] inline SyncScope forbid_sync(const SyncOptions& options = {}) {
  return SyncScope({waits::Policy::forbid, options.asked_too, options.also_cpu});
}

/// A hidden wait emits two events to the handler (base/events.h), both with operator, line and kind of wait: a warning
/// before it, and a synchronisation after it with the time that it took.
[[nodiscard]] inline SyncScope warn_sync(const SyncOptions& options = {}) {
  return SyncScope({waits::Policy::warn, options.asked_too, options.also_cpu});
}

/// Inside the other two: waits are allowed.
[[nodiscard]] inline SyncScope allow_sync() { return SyncScope({}); }

}  // namespace lorry::profile
