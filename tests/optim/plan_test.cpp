// What an optimizer keeps between steps, and what makes it look again: gradients that come, go and move, data that are
// swapped, hyper blocks that part, other optimizers, and versions.

#include <cmath>

#include "lorry/memory/memory.h"
#include "lorry/optim/clip.h"
#include "lorry/optim/loss_scaler.h"
#include "tests/optim/model.h"
#include "tests/optim/rules.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

using Adam3 = formula::AdamW<true>;

/// A course of events, played to an optimizer that stays and to one that is made anew, with the state of the one
/// before, for every step.
template <class Events>
void expect_that_plans_change_nothing(const Events& events, int steps) {
  for (const Execution execution : kExecutions) {
    std::string expected;
    for (const bool fresh : {true, false}) {
      Model model(7);
      const auto make = [&] { return std::make_unique<Any<Adam3>>(model.params, settings_of<Adam3>(1), execution); };
      auto optimizer = make();
      for (int step = 0; step < steps; ++step) {
        events(model, step);
        if (fresh) {
          TensorMap state = optimizer->state_dict();
          for (auto& [name, x] : state) x = x.clone();
          optimizer = make();
          optimizer->load_state_dict(state);
        }
        optimizer->step();
      }
      const std::string got = model.all_bits() + all_bits(*optimizer);
      if (fresh) expected = got;
      EXPECT_TRUE(got == expected) << name(execution);
    }
  }
}

// ---- gradients and parameters that change ---------------------------------------------------------------------------

TEST(Plan, gradients_that_are_replaced_are_seen) {
  expect_that_plans_change_nothing([](Model& model, int) { model.give_gradients(); }, 5);
}

TEST(Plan, one_gradient_among_many_that_is_replaced_is_seen) {
  expect_that_plans_change_nothing(
      [](Model& model, int step) {
        if (step == 0) return model.give_gradients();
        const Tensor& p = model.params[static_cast<size_t>(step) % model.params.size()].second;
        p.set_grad(random_tensor(model.random, p.sizes(), kF32));
      },
      25);
}

TEST(Plan, gradients_that_are_written_in_place_are_seen) {
  expect_that_plans_change_nothing(
      [](Model& model, int step) {
        if (step == 0) model.give_gradients();
        for (const auto& [name, p] : model.params) p.grad().mul_(0.5);
      },
      5);
}

TEST(Plan, gradients_that_go_and_come_back_are_seen) {
  expect_that_plans_change_nothing(
      [](Model& model, int step) {
        model.give_gradients();
        for (size_t i = 0; i < model.params.size(); ++i)
          if ((i + static_cast<size_t>(step)) % 3 == 0 || (step == 4 && i != 2)) model.params[i].second.set_grad({});
      },
      20);
}

TEST(Plan, data_that_are_swapped_are_seen) {
  expect_that_plans_change_nothing(
      [](Model& model, int step) {
        model.give_gradients();
        const Tensor& p = model.params[static_cast<size_t>(step) % 3].second;
        if (step % 2 == 1) p.set_data(random_tensor(model.random, p.sizes(), kF32));
      },
      9);
}

TEST(Plan, other_layouts_of_gradients_and_parameters_are_seen) {
  expect_that_plans_change_nothing(
      [](Model& model, int step) {
        model.give_gradients();
        const Tensor& p = model.params[2].second;  // [3, 5]
        const Tensor random = random_tensor(model.random, {5, 3}, kF32);
        if (step == 1 || step == 4) p.set_grad(random.t());
        if (step == 2) p.set_grad(ones({1}).expand({3, 5}));
        if (step == 3) p.set_data(random.t());
        if (step == 5) p.set_data(random_tensor(model.random, {3, 10}, kF32).narrow(1, 2, 5));
      },
      8);
}

