#include "lorry/nn/module.h"

#include <gtest/gtest.h>

#include "lorry/autograd/grad_mode.h"
#include "lorry/nn/containers.h"
#include "lorry/nn/layers.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/ops/ops.h"
#include "tests/support/dtypes.h"

namespace lorry::nn {
namespace {

struct Inner : Module {
  explicit Inner(double start)
      : weight(parameter("weight", full({2, 3}, start))), count(buffer("count", zeros({1}, {kI64}))) {}
  const Tensor weight, count;
};

struct Outer : Module {
  Outer() : scale(parameter("scale", ones({3}))), first(1), second(2), drop(0.5) {
    add("first", first);
    add("second", second);
    add("drop", drop);
  }
  const Tensor scale;
  Inner first, second;
  Dropout drop;
};

/// A layer with a table that its constructor computes.
struct WithTable : Module {
  WithTable() : weight(parameter("weight", ones({3}))), table(constant(arange(3, {kF32}).add(0.1))) {}
  const Tensor weight, table;
};

struct AroundTables : Module {
  AroundTables() { add("tables", tables); }
  std::vector<WithTable> tables{3};
};

/// Two layers that read one table.
struct Tied : Module {
  Tied() : left(parameter("left", ones({2}))), right(parameter("right", left)) {}
  const Tensor left, right;
};

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> result;
  for (const auto& [name, x] : tensors) result.push_back(name);
  return result;
}

template <class E>
std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("another error: ") + e.what();
  }
  return "no error";
}

TEST(Module, names_join_with_dots_in_the_order_of_the_constructors) {
  Outer m;
  EXPECT_EQ(names(m.named_parameters()), (std::vector<std::string>{"scale", "first.weight", "second.weight"}));
  EXPECT_EQ(names(m.named_buffers()), (std::vector<std::string>{"first.count", "second.count"}));
  EXPECT_EQ(m.parameters().size(), 3u);
  std::vector<std::string> modules;
  for (const auto& [name, module] : m.named_modules()) modules.push_back(name);
  EXPECT_EQ(modules, (std::vector<std::string>{"", "first", "second", "drop"}));
  for (const Tensor& x : m.parameters()) EXPECT_TRUE(x.requires_grad());
  EXPECT_FALSE(m.first.count.requires_grad());
}

TEST(Module, a_shared_parameter_appears_once) {
  Tied m;
  EXPECT_EQ(names(m.named_parameters()), (std::vector<std::string>{"left"}));
  EXPECT_EQ(m.state_dict().size(), 1u);
}

TEST(Module, taken_names_and_names_with_dots_are_refused) {
  struct Twice : Module {
    Twice() {
      parameter("x", ones({1}));
      buffer("x", ones({1}));
    }
  };
  struct Dotted : Module {
    Dotted() { parameter("a.b", ones({1})); }
  };
  EXPECT_THROW(Twice(), ValueError);
  EXPECT_THROW(Dotted(), ValueError);
}

TEST(Module, train_and_eval_reach_every_module) {
  Outer m;
  EXPECT_TRUE(m.drop.is_training());
  m.eval();
  EXPECT_FALSE(m.is_training());
  EXPECT_FALSE(m.drop.is_training());
  const Tensor x = ones({100});
  EXPECT_TRUE(m.drop.forward(x).is_same(x));
  m.train();
  EXPECT_GT(m.drop.forward(x).eq(0).sum().item<int64_t>(), 20);
}

TEST(Module, to_converts_in_place_and_keeps_identity) {
  Outer m;
  const Tensor held = m.first.weight;
  m.first.weight.sum().backward();
  m.to(kBF16);
  EXPECT_TRUE(held.is_same(m.first.weight));
  EXPECT_EQ(held.dtype(), kBF16);
  EXPECT_EQ(held.grad().dtype(), kBF16);
  EXPECT_TRUE(held.requires_grad());
  EXPECT_EQ(m.first.count.dtype(), kI64);  // whole numbers stay
  EXPECT_EQ(held.sum().item<double>(), 6);
  held.mul(2).sum().backward();
  EXPECT_EQ(held.grad().sum().item<double>(), 18);
}

TEST(Module, to_refuses_a_dtype_that_is_not_floating_and_changes_nothing) {
  for (const DType dtype : test::kWholeDTypes) {
    Outer m;
    EXPECT_EQ(refusal<DTypeError>([&] { m.to(dtype); }),
              fmt::format("module: parameters cannot be {}, which is not floating; expected one of f16, bf16, f32, f64",
                          name(dtype)));
    EXPECT_EQ(m.first.weight.dtype(), kF32);
    EXPECT_EQ(m.first.count.dtype(), kI64);
  }
}

TEST(Module, to_a_device_moves_buffers_of_whole_numbers_too) {
  Outer m;
  for (const Device device : {Device(kCPU), default_device()}) {
    m.to(device);
    for (const auto& [name, x] : m.state_dict()) EXPECT_EQ(x.device(), device) << name;
  }
}

TEST(Module, a_constant_is_neither_trained_nor_saved_and_keeps_its_dtype) {
  WithTable m;
  EXPECT_EQ(names(m.named_parameters()), (std::vector<std::string>{"weight"}));
  EXPECT_TRUE(m.named_buffers().empty());
  EXPECT_EQ(m.state_dict().size(), 1u);
  EXPECT_FALSE(m.table.requires_grad());
  const std::vector<float> before = m.table.to_vector<float>();
  for (const DType dtype : {kBF16, kF64}) {
    m.to(dtype);
    EXPECT_EQ(m.weight.dtype(), dtype);
    EXPECT_EQ(m.table.dtype(), kF32);
    EXPECT_EQ(m.table.to_vector<float>(), before);
  }
}

