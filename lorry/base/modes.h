#pragma once

// One thread-local word says what listens to operator calls on this thread; the door tests it once per call.

#include <cstdint>

namespace lorry {

enum Mode : uint32_t {
  kGradMode = 1u << 0,       ///< gradients are recorded (the default; off inside no_grad)
  kInferenceMode = 1u << 1,  ///< tensors made now never enter a graph and carry no versions
  kTraceMode = 1u << 2,      ///< a tracer listens
  kProfileMode = 1u << 3,    ///< a profiler listens
};

inline constinit thread_local uint32_t t_modes = kGradMode;

/// The operator that this thread is running, for errors, statistics and version checks; null between calls.
inline constinit thread_local const char* t_operator = nullptr;

inline bool mode(Mode m) { return (t_modes & m) != 0; }

/// Sets and clears modes for a scope. The end of the scope restores these bits and leaves all others as they are then.
class ModeScope {
 public:
  ModeScope(uint32_t set, uint32_t clear) : changed_(set | clear), before_(t_modes & changed_) {
    t_modes = (t_modes | set) & ~clear;
  }
  ~ModeScope() { t_modes = (t_modes & ~changed_) | before_; }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  uint32_t changed_, before_;
};

}  // namespace lorry