TEST(Plan, a_gradient_that_is_restrided_in_place_is_seen) {
  for (const Execution execution : kExecutions) {
    const Tensor a = parameter(tensor_of({0, 0, 0, 0}, {2, 2})), grad = tensor_of({1, 2, 3, 4}, {2, 2});
    Any<formula::Sgd<false>> sgd({{"a", a}}, {.lr = 1}, execution);
    a.set_grad(grad);
    sgd.step();
    EXPECT_EQ(values(a), (std::vector<double>{-1, -2, -3, -4}));
    grad.t_();
    sgd.step();
    EXPECT_EQ(values(a), (std::vector<double>{-2, -5, -5, -8})) << name(execution);
  }
}

TEST(Plan, data_of_another_shape_at_the_same_address_are_refused) {
  const Tensor a = parameter(tensor_of({1, 2, 3, 4, 5, 6}, {2, 3}));
  SGD sgd({{"a", a}}, {.lr = 1});
  a.set_grad(ones({2, 3}));
  sgd.step();
  a.set_data(a.detach().view({3, 2}));
  EXPECT_THROW(sgd.step(), ShapeError);
  a.set_data(a.detach().view({2, 3}));
  sgd.step();
  EXPECT_EQ(values(a)[0], -1);
}

TEST(Plan, no_gradients_are_no_step) {
  for (const Execution execution : kExecutions) {
    Model model(1);
    Any<Adam3> idle(model.params, {}, execution);
    const std::string before = model.all_bits();
    idle.step();
    EXPECT_EQ(idle.step({.max_norm = 1, .skip_nonfinite = true, .zero_grad = true}).item<double>(), 0);
    idle.set_lr(0.5);
    idle.load_state_dict(idle.state_dict());
    idle.step();
    EXPECT_EQ(model.all_bits(), before);
    EXPECT_EQ(steps_of(idle, "p0"), 0);
  }
}

// ---- hyper blocks ---------------------------------------------------------------------------------------------------

TEST(Plan, every_parameter_counts_its_own_steps) {
  for (const Execution execution : kExecutions) {
    Model model(3, kF32, 6);
    Any<Adam3> together(model.params, settings_of<Adam3>(0), execution);
    Model apart_model(3, kF32, 6);
    std::vector<std::unique_ptr<Any<Adam3>>> apart;
    for (const auto& named : apart_model.params)
      apart.push_back(std::make_unique<Any<Adam3>>(std::vector{named}, settings_of<Adam3>(0), execution));
    std::vector<double> steps(6);
    for (uint64_t step = 0; step < 40; ++step) {
      model.give_gradients(), apart_model.give_gradients();
      for (size_t i = 0; i < 6; ++i) {
        if ((step * 2654435761u >> (i + 3)) % 3 == 0) {
          model.params[i].second.set_grad({}), apart_model.params[i].second.set_grad({});
        } else {
          ++steps[i];
        }
      }
      if (step == 20) {
        together.set_lr(0.05);
        for (const auto& x : apart) x->set_lr(0.05);
      }
      together.step();
      for (const auto& x : apart) x->step();
    }
    EXPECT_EQ(model.all_bits(), apart_model.all_bits()) << name(execution);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(steps_of(together, fmt::format("p{}", i)), steps[i]) << i;
  }
}

TEST(Plan, a_state_dict_of_parameters_that_went_apart_is_loaded_as_it_is) {
  Model model(4);
  AdamW one(model.params);
  for (int step = 0; step < 6; ++step) {
    model.give_gradients();
    for (size_t i = 0; i < model.params.size(); ++i)
      if (step > static_cast<int>(i)) model.params[i].second.set_grad({});
    one.step();
  }
  const std::string before = all_bits(one);
  AdamW two(model.params);
  two.load_state_dict(one.state_dict());
  EXPECT_EQ(all_bits(two), before);
}

