// What lorry/lorry.h alone gives. This file includes nothing else of Lorry: what a user reaches for must come with it.
#include "lorry/lorry.h"

#include <gtest/gtest.h>

namespace {

using namespace lorry;

TEST(LorryH, gives_gradients_of_gradients) {
  const Tensor x = tensor({2.0, 3.0}).requires_grad_();
  const Tensor first = autograd::grad({(x * x * x).sum()}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(first.to_vector<double>(), (std::vector<double>{12, 27}));
  const Tensor second = autograd::grad({first.sum()}, {x})[0];
  EXPECT_EQ(second.to_vector<double>(), (std::vector<double>{12, 18}));
  const NoGrad quiet;
  EXPECT_FALSE(grad_enabled());
}

TEST(LorryH, gives_devices_streams_and_threads) {
  device::synchronize(kCPU);
  EXPECT_EQ(device::count(DeviceType::cpu), 1);
  const int before = cpu::threads();
  cpu::set_threads(1);
  EXPECT_EQ(cpu::threads(), 1);
  cpu::set_threads(before);
  const OwnedStream stream(kCPU);
  const StreamScope scope(stream);
  const Event event(kCPU);
  event.record(stream);
  event.synchronize();
  EXPECT_TRUE(event.done());
  EXPECT_GE(memory::stats(kCPU).reserved, 0);
}

TEST(LorryH, gives_the_events_that_a_program_may_listen_to) {
  int copies = 0;
  const events::Handler before =
      events::set_handler([&](const events::Event& event) { copies += event.kind == events::Kind::hidden_copy; });
  events::emit(events::Kind::hidden_copy, "test", "a copy");
  events::set_handler(before);
  EXPECT_EQ(copies, 1);
}

TEST(LorryH, gives_dlpack) {
  const Tensor x = arange(6).reshape({2, 3});
  const Tensor y = dlpack::from_dlpack(dlpack::to_dlpack(x));
  EXPECT_EQ(y.data_ptr(), x.data_ptr());
  EXPECT_TRUE(y.equal(x));
}

TEST(LorryH, gives_rules_of_ones_own_lists_and_files) {
  const Tensor w = ones({2}).requires_grad_();
  const auto descend = [](auto& param, auto grad, auto*, const auto& h) { param = param - h.lr * grad; };
  optim::Custom optimizer({{"w", w}}, optim::rule<0>(descend, 0.25));
  w.set_grad(ones({2}));
  optimizer.step();
  EXPECT_EQ(w.detach().to_vector<double>(), (std::vector<double>{0.75, 0.75}));
  const foreach::TensorList list{ones({2}), ones({3})};
  foreach::mul_(list, 2);
  EXPECT_EQ(foreach::total_norm(list, 1).item<double>(), 10);
  EXPECT_EQ(optim::parse_execution("loop"), optim::Execution::loop);
  EXPECT_EQ(nn::gpt_preset("nano").layers, 4);
  EXPECT_THROW(io::load_safetensors("no such file"), Error);
}

}  // namespace
