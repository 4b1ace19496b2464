#pragma once

// Tracer: what hears the operator calls of one thread in the tracing mode. A thread has one at a time: a Recorder, or a
// run of deferred calls (compile/lazy.h).

#include <vector>

#include "lorry/base/modes.h"
#include "lorry/ops/dispatch/listener.h"

namespace lorry::trace {

/// Hears what a door::Listener hears.
class Tracer {
 public:
  virtual void before(const door::CallView&) {}
  virtual bool replace(const door::CallView&, std::vector<Tensor>&) { return false; }
  virtual void after(const door::CallView& call) = 0;
  virtual void fact(const FactView& fact) = 0;

 protected:
  ~Tracer() = default;
};

/// Lets a tracer hear this thread's calls until the end of the scope.
class TracerScope {
 public:
  explicit TracerScope(Tracer& tracer);
  ~TracerScope();
  TracerScope(const TracerScope&) = delete;
  TracerScope& operator=(const TracerScope&) = delete;

 private:
  Tracer* const outer_;
  const ModeScope mode_;
};

}  // namespace lorry::trace
