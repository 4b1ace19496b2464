#pragma once

// One thread-local word says what listens to operator calls on this thread; the door tests it once per call.

#include <cstdint>

namespace lorry {

enum Mode : uint32_t {
  kGradMode = 1u << 0,       ///< gradients are recorded (the default; off inside no_grad)
  kInferenceMode = 1u << 1,  ///< tensors made now never enter a graph and carry no versions
  kTraceMode = 1u << 2,      ///< a tracer listens
  kProfileMode = 1u << 3,    ///< a profiler listens
  kUserMode = 1u << 4,       ///< a listener of the user's listens
  kRunMode = 1u << 5,        ///< door::run waits for the results of the next call
};

/// The bits of those who hear of operator calls, in the order in which they are told (ops/dispatch/listener.h).
inline constexpr Mode kListenerBits[] = {kGradMode, kTraceMode, kProfileMode, kUserMode};
inline constexpr int kListeners = 4;
inline constexpr uint32_t kListenerModes = kGradMode | kTraceMode | kProfileMode | kUserMode | kRunMode;
/// The bits of those who hear of facts too (tensor/facts.h).
inline constexpr uint32_t kFactModes = kTraceMode | kProfileMode | kUserMode;

inline constinit thread_local uint32_t t_modes = kGradMode;

/// The recording that this thread makes (trace/recorder.h), by its number; 0: none. Tensors that are made meanwhile say
/// so.
inline constinit thread_local uint32_t t_recording = 0;

/// The operator that this thread is running, by the name that the user called: errors begin with it, statistics and
/// version checks name it. Null between calls.
inline constinit thread_local const char* t_operator = nullptr;

/// Names the running operator for a scope. Every public operator begins with one. Nested scopes keep the outermost
/// name, so whatever an operator is composed of, it is the one that was called which is named. An in-place form and an
/// out= form go by the operator's name: add_ and add_out run as "add".
class Running {
 public:
  /// name: a literal.
  explicit Running(const char* name) : before_(t_operator) {
    if (before_ == nullptr) t_operator = name;
  }
  ~Running() { t_operator = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const char* before_;
};

/// The running operator, or `otherwise` between calls: for what operators use and users also call.
inline const char* running_or(const char* otherwise) { return t_operator == nullptr ? otherwise : t_operator; }

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
