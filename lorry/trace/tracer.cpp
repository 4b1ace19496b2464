#include "lorry/trace/tracer.h"

#include <utility>

namespace lorry::trace {
namespace {

constinit thread_local Tracer* t_tracer = nullptr;

/// The listener of all tracers: it passes calls to the tracer of the calling thread.
constexpr door::Listener kListener{
    .bit = kTraceMode,
    .before =
        [](const door::CallView& call, void*&) {
          if (t_tracer != nullptr) t_tracer->before(call);
        },
    .replace = [](const door::CallView& call,
                  std::vector<Tensor>& outputs) { return t_tracer != nullptr && t_tracer->replace(call, outputs); },
    .after =
        [](const door::CallView& call, void*) {
          if (t_tracer != nullptr) t_tracer->after(call);
        },
    .fact =
        [](const FactView& fact) {
          if (t_tracer != nullptr) t_tracer->fact(fact);
        }};

Tracer* set_tracer(Tracer& tracer) {
  [[maybe_unused]] static const bool installed = (door::add_listener(kListener), true);
  return std::exchange(t_tracer, &tracer);
}

}  // namespace

TracerScope::TracerScope(Tracer& tracer) : outer_(set_tracer(tracer)), mode_(kTraceMode, 0) {}
TracerScope::~TracerScope() { t_tracer = outer_; }

}  // namespace lorry::trace
