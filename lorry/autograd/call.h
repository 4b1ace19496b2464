#pragma once

// What a backward rule sees: the recorded call, the tensors that its rule saves, and facts about all inputs.

#include <mutex>
#include <string_view>
#include <vector>

#include "lorry/autograd/saved.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry::autograd {

class OperatorNode;

using Grads = std::vector<Tensor>;

/// Shape, dtype and device of a tensor that need not be saved.
struct Facts {
  Layout layout;
  DType dtype = kF32;
  Device device;
  bool defined = false;
  bool needs = false;  ///< its gradient is needed

  Facts() = default;
  explicit Facts(const Tensor& x) : defined(x.defined()) {
    if (!defined) return;
    layout = x.layout();
    dtype = x.dtype();
    device = x.device();
    needs = x.requires_grad();
  }
};

class Call {
 public:
  Op op() const { return op_; }
  int inputs() const { return static_cast<int>(facts_.size()); }
  /// A saved tensor. Throws GradError when it was overwritten since, or when the graph was freed.
  Tensor input(int i) const { return unpack(inputs_, i, "input"); }
  Tensor output(int i = 0) const { return unpack(outputs_, i, "output"); }

  /// Memory in which the gradient of input i is wanted, as contiguous elements of its dtype: a rule may compute it
  /// there and return this tensor. Each is given once; undefined if there is none.
  Tensor destination(int i) const;

  bool needs(int i) const { return facts_[static_cast<size_t>(i)].needs; }
  bool defined(int i) const { return facts_[static_cast<size_t>(i)].defined; }
  Dims sizes(int i) const { return facts_[static_cast<size_t>(i)].layout.size_list(); }
  const Layout& layout(int i) const { return facts_[static_cast<size_t>(i)].layout; }
  DType dtype(int i) const { return facts_[static_cast<size_t>(i)].dtype; }
  Device device(int i) const { return facts_[static_cast<size_t>(i)].device; }
  Options options(int i) const { return {dtype(i), device(i)}; }

  /// The i-th non-tensor argument, as the operator passed it to the door.
  template <class T>
  const T& attribute(int i) const {
    return std::get<T>(attributes_[static_cast<size_t>(i)]);
  }

 private:
  friend class OperatorNode;
  Tensor unpack(const std::vector<Saved>& saved, int i, const char* which) const;
  void release();
  void saved_storages(std::vector<uint64_t>& storages) const;

  Op op_{};
  OperatorNode* owner_ = nullptr;
  std::vector<Facts> facts_;
  std::vector<door::Attribute> attributes_;
  mutable std::mutex mutex_;  // of what follows
  bool released_ = false;
  std::vector<Saved> inputs_, outputs_;
};

/// Which tensors a rule reads, as bits. The others are not saved.
enum Saves : uint32_t {
  kNothing = 0,
  kInput0 = 1u << 0,
  kInput1 = 1u << 1,
  kInput2 = 1u << 2,
  kInput3 = 1u << 3,
  kInput4 = 1u << 4,
  kInput5 = 1u << 5,
  kInputs = 0xffffu,
  kOutput0 = 1u << 16,
  kOutput1 = 1u << 17,
  kOutput2 = 1u << 18,
  kOutput3 = 1u << 19,
};

/// A backward rule: from the gradients of the outputs (undefined where none arrived) to those of the inputs (undefined
/// for none), written with operators so that it can be differentiated again.
struct Rule {
  Op op;
  uint32_t saves;
  Grads (*gradient)(const Call& call, const Grads& grads);
};

/// The rule of an operator. Throws GradError when it has none.
const Rule& rule(Op op);
/// Null when it has none.
const Rule* find_rule(Op op);

}  // namespace lorry::autograd