TEST(Module, constants_move_with_the_module_to_a_device_and_in_memory) {
  WithTable alone;
  AroundTables all;
  WithTable moved = std::move(alone);
  all.tables.reserve(all.tables.capacity() + 1);
  for (const Device device : {Device(kCPU), default_device()}) {
    moved.to(device);
    all.to(device);
    EXPECT_EQ(moved.table.device(), device);
    for (const WithTable& m : all.tables) EXPECT_EQ(m.table.device(), device);
  }
}

TEST(Module, zero_grad_and_requires_grad_reach_every_parameter) {
  Outer m;
  m.first.weight.sum().add(m.second.weight.sum()).backward();
  m.zero_grad();
  for (const Tensor& x : m.parameters()) EXPECT_FALSE(x.grad().defined());
  m.requires_grad_(false);
  for (const Tensor& x : m.parameters()) EXPECT_FALSE(x.requires_grad());
}

TEST(Module, a_state_dict_restores_values_and_leaves_the_source_alone) {
  Outer from, to;
  {
    const NoGrad quiet;
    from.second.weight.fill_(7);
    from.first.count.fill_(3);
  }
  to.load_state_dict(from.state_dict());
  EXPECT_EQ(to.second.weight.sum().item<double>(), 42);
  EXPECT_EQ(to.first.count.item<int64_t>(), 3);
  EXPECT_FALSE(to.second.weight.is_same(from.second.weight));
  EXPECT_TRUE(to.second.weight.is_leaf());
}

TEST(Module, a_state_dict_that_does_not_fit_is_refused_by_name_and_changes_nothing) {
  Outer m;
  TensorMap state;
  for (const auto& [name, x] : m.state_dict()) state[name] = x.detach().mul(0);
  const auto with = [&](const std::string& name, const Tensor& value) {
    TensorMap changed = state;
    changed[name] = value;
    return changed;
  };
  EXPECT_NE(refusal<ShapeError>([&] {
              m.load_state_dict(with("second.weight", zeros({3, 2})));
            }).find("'second.weight'"),
            std::string::npos);
  EXPECT_NE(refusal<DTypeError>([&] {
              m.load_state_dict(with("second.weight", zeros({2, 3}, {kF64})));
            }).find("'second.weight'"),
            std::string::npos);
  EXPECT_NE(refusal<ValueError>([&] { m.load_state_dict(with("third.weight", zeros({1}))); }).find("'third.weight'"),
            std::string::npos);
  EXPECT_NE(refusal<ValueError>([&] {
              m.load_state_dict(with("third.weight", zeros({1})));
            }).find("the module's names: first."),
            std::string::npos);
  TensorMap missing = state;
  missing.erase("scale");
  EXPECT_NE(refusal<ValueError>([&] { m.load_state_dict(missing); }).find("'scale'"), std::string::npos);
  EXPECT_EQ(m.first.weight.sum().item<double>(), 6);
  EXPECT_EQ(m.second.weight.sum().item<double>(), 12);
  missing["third.weight"] = zeros({1});
  m.load_state_dict(missing, false);
  EXPECT_EQ(m.scale.sum().item<double>(), 3);
  EXPECT_EQ(m.first.weight.sum().item<double>(), 0);
}

// ---- scopes ---------------------------------------------------------------------------------------------------------

struct Twice : Layer<Twice> {
  Twice() { add("up", up); }
  Tensor forward(const Tensor& x) const { return up(x).relu(); }
  Linear up{2, 2};
};
struct StackOfLinears : Layer<StackOfLinears> {
  StackOfLinears() {
    layers.emplace_back();
    layers.emplace_back();
    add("layers", layers);
  }
  Tensor forward(const Tensor& x) const { return layers[1](layers[0](x)) + 1; }
  ModuleList<Twice> layers;
};

TEST(Scopes, say_which_module_a_call_comes_from) {
  static std::vector<std::string> paths;
  static constexpr door::Listener kListener{.bit = kUserMode, .before = [](const door::CallView& call, void*&) {
                                              paths.push_back(std::string(name(call.op)) + " " + Scope::path());
                                            }};
  const StackOfLinears net;
  EXPECT_EQ(net.layers[1].up.path(), "layers.1.up");
  EXPECT_EQ(net.path(), "");
  paths.clear();
  {
    const door::ListenerScope listening(kListener);
    const NoGrad quiet;
    net(ones({1, 2}));
    const Scope evaluation("evaluation");
    net.layers[0].forward(ones({1, 2}));
  }
  EXPECT_EQ(paths, (std::vector<std::string>{"empty ", "fill ", "linear layers.0.up", "relu layers.0",
                                             "linear layers.1.up", "relu layers.1", "add ", "empty evaluation",
                                             "fill evaluation", "linear evaluation/layers.0.up", "relu evaluation"}));
  EXPECT_EQ(Scope::path(), "");
  EXPECT_EQ(Scope::innermost(), nullptr);
}

TEST(Scopes, close_when_a_module_throws) {
  const Linear layer(2, 3);
  EXPECT_THROW(layer(ones({5})), ShapeError);
  EXPECT_EQ(Scope::innermost(), nullptr);
}

}  // namespace
}  // namespace lorry::nn