TEST(Plan, a_learning_rate_is_felt_at_the_very_next_step_and_by_its_group_alone) {
  for (const Execution execution : kExecutions) {
    using Rule = formula::Sgd<false>;
    std::vector<Tensor> params;
    Any<Rule> sgd({}, {}, execution);
    for (int g = 0; g < 200; ++g) {
      params.push_back(parameter(zeros({1})));
      params.back().set_grad(tensor_of({-1}, {1}));
      sgd.add({{fmt::format("p{}", g), params.back()}}, {.lr = g * 1.0});
    }
    sgd.step();
    for (int g = 0; g < 200; ++g) EXPECT_EQ(values(params[static_cast<size_t>(g)])[0], g) << name(execution);
    sgd.set_lr(18, 0.5);  // group 0 is empty
    sgd.step();
    for (int g = 0; g < 200; ++g)
      EXPECT_EQ(values(params[static_cast<size_t>(g)])[0], g == 17 ? 17.5 : 2 * g) << name(execution);
    sgd.set_lr(1);
    sgd.step();
    for (int g = 0; g < 200; ++g)
      EXPECT_EQ(values(params[static_cast<size_t>(g)])[0], g == 17 ? 18.5 : 2 * g + 1) << name(execution);
  }
}

TEST(Plan, every_strategy_gives_the_same_bits) {
  std::string expected;
  for (int s = 0; s < kStrategies; ++s) {
    Model model(5, kF32, 150);
    AdamW adamw(model.params);
    for (int step = 0; step < 6; ++step) {
      if (step == 2) adamw.set_strategy(static_cast<Strategy>(s));
      model.give_gradients();
      adamw.step({.max_norm = 5});
    }
    if (s == 0) expected = model.all_bits();
    EXPECT_TRUE(model.all_bits() == expected) << lorry::name(static_cast<Strategy>(s));
  }
}

// ---- versions -------------------------------------------------------------------------------------------------------

TEST(Versions, a_tensor_that_was_saved_and_then_stepped_is_an_error_that_names_the_optimizer) {
  const Tensor a = parameter({1, 2}), x = parameter({3, 4});
  AdamW adamw({{"a", a}});
  for (int round = 0; round < 3; ++round) {
    const Tensor product = a.mul(x).sum();
    a.set_grad(ones({2}));
    adamw.step();
    const std::string text = message<GradError>([&] { product.backward(); });
    EXPECT_NE(text.find("adamw"), std::string::npos) << text;
  }
  a.mul(x).sum().backward();
}

TEST(Versions, what_is_not_stepped_keeps_its_version) {
  const Tensor a = parameter({1}), b = parameter({2}), x = parameter({3});
  SGD sgd({{"a", a}, {"b", b}}, {.lr = 0.5});
  for (const Tensor& p : {a, b}) p.set_grad(ones({1}));
  sgd.step();
  b.set_grad({});
  const Tensor product = b.mul(x).sum();
  sgd.step();  // moves a alone
  product.backward();
  EXPECT_EQ(values(x.grad())[0], 1.5);
  const Tensor again = b.mul(x).sum();
  sgd.step();  // b has a gradient now
  EXPECT_THROW(again.backward(), GradError);
}

TEST(Versions, data_that_were_swapped_out_are_not_counted_and_those_swapped_in_are) {
  const Tensor a = parameter({1}), x = parameter({3}), other = tensor_of({5}, {1}), first = a.detach();
  SGD sgd({{"a", a}}, {.lr = 0.5});
  a.set_grad(ones({1}));
  sgd.step();
  a.set_data(other);
  const uint32_t before = first.version(), swapped_in = other.version();
  sgd.step();
  EXPECT_EQ(first.version(), before);
  EXPECT_GT(other.version(), swapped_in);
}

