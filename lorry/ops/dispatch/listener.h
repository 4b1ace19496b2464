#pragma once

// Who hears of operator calls: up to five listeners, one mode bit each, for memory that must be waited for, gradients,
// tracing, profiling and users. A listener hears the calls of the threads on which its bit is set (ModeScope). A
// CallView refers to the arguments of the call and holds none of them, so a listener that keeps nothing changes
// nothing.
//
//   void count(const door::CallView& call, void*&) { ++counts[call.op]; }
//   constexpr door::Listener kCounter{.bit = kUserMode, .before = count};
//   const door::ListenerScope listening(kCounter);
//
// `before` functions run in the order of the bits, `after` functions in the opposite order. Nobody listens meanwhile,
// so a listener may call operators.
//   - If a `before` throws, the operator does not run, and the call throws that error.
//   - If an `after` throws, the call has been made. The other listeners are still notified; then the call throws the
//     first such error.
//   - Each `before` that returned is followed by its `after`, even if the listener has been removed meanwhile. `failed`
//     is set if the operator or another listener's `before` threw.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lorry/base/modes.h"
#include "lorry/formula/philox.h"
#include "lorry/ops/dispatch/table.h"
#include "lorry/tensor/facts.h"
#include "lorry/tensor/tensor.h"

namespace lorry::door {

/// A non-tensor argument. Operators announce all of theirs, in the order of the row's `arguments` (table.h).
/// Dimensions are counted from the front and defaults are filled in, so that the call can be run again (run.h).
using Attribute = std::variant<bool, int64_t, double, Scalar, Dims, DType, Device, formula::RandomKey,
                               std::vector<int64_t>, std::string>;

/// A tensor argument (perhaps undefined), or a number in its place.
class Input {
 public:
  Input() = default;
  Input(const Tensor* t) : tensor_(t) {}
  Input(const Operand& o) : tensor_(o.tensor()), scalar_(o.tensor() ? nullptr : &o.scalar()) {}
  Input(const Operand* o) : Input(*o) {}

  /// Null for a number.
  const Tensor* tensor() const { return tensor_; }
  /// Null for a tensor.
  const Scalar* scalar() const { return scalar_; }
  bool requires_grad() const { return tensor_ != nullptr && tensor_->requires_grad(); }
  /// The tensor itself, or a 0-d tensor that stands for the number.
  Tensor materialise() const;

 private:
  const Tensor* tensor_ = nullptr;
  const Scalar* scalar_ = nullptr;
};

struct CallView;
/// Makes a call again from its announcement and returns all its outputs (run.h).
using RunCall = std::vector<Tensor> (*)(const CallView& call);

/// A call as listeners see it. It refers to what lives until the call ends.
struct CallView {
  Op op{};
  bool in_place = false;  ///< the first inputs are written and are the first outputs: inputs[0], or those of a list
  bool out = false;       ///< the caller gave the outputs; `before` sees them too
  bool failed = false;    ///< for `after`: the operator threw, or another listener refused the call
  std::span<const Input> inputs = {};
  /// Empty in `before`, unless the call is an out= form or writes a list in place. Empty in `after` if the call failed.
  std::span<const Tensor> outputs = {};
  std::span<const Attribute> attributes = {};
  /// Of a call over lists, the function of its room that makes it again: foreach::run, optim::run. Null for other rows.
  RunCall run = nullptr;
  /// The bits of the listeners that are notified. A listener that computes as part of the call does so under these
  /// bits, so that the other listeners hear of that too.
  uint32_t listeners = 0;
};

/// The functions of a listener; null for those that it does not need. An object of static storage duration.
struct Listener {
  Mode bit{};
  /// May leave a note for `after`, and may refuse the call by throwing.
  void (*before)(const CallView& call, void*& note) = nullptr;
  /// May make the call in the operator's place, after all `before`: then it sets `outputs` as the operator would, if
  /// the caller did not give them, and returns true. Then no other listener is asked.
  bool (*replace)(const CallView& call, std::vector<Tensor>& outputs) = nullptr;
  void (*after)(const CallView& call, void* note) = nullptr;
  /// What happens between calls (tensor/facts.h), on threads with the bit. Must not throw, except for host_read and
  /// address. Not for kGradMode.
  void (*fact)(const FactView& fact) = nullptr;
  /// For kAwaitMode alone: waits for all that calls of this thread wait for.
  void (*await_all)() = nullptr;
};

/// Throws ValueError if the bit is not a listener bit, or has a listener already.
void add_listener(const Listener& listener);
/// Calls that are under way still notify it. Removing one that is not there changes nothing.
void remove_listener(const Listener& listener) noexcept;
/// Called in `before`: clears this bit on this thread when the call ends.
void stop_listening(Mode bit) noexcept;

/// Waits for all memory that calls of this thread wait for (kAwaitMode): for code that uses memory without calls that
/// listeners hear, such as the replay of a graph. Throws what waiting throws.
void await_memory();

/// What a listener may hold beyond a call: a tensor over the same elements, without history. It does not count as a
/// user of the memory: gradients that nobody else holds are still added up in place, so holding an Observed changes
/// neither later calls nor their results. Later calls may write the elements.
class Observed {
 public:
  Observed() = default;
  explicit Observed(const Tensor& x);
  Observed(Observed&& other) noexcept : tensor_(std::exchange(other.tensor_, Tensor())) {}
  Observed& operator=(Observed&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~Observed();
  const Tensor& tensor() const { return tensor_; }

 private:
  Tensor tensor_;
};

/// Adds a listener and sets its bit on this thread, until the end of the scope.
class ListenerScope {
 public:
  explicit ListenerScope(const Listener& listener) : added_(listener), mode_(listener.bit, 0) {}

 private:
  struct Added {
    const Listener& listener;
    explicit Added(const Listener& l) : listener(l) { add_listener(l); }
    ~Added() { remove_listener(listener); }
    Added(const Added&) = delete;
    Added& operator=(const Added&) = delete;
  };
  Added added_;
  ModeScope mode_;
};

/// The name of the operator that made a tensor which requires a gradient; null for a leaf. Set by autograd.
using MadeBy = const char* (*)(const Tensor&);
void set_made_by(MadeBy made_by);
const char* made_by(const Tensor& x);

}  // namespace lorry::door
