#pragma once

// The tape: nodes that turn the gradients of their outputs into those of their inputs. Every node is made after the nodes
// its edges lead to, so descending sequence numbers are a topological order; the engine needs no other.

#include <functional>
#include <mutex>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::autograd {

class Node;
struct Facts;

/// Output `index` of `node`; a null node means that nothing wants this gradient.
struct Edge {
  IntrusivePtr<Node> node;
  int index = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
};

using Hook = std::function<Tensor(const Tensor&)>;

class Node : public Counted {
 public:
  Node();
  virtual ~Node();

  /// One gradient for every edge, undefined for none.
  virtual std::vector<Tensor> apply(std::vector<Tensor> grads) = 0;
  virtual const char* name() const = 0;
  /// Lets go of what was kept for apply.
  virtual void release() {}

  struct Output {
    Dims sizes;
    DType dtype;
    Device device;
  };
  std::vector<Edge> edges;
  std::vector<Output> outputs;  ///< what gradients must look like
  uint64_t sequence;

  int64_t add_hook(int output, Hook hook);
  bool remove_hook(int64_t handle);
  void run_hooks(std::vector<Tensor>& grads);

  /// Frees long chains without recursion.
  void destroy();

 private:
  struct Entry {
    int64_t handle;
    int output;
    Hook hook;
  };
  std::vector<Entry> hooks_;
};

/// The end of the tape at a leaf: owns the gradient, so that a graph and its leaves may die in any order.
class Accumulate final : public Node {
 public:
  explicit Accumulate(const Tensor& leaf) { outputs.push_back({leaf.sizes(), leaf.dtype(), leaf.device()}); }
  ~Accumulate() override;
  std::vector<Tensor> apply(std::vector<Tensor> grads) override;
  const char* name() const override { return "accumulate"; }

  Tensor grad() const;
  void set_grad(const Tensor& grad);
  /// changes() when the gradient was last replaced; 0: never.
  uint64_t changed() const { return changed_.load(std::memory_order_relaxed); }

 private:
  void put(const Tensor& grad);

  mutable std::mutex mutex_;
  Tensor grad_;
  std::atomic<uint64_t> changed_{0};
};

/// What hangs on a tensor that takes part: for a leaf its accumulator, else the node that made it.
struct Meta final : GradSlot {
  IntrusivePtr<Node> fn;
  int index = 0;
  uint32_t version = 0;               ///< of the storage when fn was set: a view's fn is stale when it differs
  IntrusivePtr<Accumulate> gradient;  ///< of a leaf, or of a tensor whose gradient is retained
};

/// The tensor's meta, made when absent.
Meta& meta(const Tensor& x);
/// The tensor's meta or null.
Meta* find_meta(const Tensor& x);
/// Makes x an output of a node.
void set_history(const Tensor& x, const IntrusivePtr<Node>& fn, int index);
/// The node that made x, brought up to date when x is a view of something written since; null for a leaf.
IntrusivePtr<Node> gradient_function(const Tensor& x, int* index = nullptr);
/// Where a gradient of x goes.
Edge gradient_edge(const Tensor& x);

}  // namespace lorry::autograd
