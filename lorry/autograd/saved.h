#pragma once

// A tensor saved for the backward pass, with the version it had; or a promise to compute it again (checkpointing).

#include "lorry/autograd/node.h"

namespace lorry::autograd {

/// Saves tensors by other means while it is installed on a thread: checkpointing drops them and computes them again.
class SavedTensorHook : public Counted {
 public:
  virtual ~SavedTensorHook() = default;
  /// Takes the next tensor: its number, or -1 for one that is saved in the ordinary way.
  virtual int64_t pack(const Tensor& x) = 0;
  virtual Tensor unpack(int64_t number) = 0;
  /// Will not be unpacked again.
  virtual void release(int64_t number) = 0;
  void destroy() { delete this; }
};

/// The thread's hook; null: tensors are saved in the ordinary way.
inline constinit thread_local SavedTensorHook* t_saved_tensor_hook = nullptr;

/// A tensor that a node reads in its backward. Holds the memory and the edge that the tensor had, not the tensor: a
/// tensor written in place later gets a history that may lead to the node which saved it, and the two would own each
/// other.
class Saved {
 public:
  Saved() = default;
  /// An input, with its gradient_edge.
  Saved(const Tensor& x, Edge history);
  /// Output `index` of the node that will hold this object.
  static Saved output(const Tensor& x, int index);

  void release();
  void add_storage(std::vector<uint64_t>& storages) const {
    if (tensor_.defined()) storages.push_back(tensor_.storage().id());
  }
  bool is_saved() const { return tensor_.defined() || hook_; }
  /// Throws GradError naming the operator that overwrote it. `owner` is the history of an output.
  Tensor unpack(Node& owner, const char* op, const char* which, int position) const;

 private:
  void take(const Tensor& x, const Tensor& for_hook);

  Tensor tensor_;  // without history, unless it is a leaf
  Edge history_;   // null for what needs no gradient, and for an output, whose owner must not own itself
  IntrusivePtr<Storage> storage_;  // the one it had: set_data may give a leaf another
  IntrusivePtr<SavedTensorHook> hook_;
  int64_t number_ = 0;
  uint32_t version_ = 0;
  bool own_output_ = false;
};

}  // namespace lorry::autograd
