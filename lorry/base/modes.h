#pragma once

// Thread-local state of operator calls: which listeners are active (one word of bits, which the door tests once per
// call), which operator is running, and which recording is being made.

#include <cstdint>

namespace lorry {

enum Mode : uint32_t {
  kGradMode = 1u << 0,       ///< gradients are recorded (the default; off inside no_grad)
  kInferenceMode = 1u << 1,  ///< tensors made now never enter a graph and carry no versions
  kTraceMode = 1u << 2,      ///< a tracer listens
  kProfileMode = 1u << 3,    ///< a profiler listens
  kUserMode = 1u << 4,       ///< a user's own listener listens
  kRunMode = 1u << 5,        ///< door::run waits for the results of the next call
  kSizesMode = 1u << 6,      ///< a recorder is told of the sizes that code outside operators reads
  kAddressMode = 1u << 7,    ///< a capture is told of the addresses that code outside operators takes
  kAwaitMode = 1u << 8,      ///< some memory is being filled, and calls that use it wait for it first
};

/// The bits of the listeners to operator calls, in the order in which they are notified (ops/dispatch/listener.h).
inline constexpr Mode kListenerBits[] = {kAwaitMode, kGradMode, kTraceMode, kProfileMode, kUserMode};
inline constexpr int kListeners = 5;
inline constexpr uint32_t kListenerModes = kAwaitMode | kGradMode | kTraceMode | kProfileMode | kUserMode | kRunMode;
/// The bits of the listeners that also receive facts (tensor/facts.h).
inline constexpr uint32_t kFactModes = kAwaitMode | kTraceMode | kProfileMode | kUserMode;
/// What code of Lorry outside operators switches off while it works on tensors for a call of the user's: nobody is told
/// of its calls, nor a capture of the addresses that it takes.
inline constexpr uint32_t kToldModes = kListenerModes | kAddressMode;

inline constinit thread_local uint32_t t_modes = kGradMode;

/// The number of the recording that this thread is making (trace/recorder.h); 0: none. A tensor stores the number of
/// the recording during which it was made.
inline constinit thread_local uint32_t t_recording = 0;

/// The number of errors (base/error.h) made on this thread while it was recorded.
inline constinit thread_local uint32_t t_recorded_errors = 0;

/// The operator that this thread is running, under the name that the user called. Errors begin with it; statistics and
/// version checks use it. Null between calls.
inline constinit thread_local const char* t_operator = nullptr;

/// Sets the name of the running operator for a scope. Every public operator begins with one. In nested scopes the
/// outermost name stays, so messages name the operator that the user called, not those it is composed of. In-place and
/// out= forms use the operator's name: add_ and add_out run as "add".
class Running {
 public:
  /// name: a string literal.
  explicit Running(const char* name) : before_(t_operator) {
    if (before_ == nullptr) t_operator = name;
  }
  ~Running() { t_operator = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const char* before_;
};

/// The running operator's name, or `otherwise` between calls. For functions that both operators and users call.
inline const char* running_or(const char* otherwise) { return t_operator == nullptr ? otherwise : t_operator; }

inline bool mode(Mode m) { return (t_modes & m) != 0; }

/// Sets and clears mode bits for a scope. The end of the scope restores these bits only.
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

namespace detail {

/// For code of Lorry outside operators that uses sizes only to shape tensors and to check them, such as a module or the
/// rule of a gradient. In its scope a recorder is not told of the sizes that are read, so that they do not tie the
/// recording to themselves.
struct ShapesOnly : ModeScope {
  ShapesOnly() : ModeScope(0, kSizesMode) {}
};

/// For the user's functions that such code calls: what they read is told again.
struct UsersCode : ModeScope {
  UsersCode() : ModeScope(t_recording == 0 ? 0 : uint32_t{kSizesMode}, 0) {}
};

}  // namespace detail

}  // namespace lorry