TEST(Versions, two_optimizers_of_one_parameter_both_count) {
  const Tensor a = parameter({1}), x = parameter({3});
  auto sgd = std::make_unique<SGD>(std::vector<NamedTensor>{{"a", a}}, SGDOptions{.lr = 0.5});
  auto adamw = std::make_unique<AdamW>(std::vector<NamedTensor>{{"a", a}});
  a.set_grad(ones({1}));
  const auto expect_counted = [&](Optimizer& optimizer, const char* name) {
    const Tensor product = a.mul(x).sum();
    const uint32_t before = a.version();
    optimizer.step({.zero_grad = false});
    EXPECT_GT(a.version(), before);
    EXPECT_NE(message<GradError>([&] { product.backward(); }).find(name), std::string::npos) << name;
  };
  for (int round = 0; round < 2; ++round) expect_counted(*sgd, "sgd"), expect_counted(*adamw, "adamw");
  const uint32_t before = a.version();
  sgd.reset();
  EXPECT_EQ(a.version(), before);
  expect_counted(*adamw, "adamw");
  SGD third({{"a", a}});
  EXPECT_EQ(a.version(), before + 1);
  expect_counted(third, "sgd");
  expect_counted(*adamw, "adamw");
}

TEST(Versions, a_gradient_that_a_step_zeroes_is_counted_and_one_that_was_replaced_is_not) {
  const Tensor a = parameter({1}), x = parameter({3}), first = ones({1});
  SGD sgd({{"a", a}});
  a.set_grad(first);
  const Tensor product = first.mul(x).sum();
  sgd.step({.zero_grad = true});
  EXPECT_EQ(values(first)[0], 0);
  EXPECT_THROW(product.backward(), GradError);
  a.set_grad(ones({1}));
  const uint32_t before = first.version();
  sgd.step({.zero_grad = true});
  EXPECT_EQ(first.version(), before);
}

TEST(Versions, gradients_that_share_a_storage_count_while_one_of_them_is_left) {
  const Tensor a = parameter({1}), b = parameter({1}), x = parameter({3}), flat = ones({2});
  SGD sgd({{"a", a}, {"b", b}});
  const auto counted = [&](const Tensor& grad) {
    const uint32_t before = grad.version();
    sgd.step({.zero_grad = true});
    return grad.version() != before;
  };
  a.set_grad(flat.narrow(0, 0, 1)), b.set_grad(flat.narrow(0, 1, 1));
  EXPECT_TRUE(counted(flat));
  a.set_grad(ones({1}));
  EXPECT_TRUE(counted(flat)) << "b's gradient still lies in it";
  const Tensor outside = parameter({1});
  outside.set_grad(flat.narrow(0, 0, 1));
  outside.set_grad({});
  EXPECT_TRUE(counted(flat)) << "whatever else lay in it";
  b.set_grad(ones({1}));
  EXPECT_FALSE(counted(flat));
  // Parameters and gradients in one storage: a gradient that goes takes no parameter out of the count.
  const Tensor both = ones({2}), c = parameter(both.narrow(0, 0, 1)), d = parameter({1});
  SGD other({{"c", c}, {"d", d}});
  c.set_grad(ones({1})), d.set_grad(both.narrow(0, 1, 1));
  other.step();
  d.set_grad(ones({1}));
  const uint32_t before = both.version();
  other.step();
  EXPECT_GT(both.version(), before);
}

// ---- what a step does beside the update -----------------------------------------------------------------------------

TEST(StepOptions, clip_as_clip_grad_norm_does) {
  for (const DType dtype : {kF32, kF64, kBF16})
    for (const double max_norm : {0.5, 1e6}) {
      Model clipped(8, dtype), stepped(8, dtype);
      SGD by_hand(clipped.params, {.lr = 0.5, .momentum = 0.9}), at_once(stepped.params, {.lr = 0.5, .momentum = 0.9});
      for (int step = 0; step < 4; ++step) {
        clipped.give_gradients(), stepped.give_gradients();
        const double norm = clip_grad_norm_(clipped.tensors(), max_norm).item<double>();
        by_hand.step();
        EXPECT_EQ(at_once.step({.max_norm = max_norm}).item<double>(), norm);
      }
      // The factor is one f64 rounded to the type of computation, so that f32 and f64 agree to the bit; in 16 bits the
      // clipped gradient is rounded.
      for (size_t i = 0; i < clipped.params.size(); ++i) {
        const Tensor &a = clipped.params[i].second, &b = stepped.params[i].second;
        EXPECT_TRUE(dtype == kBF16 ? a.detach().to(kF64).allclose(b.detach().to(kF64), 0.02, 0.02) : bits(a) == bits(b))
            << i;
      }
    }
}

