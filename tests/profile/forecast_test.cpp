// Forecasts against the allocator: the same step is forecast on meta and run on the device.

#include "lorry/profile/forecast.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lorry/lorry.h"
#include "lorry/nn/gpt.h"
#include "lorry/profile/session.h"
#include "tests/support/on_cuda.h"
#include "tests/support/sanitizer.h"

namespace lorry {
namespace {

using profile::forecast_memory;
using profile::MemoryForecast;
using profile::ModuleMemory;
using profile::TrainingStep;
using Make = std::function<TrainingStep(Device)>;

struct Net : nn::Layer<Net> {
  explicit Net(Device device)
      : up(64, 1024, true, {.device = device}),
        middle(1024, 1024, true, {.device = device}),
        down(1024, 16, true, {.device = device}) {
    add("up", up), add("middle", middle), add("down", down);
  }
  Tensor forward(const Tensor& x) const { return down(middle(up(x).relu()).relu()); }
  nn::Linear up, middle, down;
};

Make mlp(int64_t batch) {
  return [batch](Device device) {
    auto model = std::make_shared<Net>(device);
    auto adamw = std::make_shared<optim::AdamW>(model->named_parameters());
    const Tensor x = zeros({batch, 64}, {.device = device});
    return TrainingStep{.model = model,
                        .loss = [=] { return (*model)(x).square().mean(); },
                        .update = [=] { adamw->step(), adamw->zero_grad(); }};
  };
}

Make gpt(int64_t batch, double dropout = 0) {
  return [=](Device device) {
    nn::GPTConfig config = nn::gpt_preset("nano");
    config.dropout = dropout;
    auto model = std::make_shared<nn::GPT>(config, Options{.device = device});
    auto adamw = std::make_shared<optim::AdamW>(model->named_parameters());
    const Tensor tokens = zeros({batch, config.context}, {kI64, device});
    return TrainingStep{.model = model,
                        .loss = [=] { return model->loss(tokens, tokens); },
                        .update = [=] { adamw->step(), adamw->zero_grad(); }};
  };
}

/// What the allocator counts when the step is run.
struct Measured {
  int64_t peak, activations, gradients, states;
};
Measured measure(Device device, const Make& make) {
  const auto allocated = [&] { return memory::stats(device).allocated; };
  const int64_t before = allocated();
  const TrainingStep step = make(device);
  const int64_t made = allocated();
  memory::reset_peak(device);
  const int64_t at_peak_before = memory::stats(device).peak_allocated;
  EXPECT_EQ(at_peak_before, made);
  Measured found{};
  step.loss().backward();
  step.update();
  found.states = allocated() - made;
  const int64_t idle = allocated();
  Tensor loss = step.loss();
  found.activations = allocated() - idle;
  loss.backward();
  loss = {};
  found.gradients = allocated() - idle;
  step.update();
  found.peak = memory::stats(device).peak_allocated - before;
  return found;
}

constexpr double kWithin = 0.05;
#define EXPECT_WITHIN(forecast, measured) \
  EXPECT_NEAR(static_cast<double>(forecast), static_cast<double>(measured), kWithin* static_cast<double>(measured))

void compare(const Make& make) {
  for (const Device device : test::all_devices()) {
    const Measured measured = measure(device, make);
    const MemoryForecast f = forecast_memory(device, make);
    // Libraries of a GPU take workspaces, which a forecast does not have.
    const double workspaces = device.is_cuda() ? 32 << 20 : 0;
    EXPECT_GE(static_cast<double>(measured.peak), (1 - kWithin) * static_cast<double>(f.peak));
    EXPECT_LE(static_cast<double>(measured.peak), (1 + kWithin) * static_cast<double>(f.peak) + workspaces);
    EXPECT_WITHIN(f.activations, measured.activations) << f.activations << " and " << measured.activations;
    EXPECT_WITHIN(f.gradients, measured.gradients) << f.gradients << " and " << measured.gradients;
    EXPECT_WITHIN(f.states, measured.states) << f.states << " and " << measured.states;
  }
}

TEST(Forecast, of_an_mlp_is_what_the_allocator_counts) {
  if (default_device().is_cuda()) GTEST_SKIP() << "libraries of a GPU take workspaces, which a forecast does not have";
  for (const int64_t batch : {1, 8, 512}) {
    SCOPED_TRACE(batch);
    compare(mlp(batch));
  }
}

TEST(Forecast, of_a_gpt_is_what_the_allocator_counts) {
  if (default_device().is_cuda()) GTEST_SKIP() << "libraries of a GPU take workspaces, which a forecast does not have";
  for (const int64_t batch : {1, 8}) {
    SCOPED_TRACE(batch);
    compare(gpt(batch));
  }
  compare(gpt(4, 0.1));
}

TEST(Forecast, rows_are_what_each_module_holds) {
  const MemoryForecast f = forecast_memory(kCPU, mlp(512));
  const auto row = [&](const std::string& path) {
    const auto found = std::ranges::find(f.modules, path, &ModuleMemory::path);
    return found != f.modules.end() ? *found : ModuleMemory{};
  };
  EXPECT_EQ(row("up").parameters, 4 * (64 * 1024 + 1024));
  EXPECT_EQ(row("middle").parameters, 4 * (1024 * 1024 + 1024));
  EXPECT_EQ(row("middle").gradients, row("middle").parameters);
  EXPECT_EQ(f.parameters, row("up").parameters + row("middle").parameters + row("down").parameters);
  EXPECT_EQ(row("down").activations, 4 * 512 * 16) << "its result, which square() keeps";
  EXPECT_EQ(row("").activations, 4 * (2 * 512 * 1024) + 64) << "the results of relu, and the loss";
  EXPECT_EQ(row("up").activations, 0) << "relu keeps its result, not its operand";
  EXPECT_EQ(f.rest, 4 * 512 * 64) << "the batch";
  EXPECT_EQ(f.between_steps(), f.parameters + f.states + f.rest);

  // The same of the real step.
  const TrainingStep real = mlp(512)(kCPU);
  const int64_t before = memory::stats(kCPU).allocated;
  const Tensor loss = real.loss();
  const int64_t rounding = test::kAddressSanitizer ? 60 : 0;  // there blocks are as large as what was asked for
  EXPECT_EQ(memory::stats(kCPU).allocated - before, f.activations - rounding);
}

TEST(Forecast, grows_with_the_batch_and_leaves_no_trace) {
  manual_seed(7);
  const auto state = default_generator().state();
  const int64_t allocated = memory::stats(kCPU).allocated;
  const MemoryForecast one = forecast_memory(kCPU, gpt(1, 0.1)), eight = forecast_memory(kCPU, gpt(8, 0.1));
  EXPECT_EQ(memory::stats(kCPU).allocated, allocated) << "nothing is taken on the device itself";
  EXPECT_EQ(default_generator().state(), state) << "dropout drew nothing";
  EXPECT_GT(eight.activations, 7 * one.activations);
  EXPECT_LT(eight.activations, 9 * one.activations);
  EXPECT_EQ(eight.states, one.states);
  EXPECT_EQ(eight.parameters, one.parameters);
  for (int i = 0; i < 4; ++i) {
    const auto path = fmt::format("block{}.attention.qkv", i);
    EXPECT_TRUE(std::ranges::find(eight.modules, path, &ModuleMemory::path) != eight.modules.end()) << path;
  }
}

TEST(Forecast, is_made_during_a_session_which_hears_its_own_memory_only) {
  profile::Session session;
  const MemoryForecast f = forecast_memory(kCPU, mlp(8));
  const Tensor mine = zeros({1 << 16}, {.device = kCPU});
  const profile::Recording r = session.stop();
  EXPECT_GT(f.peak, 0);
  int64_t taken = 0;
  for (const profile::MemoryRecord& x : r.memory) {
    EXPECT_EQ(r.names[static_cast<size_t>(x.allocator)], "cpu");
    taken += x.bytes;
  }
  EXPECT_EQ(taken, 4 << 16);
  for (const profile::SpanRecord& x : r.spans) EXPECT_NE(r.name_of(x), "linear");
}

TEST(Forecast, text_has_a_row_for_each_layer) {
  const MemoryForecast f = forecast_memory(kCPU, gpt(8));
  const std::string text = to_string(f), deep = to_string(f, 3);
  for (const char* row : {"tokens", "block0", "block3", "norm", "all", "optimizer's states", "peak"})
    EXPECT_NE(text.find(std::string("\n") + row), std::string::npos) << row << " in\n" << text;
  EXPECT_EQ(text.find("block0.mlp"), std::string::npos) << text;
  EXPECT_NE(deep.find("block0.mlp.up"), std::string::npos) << deep;
  const auto json = nlohmann::json::parse(to_json(f));
  EXPECT_EQ(json.at("peak_bytes").get<int64_t>(), f.peak);
  int64_t sum = 0;
  for (const auto& row : json.at("modules")) sum += row.at("activations_bytes").get<int64_t>();
  EXPECT_EQ(sum, f.activations);
  EXPECT_THROW(to_string(f, 0), ValueError);
}

TEST(Forecast, refuses_what_cannot_be_forecast) {
  EXPECT_THROW(forecast_memory(kMeta, mlp(1)), DeviceError);
  EXPECT_THROW(forecast_memory(kCPU, [](Device) { return TrainingStep{}; }), ValueError);
  EXPECT_THROW(forecast_memory(kCPU, [](Device) { return mlp(1)(kCPU); }), DeviceError) << "parameters elsewhere";
  const auto reads = [](Device device) {
    TrainingStep step = mlp(1)(device);
    step.loss = [loss = step.loss] {
      const Tensor x = loss();
      return x.mul(x.item<double>());
    };
    return step;
  };
  EXPECT_THROW(forecast_memory(kCPU, reads), DeviceError) << "meta has no elements";
  EXPECT_GT(forecast_memory(kCPU, mlp(1)).peak, 0) << "the next one works";
}

}  // namespace
}  // namespace lorry
