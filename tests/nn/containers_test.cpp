#include "lorry/nn/containers.h"

#include <gtest/gtest.h>

#include "lorry/nn/layers.h"
#include "lorry/ops/ops.h"
#include "tests/support/message.h"

namespace lorry::nn {
namespace {

std::vector<std::string> names(const Module& module) {
  std::vector<std::string> result;
  for (const auto& [name, x] : module.named_parameters()) result.push_back(name);
  return result;
}
using Names = std::vector<std::string>;

TEST(CallOperator, of_a_layer_is_its_forward) {
  const Linear linear(3, 2);
  const Tensor x = randn({4, 3});
  EXPECT_TRUE(linear(x).equal(linear.forward(x)));
  const LayerNorm norm({3});
  EXPECT_TRUE(norm(x).equal(norm.forward(x)));
  struct Sum : Layer<Sum> {
    Tensor forward(const Tensor& a, const Tensor& b) { return a + b; }
  };
  Sum sum;
  EXPECT_TRUE(sum(x, x).equal(x * 2));
}

TEST(LayerShapes, may_be_given_in_braces) {
  const int64_t width = 4;
  EXPECT_EQ(LayerNorm({width}).weight.sizes(), Dims{4});
  EXPECT_EQ(LayerNorm({2, 3}).weight.sizes(), (Dims{2, 3}));
  EXPECT_EQ(LayerNorm(4).weight.sizes(), Dims{4});
  EXPECT_FALSE((LayerNorm{4, false}.bias.defined()));
  EXPECT_EQ(RMSNorm({2, 3}).weight.sizes(), (Dims{2, 3}));
}

struct Stack : Layer<Stack> {
  explicit Stack(int depth) {
    for (int i = 0; i < depth; ++i) layers.emplace_back(2, 2);  // moves those before
    add("layers", layers);
    add("head", head);
  }
  Tensor forward(Tensor x) const {
    for (const Linear& layer : layers) x = layer(x);
    return head(x);
  }
  std::vector<Linear> layers;
  Linear head{2, 1};
};

TEST(Module, a_vector_of_layers_is_a_member_like_others) {
  Stack stack(3);
  EXPECT_EQ(names(stack), (Names{"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
                                 "layers.2.weight", "layers.2.bias", "head.weight", "head.bias"}));
  EXPECT_TRUE(stack.parameters()[2].is_same(stack.layers[1].weight));
  stack.layers.emplace_back(2, 2);  // moves those that are named
  stack.eval();
  for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(stack.layers[i].is_training());
  stack.layers.pop_back();
  EXPECT_EQ(names(stack).size(), 8u);
}

TEST(Module, a_module_that_moves_takes_its_tree_along) {
  Stack from(2);
  const Tensor weight = from.head.weight;
  const Stack to(std::move(from));
  EXPECT_EQ(names(to).size(), 6u);
  EXPECT_TRUE(to.parameters()[4].is_same(weight));
  std::vector<Stack> several;
  for (int i = 0; i < 5; ++i) several.emplace_back(1);
  for (Stack& stack : several) {
    stack.eval();
    EXPECT_FALSE(stack.head.is_training());
    EXPECT_FALSE(stack.layers[0].is_training());
  }
}

TEST(Module, a_child_that_ends_first_leaves_its_tree) {
  struct Net : Layer<Net> {
    using Module::add;
  };
  Net net;
  {
    Linear shared(2, 2);
    net.add("shared", shared);
    EXPECT_EQ(names(net).size(), 2u);
  }
  EXPECT_TRUE(names(net).empty());
}

TEST(Module, a_member_that_was_not_added_is_found_out) {
  struct Forgetful : Layer<Forgetful> {
    Forgetful() { add("one", one); }
    Linear one{2, 2}, other{2, 2};
  };
  const Forgetful net;
  const std::string message = test::message<ValueError>([&] { net.parameters(); });
  EXPECT_NE(message.find("Forgetful that is a module was not added; got a lorry::nn::Linear at byte"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("call add("), std::string::npos) << message;
  struct Outer : Layer<Outer> {
    Outer() { add("net", net); }
    Forgetful net;
  };
  EXPECT_THROW(Outer().named_parameters(), ValueError) << "also below the module that is asked";
}

TEST(Sequential, runs_its_steps_one_after_the_other) {
  Linear first(3, 4), last(4, 2);
  const Tensor x = randn({5, 3}), expected = last(first(x).relu());
  const Sequential net(
      std::move(first), [](const Tensor& y) { return y.relu(); }, std::move(last));
  EXPECT_TRUE(net(x).equal(expected));
  EXPECT_EQ(names(net), (Names{"0.weight", "0.bias", "2.weight", "2.bias"}));
  EXPECT_TRUE(Sequential()(x).is_same(x));
  Sequential nested(Sequential(Linear(3, 3), Dropout(0.5)), Linear(3, 1));
  EXPECT_EQ(names(nested), (Names{"0.0.weight", "0.0.bias", "1.weight", "1.bias"}));
  nested.eval();
  EXPECT_TRUE(nested(x).equal(nested(x))) << "eval reaches the Dropout";
}

TEST(ModuleList, names_what_it_holds) {
  struct Net : Layer<Net> {
    Net() {
      for (int i = 0; i < 3; ++i) layers.emplace_back(2, 2, false);
      add("layers", layers);
      layers.push_back(Linear(2, 1, false));
    }
    Tensor forward(Tensor x) const {
      for (const Linear& layer : layers) x = layer(x);
      return x;
    }
    ModuleList<Linear> layers;
  };
  const Net net;
  EXPECT_EQ(names(net), (Names{"layers.0.weight", "layers.1.weight", "layers.2.weight", "layers.3.weight"}));
  EXPECT_EQ(net(randn({5, 2})).sizes(), (Dims{5, 1}));
  EXPECT_EQ(net.layers.size(), 4u);
}

}  // namespace
}  // namespace lorry::nn