TEST(StepOptions, the_norm_of_gradients_of_another_layout_is_theirs) {
  const Tensor a = parameter(tensor_of({0, 0, 0, 0, 0, 0}, {2, 3}));
  SGD sgd({{"a", a}}, {.lr = 1});
  for (const double x : {2.0, 4.0}) {
    a.set_grad(full({3, 2}, x).t());
    EXPECT_NEAR(sgd.step({.max_norm = 1e9}).item<double>(), x * std::sqrt(6), 1e-12);
  }
  a.set_grad(full({1}, 8.0).expand({2, 3}));
  EXPECT_NEAR(sgd.step({.max_norm = 1e9}).item<double>(), 8 * std::sqrt(6), 1e-12);
  EXPECT_EQ(values(a)[5], -14);
}

TEST(StepOptions, a_step_that_is_left_out_does_not_count_and_leaves_no_infinite_gradient) {
  for (const Execution execution : kExecutions) {
    Model model(9);
    Any<Adam3> adam(model.params, settings_of<Adam3>(1), execution);
    model.give_gradients();
    adam.step({.skip_nonfinite = true});
    const std::string before = model.all_bits() + all_bits(adam);
    for (const double bad : std::vector<double>{INFINITY, NAN}) {
      for (const bool zero : {false, true}) {
        model.give_gradients();
        model.params[3].second.grad().fill_(bad);
        const std::string grad = bits(model.params[0].second.grad());
        EXPECT_FALSE(std::isfinite(adam.step({.skip_nonfinite = true, .zero_grad = zero}).item<double>()));
        EXPECT_EQ(model.all_bits() + all_bits(adam), before) << name(execution);
        EXPECT_EQ(bits(model.params[0].second.grad()) == grad, !zero);
        if (!zero) continue;
        for (const auto& [name, p] : model.params)
          EXPECT_EQ(values(p.grad()), std::vector<double>(static_cast<size_t>(p.numel()), 0)) << name;
      }
    }
  }
}

/// Everything that a step writes, all NaNs alike.
std::vector<std::string> all_numbers(const Model& model, const Optimizer& optimizer) {
  std::vector<std::string> all;
  const auto put = [&](const Tensor& x) {
    for (const double v : values(x)) all.push_back(std::isnan(v) ? "nan" : fmt::format("{}", v));
  };
  for (const auto& [name, p] : model.params) put(p);
  for (const auto& [name, x] : optimizer.state_dict()) put(x);
  return all;
}

TEST(StepOptions, a_norm_of_nan_makes_every_gradient_nan_where_the_step_is_not_left_out) {
  for (const Execution execution : kExecutions)
    for (const DType dtype : {kF32, kF64, kBF16})
      formula::Rules::each([&]<class Rule>() {
        const std::string where = fmt::format("{} {} {}", Rule::kName, name(execution), dtype);
        Model clipped(9, dtype), poor(9, dtype);
        Any<Rule> at_once(clipped.params, settings_of<Rule>(0), execution),
            by_hand(poor.params, settings_of<Rule>(0), execution);
        clipped.give_gradients(), poor.give_gradients();
        at_once.step(), by_hand.step();
        clipped.give_gradients();
        clipped.params[0].second.grad().zero_(), clipped.params[2].second.grad().fill_(INFINITY),
            clipped.params[3].second.grad().select(0, 1).fill_(NAN);
        for (const Tensor& p : poor.tensors()) p.grad().fill_(NAN);
        EXPECT_TRUE(std::isnan(values(at_once.step({.max_norm = 1}))[0]));
        by_hand.step();
        EXPECT_EQ(all_numbers(clipped, at_once), all_numbers(poor, by_hand)) << where;
      });
}

