// Loss scaling: the scale's course is GradScaler's, a scaled step is the step, and a step that overflows is none.

#include "lorry/optim/loss_scaler.h"

#include <cmath>

#include "lorry/compile/compile.h"
#include "lorry/optim/clip.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

double scale_of(const LossScaler& scaler) { return scaler.current_scale().item<double>(); }

/// A gradient of two elements, the second one infinite on demand.
void give(const Tensor& param, double first, bool overflows = false) {
  param.set_grad(tensor_of({first, overflows ? INFINITY : 1}, {2}, param.dtype()));
}

TEST(LossScaler, the_scale_grows_after_an_interval_and_backs_off_at_an_overflow) {
  const Tensor a = parameter({1, 2});
  SGD sgd({{"a", a}}, {.lr = 0.001});
  LossScaler scaler({.scale = 8, .growth = 4, .backoff = 0.25, .interval = 3});
  double scale = 8;  // GradScaler's rule, on the host
  int good = 0;
  std::mt19937_64 random(1);
  for (int step = 0; step < 40; ++step) {
    const bool overflows = random() % 5 == 0;
    give(a, 1, overflows);
    scaler.step(sgd);
    scaler.update();
    if (overflows) {
      scale *= 0.25, good = 0;
    } else if (++good == 3) {
      scale *= 4, good = 0;
    }
    ASSERT_EQ(scale_of(scaler), scale) << step;
    ASSERT_EQ(scaler.state_dict().at("growth_tracker").item<double>(), good) << step;
  }
  scaler.update();
  EXPECT_EQ(scale_of(scaler), scale) << "an update without a step changes nothing";
}

TEST(LossScaler, a_scaled_step_is_the_step) {
  const Tensor x = tensor_of({0.5, -3, 2}, {3}), a = parameter({1, 2, 3}), b = parameter({1, 2, 3});
  const auto loss = [&](const Tensor& w) { return w.mul(x).sin().sum(); };
  AdamW scaled({{"w", a}}), plain({{"w", b}});
  LossScaler scaler({.scale = 1024, .interval = 4});  // powers of two change no bit
  for (int step = 0; step < 10; ++step) {
    scaled.zero_grad();
    plain.zero_grad();
    scaler.scale(loss(a)).backward();
    loss(b).backward();
    const Tensor norm = scaler.step(scaled);
    scaler.update();
    EXPECT_NEAR(norm.item<double>(), get_total_norm({b.grad()}).item<double>(), 1e-12);
    plain.step();
    ASSERT_EQ(bits(a), bits(b)) << step;
  }
  EXPECT_EQ(scale_of(scaler), 4096);
}

TEST(LossScaler, an_update_does_not_touch_what_an_earlier_backward_reads) {
  for (const DType dtype : {kF32, kF64}) {
    const Tensor a = parameter({1, 2}, dtype);
    SGD sgd({{"a", a}}, {.lr = 0});
    LossScaler scaler({.scale = 8, .growth = 2, .interval = 1});
    const Tensor loss = scaler.scale(a.sum());
    give(a, 1);
    scaler.step(sgd);
    scaler.update();
    EXPECT_EQ(scale_of(scaler), 16);
    sgd.zero_grad();
    loss.backward();
    EXPECT_EQ(values(a.grad()), (std::vector<double>{8, 8}));
  }
}

TEST(LossScaler, state_is_written_in_place) {
  const Tensor a = parameter({1, 2});
  SGD sgd({{"a", a}}, {.lr = 0.5});
  LossScaler scaler({.scale = 8, .growth = 2, .interval = 1});
  const Tensor scale = scaler.current_scale();
  const void* const address = scale.data_ptr();
  give(a, 1);
  scaler.step(sgd);
  scaler.update();
  EXPECT_EQ(scale.item<double>(), 16);
  scaler.load_state_dict({{"scale", full({}, 4.0, {.dtype = kF64})}, {"growth_tracker", zeros({}, {.dtype = kF64})}});
  EXPECT_EQ(scale.item<double>(), 4);
  EXPECT_EQ(scaler.current_scale().data_ptr(), address);
}

/// A compiled step goes on adapting the scale, whether the update is part of it or not: the course of the eager one,
/// overflows included.
TEST(LossScaler, a_compiled_step_adapts_the_scale) {
  for (const bool updates_inside : {true, false}) {
    const LossScalerOptions options{.scale = 4, .growth = 2, .backoff = 0.5, .interval = 3};
    const Tensor a = parameter({1, 2}, kF32), b = parameter({1, 2}, kF32), x = tensor_of({1, 1}, {2});
    SGD eager({{"w", a}}, {.lr = 0.125}), sgd({{"w", b}}, {.lr = 0.125});
    LossScaler by_hand(options), scaler(options);
    const auto step = [&](const Tensor& x, const Tensor& w, SGD& optimizer, LossScaler& with) {
      optimizer.zero_grad();
      with.scale(w.mul(x).sum()).backward();
      with.step(optimizer);
      if (updates_inside) with.update();
    };
    const auto compiled = compile([&](const Tensor& x) { step(x, b, sgd, scaler); });
    for (int k = 0; k < 20; ++k) {
      const Tensor data = k % 7 == 5 ? full({2}, INFINITY) : x;
      step(data, a, eager, by_hand);
      compiled(data);
      if (!updates_inside) by_hand.update(), scaler.update();
      ASSERT_EQ(scale_of(scaler), scale_of(by_hand)) << k;
      ASSERT_EQ(bits(b), bits(a)) << k;
    }
    EXPECT_GT(compiled.stats().hits, 10) << compiled.explain();
  }
}

