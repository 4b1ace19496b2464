#pragma once

// A tensor kept for the backward pass, with the version it had; or a promise to compute it again (checkpointing).

#include "lorry/autograd/node.h"

namespace lorry::autograd {

/// Keeps tensors by other means while it is installed on a thread: checkpointing drops them and computes them again.
class Keeper : public Counted {
 public:
  virtual ~Keeper() = default;
  /// Takes note of the next tensor: its number if the keeper will recall it, or -1 if it only wanted to see it.
  virtual int64_t keep(const Tensor& x) = 0;
  virtual Tensor recall(int64_t number) = 0;
  /// Will not be recalled again.
  virtual void forget(int64_t number) = 0;
  void destroy() { delete this; }
};

/// The thread's keeper; null for the ordinary way.
inline constinit thread_local Keeper* t_keeper = nullptr;

class Saved {
 public:
  Saved() = default;
  /// `own_output`: x is output `index` of `node`, which will hold this object: kept without its history, so that no cycle forms.
  explicit Saved(const Tensor& x, bool own_output = false, int index = 0);

  void release();
  bool kept() const { return tensor_.defined() || keeper_; }
  /// Throws GradError naming the operator that overwrote it. `owner` restores the history of an output.
  Tensor unpack(const Node* owner, const char* op, const char* which, int position) const;

 private:
  Tensor tensor_;
  IntrusivePtr<Storage> storage_;  // the one it had: set_data may give the tensor another
  IntrusivePtr<Keeper> keeper_;
  int64_t number_ = 0;
  uint32_t version_ = 0;
  int index_ = 0;
  bool own_output_ = false;
};

}  // namespace lorry::autograd
