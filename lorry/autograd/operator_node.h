#pragma once

// The nodes that the recorder makes.

#include "lorry/autograd/call.h"

namespace lorry::autograd {

class WriteThroughView;

/// A recorded operator call and its rule.
class OperatorNode final : public Node {
 public:
  /// Facts, edges and saved inputs of a call that is about to run.
  OperatorNode(const door::CallView& call, const Rule* rule);
  /// Saved outputs and what their gradients must look like.
  void ran(const door::CallView& call);

  std::vector<Tensor> apply(std::vector<Tensor> grads) override;
  const char* name() const override { return lorry::name(call_.op_); }
  void release() override { call_.release(); }
  void saved_storages(std::vector<uint64_t>& storages) override { call_.saved_storages(storages); }

  void adopt(const Tensor& x, int index) override;

 private:
  friend class WriteThroughView;
  Call call_;
  const Rule* rule_;
  WriteThroughView* through_ = nullptr;  // if the call wrote a view: the node that applies this one
};

/// The history of a base after a write through one of its views. The gradient outside the view passes unchanged; the
/// gradient inside goes through the operator that wrote.
class WriteThroughView final : public Node {
 public:
  WriteThroughView(const Tensor& base, const Tensor& view, const IntrusivePtr<OperatorNode>& inner);
  ~WriteThroughView() override { inner_->through_ = nullptr; }
  std::vector<Tensor> apply(std::vector<Tensor> grads) override;
  const char* name() const override { return "write_through_view"; }
  void release() override { inner_->release(); }
  void saved_storages(std::vector<uint64_t>& storages) override { inner_->saved_storages(storages); }

  /// Gives x, the view after the call, the history of a view of this node's output.
  void adopt_view(const Tensor& x);

 private:
  static std::vector<Edge> edges_behind(const Tensor& base, const Node& inner);

  IntrusivePtr<OperatorNode> inner_;
  Layout base_, view_;
  int64_t offset_;
};

/// A node for the view: as_strided of its base.
IntrusivePtr<Node> view_of(const Tensor& base, const Tensor& view);

}  // namespace lorry::autograd
