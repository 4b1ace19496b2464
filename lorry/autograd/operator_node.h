#pragma once

// The nodes that the recorder makes.

#include "lorry/autograd/call.h"

namespace lorry::autograd {

/// A recorded operator call and its rule.
class OperatorNode final : public Node {
 public:
  /// Facts, edges and kept inputs of a call that is about to run. `original` replaces input 0 where the call overwrites it.
  OperatorNode(const door::Call& call, const Rule* rule);
  /// Kept outputs and the look of their gradients.
  void ran(const door::Call& call);

  std::vector<Tensor> apply(std::vector<Tensor> grads) override;
  const char* name() const override { return lorry::name(call_.op_); }
  void release() override;

 private:
  Call call_;
  const Rule* rule_;
};

/// The history of a base after a write through one of its views: the gradient outside the view passes, the gradient inside
/// goes through the operator that wrote.
class WriteThroughView final : public Node {
 public:
  WriteThroughView(const Tensor& base, const Tensor& view, const IntrusivePtr<Node>& inner);
  std::vector<Tensor> apply(std::vector<Tensor> grads) override;
  const char* name() const override { return "write_through_view"; }
  void release() override { inner_->release(); }

 private:
  IntrusivePtr<Node> inner_;
  Layout base_, view_;
  int64_t offset_;
};

/// The node of a view seen as as_strided of its base.
IntrusivePtr<Node> view_of(const Tensor& base, const Tensor& view);

}  // namespace lorry::autograd
