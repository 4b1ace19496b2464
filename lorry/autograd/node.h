#pragma once

// The tape: nodes that turn the gradients of their outputs into those of their inputs.
//
// Invariant: a node is constructed from its edges, so its sequence number is larger than those of the nodes they lead
// to. Descending sequence numbers are therefore a topological order, and the engine needs no other.
//
// Nodes are shared: several threads may walk graphs that have nodes in common. Edges and outputs are constant once a
// node can be reached; everything else is behind the node's mutex.

#include <functional>
#include <mutex>
#include <vector>

#include "lorry/autograd/gradient_destination.h"
#include "lorry/tensor/tensor.h"

namespace lorry::autograd {

class Node;
struct Facts;

/// Output `index` of `node`. A null node: this gradient is not needed.
struct Edge {
  IntrusivePtr<Node> node;
  int index = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
};

using Hook = std::function<Tensor(const Tensor&)>;

/// This thread is in a backward() whose gradients go to the leaves.
inline constinit thread_local bool t_destinations = false;
/// How many leaves there are for whose gradients somebody waits (gradient_destination.h).
inline constinit std::atomic<int> g_awaited_leaves = 0;

class Accumulate;

class Node : public Counted {
 public:
  explicit Node(std::vector<Edge> leads_to = {});
  virtual ~Node();

  /// One gradient for every edge, undefined for none.
  virtual std::vector<Tensor> apply(std::vector<Tensor> grads) = 0;
  virtual const char* name() const = 0;
  /// Of a leaf: memory in which its gradient is wanted (gradient_destination.h), for a rule that computes it. Given
  /// once in each backward() whose gradients go to the leaves, while there is no gradient. Undefined if there is none.
  virtual Tensor take_destination() { return {}; }
  /// Whether a sum of gradients of its output may go on in this memory, although somebody else holds it too.
  virtual bool adds_into(const Tensor&) const { return false; }
  /// Of a leaf: whether somebody waits for its gradient. It is then applied as soon as the gradient is complete.
  virtual bool is_awaited() const { return false; }
  /// Frees the tensors saved for apply. Another thread's apply then throws GradError.
  virtual void release() {}
  /// Adds the storages of the tensors that it saved.
  virtual void saved_storages(std::vector<uint64_t>&) {}
  /// Makes x, a saved output read again while gradients are recorded, an output of this node.
  virtual void adopt(const Tensor& x, int index);

  struct Output {
    Dims sizes;
    DType dtype;
    Device device;
  };
  std::vector<Edge> edges;
  std::vector<Output> outputs;  ///< what gradients must look like
  const uint64_t sequence;
  /// The stream of a forward call on a GPU: apply runs there too. A CPU stream: apply runs on the stream on which
  /// backward is called.
  Stream stream;
  /// Where a profiler saw the forward call (base/span.h); 0: nowhere.
  uint32_t origin = 0;

  int64_t add_hook(int output, Hook hook);
  bool remove_hook(int64_t handle);
  bool has_hooks();
  /// Also adds the gradient of an output, as its hooks leave it, to `gradient`.
  void retain(int output, const IntrusivePtr<Accumulate>& gradient);
  /// Undoes retain.
  void forget(int output);
  struct Retained {
    int output;
    IntrusivePtr<Accumulate> gradient;
  };
  /// Calls the hooks, which may replace gradients. Returns the accumulators for retained gradients.
  std::vector<Retained> run_hooks(std::vector<Tensor>& grads);

  /// Frees long chains without recursion.
  void destroy();

 private:
  struct Entry {
    int64_t handle;
    int output;
    Hook hook;
  };
  std::mutex mutex_;
  std::vector<Entry> hooks_;
  std::vector<Retained> retained_;
};

/// The end of the tape at a leaf. It owns the gradient, so that a graph and its leaves may die in any order.
class Accumulate final : public Node {
 public:
  explicit Accumulate(const Tensor& leaf) { follow(leaf); }
  ~Accumulate() override;
  std::vector<Tensor> apply(std::vector<Tensor> grads) override;
  const char* name() const override { return "accumulate"; }

  Tensor grad() const;
  void set_grad(const Tensor& grad);
  /// Called when the leaf got other data.
  void follow(const Tensor& leaf);

  /// Where the gradient is to lie, and what is called when it comes (gradient_destination.h).
  void set_destination(const Tensor& memory, GradientObserver observer);
  Tensor take_destination() override;
  bool adds_into(const Tensor& x) const override;
  bool is_awaited() const override;
  /// changes() when the gradient was last replaced; 0: never.
  uint64_t changed() const { return changed_.load(std::memory_order_relaxed); }

 private:
  void add(const Tensor& g);
  void put(const Tensor& grad);
  void set_observer(GradientObserver observer);
  GradientObserver observer() const;

  mutable std::mutex mutex_;
  Tensor grad_;
  Tensor destination_;
  bool is_taken_ = false;  ///< a rule computes into the destination
  GradientObserver observer_;
  std::atomic<uint64_t> changed_{0};
  std::atomic<uint64_t> storage_;    ///< id of the leaf's
  std::atomic<const void*> leaf_{};  ///< the leaf's node, for listeners that hear of its gradients
};

/// The autograd data of a tensor: of a leaf its accumulator, else the node that made it.
struct Meta final : lorry::detail::GradSlot {
  IntrusivePtr<Node> fn;
  int index = 0;
  uint64_t base_sequence = 0;              ///< of a view: its base's node when fn was set; fn is stale when it differs
  IntrusivePtr<Accumulate> gradient;       ///< of a leaf, or of a tensor whose gradient is retained
  bool retains = false;                    ///< fn adds to `gradient`
  std::vector<IntrusivePtr<Node>> hooked;  ///< earlier nodes that still have hooks of this tensor
};

/// The tensor's meta, made if there is none.
Meta& meta(const Tensor& x);
/// The tensor's meta or null.
Meta* find_meta(const Tensor& x);
/// Makes x an output of a node. From now on a retained gradient is that of this output. Hooks stay on the earlier node.
void set_history(const Tensor& x, const IntrusivePtr<Node>& fn, int index);
/// The node that made x; null for a leaf. A view whose base was written since gets a new node, which leads to the
/// base's.
IntrusivePtr<Node> gradient_function(const Tensor& x, int* index = nullptr);
/// Where a gradient of x goes.
Edge gradient_edge(const Tensor& x);
/// The storages of the tensors that the tape behind these tensors saved, in order, each once.
std::vector<uint64_t> storages_on_tape(const std::vector<Tensor>& roots);

}  // namespace lorry::autograd