TEST(LossScaler, f16_gradients_that_would_vanish_arrive) {
  const Tensor a = parameter({1}, kF16), b = parameter({1}, kF16);
  const auto loss = [](const Tensor& w) { return w.mul(1e-4).mul(1e-4).sum(); };  // the gradient, 1e-8, is none in f16
  SGD with({{"w", a}}, {.lr = 1e6, .memory = {.masters = Masters::f32}}),
      without({{"w", b}}, {.lr = 1e6, .memory = {.masters = Masters::f32}});
  LossScaler scaler({.scale = 32768});
  scaler.scale(loss(a)).backward();
  scaler.step(with);
  loss(b).backward();
  EXPECT_EQ(values(b.grad())[0], 0);
  without.step();
  EXPECT_EQ(values(b)[0], 1);
  EXPECT_NEAR(values(a)[0], 0.99, 1e-3);
}

TEST(LossScaler, a_step_that_overflows_writes_nothing_and_does_not_count) {
  for (const DType dtype : {kF32, kF16, kBF16}) {
    const Tensor a = parameter({1, 2}, dtype);
    AdamW adamw({{"a", a}}, {.memory = {.masters = Masters::f32}});
    LossScaler scaler({.scale = 4});
    give(a, 1);
    scaler.step(adamw);
    scaler.update();
    const std::string before = bits(a);
    give(a, 1, /*overflows=*/true);
    EXPECT_FALSE(std::isfinite(scaler.step(adamw).item<double>()));
    scaler.update();
    EXPECT_EQ(bits(a), before);
    EXPECT_EQ(adamw.state_dict().at("a.step").item<double>(), 1);
    EXPECT_EQ(scale_of(scaler), 2);
  }
}

TEST(LossScaler, clips_as_clip_grad_norm_does) {
  const Tensor a = parameter({1, 2}), b = parameter({1, 2});
  SGD scaled({{"w", a}}, {.lr = 1}), plain({{"w", b}}, {.lr = 1});
  LossScaler scaler({.scale = 64});
  a.set_grad(tensor_of({3 * 64, 4 * 64}, {2}));
  b.set_grad(tensor_of({3, 4}, {2}));
  EXPECT_EQ(scaler.step(scaled, 0.5).item<double>(), 5);
  clip_grad_norm_({b}, 0.5);
  plain.step();
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(values(a)[i], values(b)[i], 1e-6);
  a.set_grad(tensor_of({64, 0}, {2}));
  const std::vector<double> before = values(a);
  scaler.step(scaled, 2);
  EXPECT_EQ(values(a)[0], before[0] - 1) << "a norm below the limit is left alone";
}

TEST(LossScaler, an_overflow_in_one_of_two_optimizers_holds_back_that_one_and_the_scale) {
  const Tensor a = parameter({1, 2}), b = parameter({1, 2});
  SGD one({{"a", a}}, {.lr = 1}), two({{"b", b}}, {.lr = 1});
  LossScaler scaler({.scale = 1, .interval = 1});
  give(a, 1, /*overflows=*/true);
  give(b, 1);
  scaler.step(one);
  scaler.step(two);
  scaler.update();
  EXPECT_EQ(values(a), (std::vector<double>{1, 2}));
  EXPECT_EQ(values(b), (std::vector<double>{0, 1}));
  EXPECT_EQ(scale_of(scaler), 0.5);
}

TEST(LossScaler, goes_on_from_its_state) {
  const Tensor a = parameter({1, 2});
  SGD sgd({{"a", a}});
  LossScaler one({.scale = 16, .interval = 3}), two({.scale = 1, .interval = 3});
  for (int step = 0; step < 5; ++step) {
    give(a, 1);
    one.step(sgd);
    one.update();
    if (step == 1) two.load_state_dict(one.state_dict());
    if (step < 2) continue;
    two.step(sgd);
    two.update();
    EXPECT_EQ(scale_of(two), scale_of(one)) << step;
  }
  TensorMap state = one.state_dict();
  state.erase("scale");
  EXPECT_EQ(message<FormatError>([&] { one.load_state_dict(state); }), "loss_scaler: state 'scale' is missing");
  state["scale"] = tensor_of({1}, {1});
  EXPECT_NE(message<FormatError>([&] { one.load_state_dict(state); }).find("state 'scale' is no number"),
            std::string::npos);
}

TEST(LossScaler, options_out_of_their_domain_are_refused) {
  const auto text = [](const LossScalerOptions& o) { return message<ValueError>([&] { LossScaler x(o); }); };
  EXPECT_EQ(text({.scale = 0}), "loss_scaler: scale is out of range; got 0; expected a finite number > 0");
  EXPECT_EQ(text({.growth = 1}), "loss_scaler: growth is out of range; got 1; expected a finite number > 1");
  EXPECT_EQ(text({.backoff = 1}), "loss_scaler: backoff is out of range; got 1; expected 0 < backoff < 1");
  EXPECT_EQ(text({.interval = 0}), "loss_scaler: interval is out of range; got 0; expected at least 1");
}

}  // namespace
}  // namespace lorry::optim::test