TEST(StepOptions, zeroed_gradients_are_those_of_this_step) {
  for (const Execution execution : kExecutions) {
    Model model(10), plain(10);
    const Tensor non_dense = empty_strided({3, 4}, {5, 1}).fill_(1);
    for (Model* m : {&model, &plain}) m->params.emplace_back("non_dense", parameter(non_dense.clone()));
    model.params.back().second.set_data(non_dense);
    Any<Adam3> zeroing(model.params, {}, execution), other(plain.params, {}, execution);
    for (int step = 0; step < 3; ++step) {
      model.give_gradients(), plain.give_gradients();
      if (step == 1) model.params.back().second.set_grad(model.params.back().second.grad().t().clone().t());
      zeroing.step({.zero_grad = true});
      other.step();
      for (const auto& [name, p] : model.params)
        EXPECT_EQ(values(p.grad()), std::vector<double>(static_cast<size_t>(p.numel()), 0)) << name;
    }
    EXPECT_EQ(model.all_bits(), plain.all_bits()) << name(execution);
  }
}

TEST(StepOptions, a_gradient_that_cannot_be_zeroed_is_refused_before_anything_moves) {
  const Tensor a = parameter({1, 1}), b = parameter({1});
  SGD sgd({{"a", a}, {"b", b}});
  a.set_grad(ones({1}).expand({2})), b.set_grad(ones({1}));
  EXPECT_THROW(sgd.step({.zero_grad = true}), ShapeError);
  EXPECT_EQ(values(b)[0], 1);
  sgd.step();
  EXPECT_LT(values(a)[1], 1);
}

TEST(StepOptions, gradients_that_share_memory_are_read_but_not_zeroed) {
  for (const Execution execution : kExecutions) {
    const Tensor a = parameter({1, 2}), b = parameter({3, 4}), shared = ones({2}), others = ones({4, 2});
    Any<formula::Sgd<false>> sgd({{"a", a}, {"b", b}}, {.lr = 0.5}, execution);
    const auto expect_refused = [&] {
      const std::vector<double> before = values(a);
      EXPECT_EQ(message<ValueError>([&] { sgd.step({.zero_grad = true}); }),
                "sgd: the gradients of 'a' and 'b' share memory; got zero_grad, which writes them; expected a gradient "
                "of its own for each parameter");
      EXPECT_EQ(values(a), before);
      EXPECT_EQ(values(a.grad()), (std::vector<double>{1, 1}));
    };
    a.set_grad(shared), b.set_grad(shared);
    expect_refused();
    sgd.step({.max_norm = 1e9});
    EXPECT_EQ(values(a)[0], 0.5);
    EXPECT_EQ(values(b)[0], 2.5);
    // Replaced one by one.
    a.set_grad(ones({2})), b.set_grad(ones({2}));
    sgd.step({.zero_grad = true});
    b.set_grad(ones({2})), a.set_grad(others.select(0, 1));
    sgd.step({.zero_grad = true});
    EXPECT_EQ(values(others.select(0, 1)), (std::vector<double>{0, 0}));
    a.set_grad(ones({2})), b.set_grad(a.grad());
    expect_refused();
    others.fill_(1);
    a.set_grad(others.select(1, 0).narrow(0, 0, 2)), b.set_grad(others.select(1, 1).narrow(0, 0, 2));  // interleaved
    sgd.step({.zero_grad = true});
    EXPECT_EQ(values(others), (std::vector<double>{0, 0, 0, 0, 1, 1, 1, 1})) << name(execution);
    a.set_grad(ones({2})), b.set_grad(from_blob(a.grad().data_ptr(), {2}, {.device = a.device()}));
    expect_refused();
  }
}

