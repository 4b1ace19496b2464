#include "lorry/autograd/gradient_destination.h"

#include <gtest/gtest.h>

#include "lorry/autograd/engine.h"
#include "lorry/base/error.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/ops/ops.h"
#include "lorry/tensor/tensor.h"
#include "tests/support/tensors.h"

namespace lorry {
namespace {

using autograd::Arrival;
using autograd::set_gradient_destination;

int g_copied = 0;
void count_copied(const door::CallView& call, void*&) { g_copied += call.op == Op::copy; }
constexpr door::Listener kCopies{.bit = kUserMode, .before = count_copied};

/// A weight whose gradient is wanted in memory of ours, and an input of a linear layer.
struct Wanted {
  Tensor weight = ones({3, 2}).requires_grad_();
  Tensor memory = full({3, 2}, 7.0), x = arange(8).to(kF32).view({4, 2});
  int arrivals = 0;
  bool refuses = false;
  Wanted() {
    set_gradient_destination(weight, memory, [this](Arrival what) {
      if (what == Arrival::begins && refuses) throw ValueError("not now");
      arrivals += what == Arrival::complete;
    });
  }
  Tensor loss() const { return linear(x, weight).square().sum(); }
  /// The gradient of a weight without a destination.
  Tensor expected() const {
    const Tensor alone = weight.detach().clone().requires_grad_();
    linear(x, alone).square().sum().backward();
    return alone.grad();
  }
};

TEST(GradientDestination, a_linear_layer_computes_there_without_a_copy) {
  Wanted w;
  {
    const door::ListenerScope listening(kCopies);
    g_copied = 0;
    w.loss().backward();
  }
  EXPECT_EQ(g_copied, 0);
  EXPECT_EQ(w.arrivals, 1);
  EXPECT_EQ(w.weight.grad().data_ptr(), w.memory.data_ptr());
  EXPECT_TRUE(w.memory.equal(w.expected()));
}

TEST(GradientDestination, an_observer_refuses_a_gradient_before_it_is_written) {
  Wanted w;
  w.loss().backward();
  const Tensor before = w.memory.clone();
  w.refuses = true;
  EXPECT_THROW(w.loss().backward(), ValueError);
  EXPECT_THROW(w.weight.sum().backward(), ValueError);
  w.weight.set_grad({});
  EXPECT_THROW(w.loss().backward(), ValueError);  // would be computed there
  EXPECT_TRUE(w.memory.equal(before));
  EXPECT_EQ(w.arrivals, 1);
}

TEST(GradientDestination, later_backwards_add_to_it_and_a_released_gradient_is_computed_anew) {
  Wanted w;
  w.loss().backward();
  w.loss().backward();
  EXPECT_TRUE(w.memory.equal(w.expected().mul(2)));
  w.weight.set_grad({});
  w.memory.fill_(-1);
  w.loss().backward();
  EXPECT_TRUE(w.weight.grad().equal(w.expected()));
  EXPECT_EQ(w.weight.grad().data_ptr(), w.memory.data_ptr());
  EXPECT_EQ(w.arrivals, 3);
}

TEST(GradientDestination, a_weight_of_two_layers_has_the_sum) {
  Wanted w;
  w.loss().add(w.loss().mul(2)).backward();
  EXPECT_TRUE(w.weight.grad().allclose(w.expected().mul(3)));
  EXPECT_EQ(w.weight.grad().data_ptr(), w.memory.data_ptr());
  EXPECT_EQ(w.arrivals, 1);
}

TEST(GradientDestination, gradients_of_other_operators_and_of_hooks_lie_elsewhere) {
  Wanted w;
  w.weight.mul(3).sum().backward();
  EXPECT_TRUE(w.weight.grad().equal(full({3, 2}, 3.0)));
  EXPECT_TRUE(w.memory.equal(full({3, 2}, 7.0))) << "untouched";
  EXPECT_EQ(w.arrivals, 1);
  w.weight.set_grad({});
  const int64_t hook = w.weight.register_hook([](const Tensor& g) { return g.mul(10); });
  w.loss().backward();
  EXPECT_TRUE(w.weight.grad().equal(w.expected().mul(10)));
  EXPECT_NE(w.weight.grad().data_ptr(), w.memory.data_ptr());
  EXPECT_EQ(w.arrivals, 2);
  w.weight.remove_hook(hook);
  w.weight.set_grad({});
  w.loss().backward();
  EXPECT_EQ(w.weight.grad().data_ptr(), w.memory.data_ptr());
}

/// Notes when it is called, beside the arrivals of gradients.
struct Order {
  std::vector<std::string> events;
  Tensor leaf(const char* name) {
    const Tensor x = ones({2, 2}).requires_grad_();
    set_gradient_destination(x, zeros({2, 2}), [this, name](Arrival what) {
      if (what == Arrival::complete) events.emplace_back(name);
    });
    return x;
  }
  Tensor passed(const Tensor& x, const char* name) {
    x.register_hook([this, name](const Tensor&) {
      events.emplace_back(name);
      return Tensor();
    });
    return x;
  }
};

TEST(GradientDestination, a_gradient_arrives_as_soon_as_it_is_complete) {
  Order order;
  const Tensor first = order.leaf("first"), last = order.leaf("last"), twice = order.leaf("twice"),
               unused = order.leaf("unused");
  Tensor x = order.passed(linear(ones({1, 2}).requires_grad_(), first), "before first");
  x = order.passed(linear(x, twice), "between");
  x = linear(linear(x, twice), last);
  x.add(unused.sum().detach()).sum().backward();
  EXPECT_EQ(order.events, (std::vector<std::string>{"last", "between", "twice", "before first", "first"}));
}

TEST(GradientDestination, a_gradient_arrives_although_some_path_brings_nothing) {
  Order order;
  const Tensor leaf = order.leaf("leaf");
  const Tensor halves = leaf.mul(2);
  const auto parts = halves.split(1, 0);
  parts[0].sum().backward();
  EXPECT_EQ(order.events, std::vector<std::string>{"leaf"});
  EXPECT_TRUE(leaf.grad().sum().equal(full({}, 4.0)));
}

TEST(GradientDestination, gradients_that_are_asked_for_or_recorded_lie_elsewhere) {
  Wanted w;
  const Tensor asked = autograd::grad({w.loss()}, {w.weight})[0];
  EXPECT_TRUE(asked.equal(w.expected()));
  EXPECT_TRUE(w.memory.equal(full({3, 2}, 7.0))) << "untouched";
  EXPECT_EQ(w.arrivals, 0);
  w.loss().backward({}, false, /*create_graph=*/true);
  EXPECT_TRUE(w.weight.grad().requires_grad());
  EXPECT_TRUE(w.weight.grad().detach().equal(w.expected()));
  EXPECT_TRUE(w.memory.equal(full({3, 2}, 7.0)));
}

TEST(GradientDestination, ends_when_asked_and_when_the_leaf_has_another_dtype) {
  Wanted w;
  set_gradient_destination(w.weight, {}, {});
  w.loss().backward();
  EXPECT_NE(w.weight.grad().data_ptr(), w.memory.data_ptr());
  EXPECT_EQ(w.arrivals, 0);
  Wanted other;
  other.weight.set_data(other.weight.detach().to(kF64));
  linear(other.x.to(kF64), other.weight).sum().backward();
  EXPECT_EQ(other.weight.grad().dtype(), kF64);
  EXPECT_TRUE(other.memory.equal(full({3, 2}, 7.0)));
}

TEST(GradientDestination, refuses_what_does_not_fit) {
  const Tensor leaf = ones({3, 2}).requires_grad_();
  EXPECT_THROW(set_gradient_destination(ones({3, 2}), zeros({3, 2}), {}), GradError);
  EXPECT_THROW(set_gradient_destination(leaf.mul(2), zeros({3, 2}), {}), GradError);
  EXPECT_THROW(set_gradient_destination(leaf, zeros({2, 3}), {}), ShapeError);
  EXPECT_THROW(set_gradient_destination(leaf, zeros({2, 3}).t(), {}), ShapeError);
  EXPECT_THROW(set_gradient_destination(leaf, zeros({3, 2}, {.dtype = kF64}), {}), DTypeError);
  EXPECT_THROW(set_gradient_destination(leaf, zeros({3, 2}, {.device = kMeta}), {}), DeviceError);
}

}  // namespace
}  // namespace lorry
