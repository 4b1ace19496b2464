#pragma once

// Who hears of operator calls. Up to four listeners, one mode bit each: gradients, tracing, profiling and one for
// users. A listener hears the calls of the threads on which its bit is set (ModeScope). What it is shown refers to the
// call's own arguments and holds none of them: a listener that keeps nothing changes nothing.
//
//   void count(const door::CallView& call, void*&) { ++counts[call.op]; }
//   constexpr door::Listener kCounter{.bit = kUserMode, .before = count};
//   const door::ListenerScope listening(kCounter);
//
// `before` is called in the order of the bits, `after` in the opposite one, both with nobody listening: a listener may
// call operators. Where `before` throws, the operator is not run and its error is that one. Where `after` throws, the
// call has been made, the other listeners are told, and the first such error is the call's. Each `before` that returned
// is followed by its `after`, also when the listener was removed meanwhile, when the operator threw, or another
// listener did; then `failed` is set.

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

/// A non-tensor argument. Operators announce all of theirs, in the order of the row's `arguments` (table.h), with
/// dimensions counted from the front and defaults filled in: what is announced can be run again (run.h).
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

/// A call as listeners see it. It refers to what lives until the call ends.
struct CallView {
  Op op{};
  bool in_place = false;  ///< the first inputs are written and are the first outputs: inputs[0], or those of a list
  bool out = false;       ///< the outputs are tensors that were given, and are there in `before` already
  bool failed = false;    ///< told to `after`: the operator threw, or another listener refused the call
  std::span<const Input> inputs = {};
  /// Empty in `before` but for `out` and lists that are written in place, and in `after` where the call failed.
  std::span<const Tensor> outputs = {};
  std::span<const Attribute> attributes = {};
  /// The bits of the listeners that are told. A listener that computes as part of the call does so under these, so that
  /// the others are told of that too.
  uint32_t listeners = 0;
};

/// Functions that are told of calls; null for those that are not wanted. An object of static storage duration.
struct Listener {
  Mode bit{};
  /// May leave a note for `after`, and may refuse the call by throwing.
  void (*before)(const CallView& call, void*& note) = nullptr;
  void (*after)(const CallView& call, void* note) = nullptr;
  /// What happens between calls (tensor/facts.h), on threads with the bit. Must not throw. Not for kGradMode.
  void (*fact)(const FactView& fact) = nullptr;
};

/// Throws ValueError where the bit is no listener's or has one already.
void add_listener(const Listener& listener);
/// Calls that are under way still tell it. Removing one that is not there changes nothing.
void remove_listener(const Listener& listener) noexcept;

/// What a listener may hold beyond a call: a tensor over the same elements, without history. Decisions about memory
/// that nobody else refers to (gradients that are added up in place) do not count it, so that holding one changes
/// neither the calls that follow nor their results. The elements are not held still: later calls may write them.
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