TEST(StepOptions, gradients_are_divided_by_the_scale) {
  for (const Execution execution : kExecutions) {
    Model scaled(11), plain(11);
    Any<Adam3> one(scaled.params, {}, execution), two(plain.params, {}, execution);
    const Tensor scale = tensor_of({1024}, {}, kF64);
    for (int step = 0; step < 3; ++step) {
      scaled.give_gradients(), plain.give_gradients();
      for (const auto& [name, p] : scaled.params) p.grad().mul_(1024);
      const double norm = one.step({.max_norm = 2, .scale = scale}).item<double>();
      EXPECT_EQ(two.step({.max_norm = 2}).item<double>(), norm);
    }
    EXPECT_EQ(scaled.all_bits(), plain.all_bits()) << "powers of two change no bit";
  }
  Model model(1);
  model.give_gradients();
  SGD sgd(model.params);
  EXPECT_THROW(sgd.step({.scale = tensor_of({1}, {}, kF32)}), DTypeError);
  EXPECT_THROW(sgd.step({.max_norm = -1}), ValueError);
}

TEST(StepOptions, a_loss_scaler_leaves_out_what_overflows) {
  Model model(12, kF16), plain(12, kF16);
  Any<Adam3> scaled(model.params, {}, Execution::fused, {.masters = Masters::f32}),
      other(plain.params, {}, Execution::fused, {.masters = Masters::f32});
  LossScaler scaler({.scale = 4, .interval = 1000});
  for (int step = 0; step < 6; ++step) {
    model.give_gradients(), plain.give_gradients();
    const double scale = scaler.current_scale().item<double>();
    for (const auto& [name, p] : model.params) p.grad().mul_(scale);
    if (step % 3 == 1) {
      model.params[2].second.grad().fill_(INFINITY);
    } else {
      other.step();
    }
    scaler.step(scaled);
    scaler.update();
    ASSERT_EQ(model.all_bits(), plain.all_bits()) << step;
  }
  EXPECT_EQ(steps_of(scaled, "p0"), 4);
  EXPECT_EQ(scaler.current_scale().item<double>(), 1);
}

// ---- masters --------------------------------------------------------------------------------------------------------

TEST(Masters, that_are_split_take_the_course_of_f32) {
  for (const Execution execution : kExecutions) {
    Model split(13, kBF16), whole(13, kBF16);
    Any<Adam3> by_halves(split.params, settings_of<Adam3>(1), execution, {.masters = Masters::split}),
        by_f32(whole.params, settings_of<Adam3>(1), execution, {.masters = Masters::f32});
    for (int step = 0; step < 50; ++step) {
      split.give_gradients(), whole.give_gradients();
      by_halves.step(), by_f32.step();
    }
    const TensorMap halves = by_halves.state_dict(), masters = by_f32.state_dict();
    for (size_t i = 0; i < split.params.size(); ++i) {
      const auto& [name, p] = split.params[i];
      const Tensor sum =
          p.detach().view(kI16).to(kI32).bitwise_left_shift(16).add(halves.at(name + ".remainder").to(kI32)).view(kF32);
      EXPECT_EQ(bits(sum), bits(masters.at(name + ".master"))) << name;
      EXPECT_EQ(bits(halves.at(name + ".exp_avg")), bits(masters.at(name + ".exp_avg"))) << name;
    }
  }
}

// ---- memory ---------------------------------------------------------------------------------------------------------

TEST(Plan, an_empty_cache_changes_nothing) {
  expect_that_plans_change_nothing(
      [](Model& model, int step) {
        if (step % 2 == 0) model.give_gradients();
        memory::empty_cache(default_device());
      },
      6);
}

}  // namespace
}  // namespace lorry::optim::test
