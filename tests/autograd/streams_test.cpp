// Backward over a forward pass that ran on several streams. Delays make a missing fence show: whoever does not wait
// reads memory before it is written, or memory that somebody else has been given. LORRY_TEST_SCALE multiplies the
// random graphs.

#include <gtest/gtest.h>

#include <random>

#include "lorry/autograd/engine.h"
#include "lorry/device/fence.h"
#include "lorry/ops/ops.h"
#include "tests/support/on_cuda.h"
#include "tests/support/scale.h"

namespace lorry {
namespace {

using test::kGPU;

/// Keeps a stream busy for some tens of milliseconds.
void delay(Stream stream) {
  static const Tensor square = zeros({4096, 4096}, {kF32, kGPU});
  const NoGrad quiet;
  const StreamScope there(stream);
  for (int i = 0; i < 20; ++i) (void)square.matmul(square);
}

std::vector<float> numbers(const Tensor& x) { return x.detach().cpu().to_vector<float>(); }

class StreamsOfBackward : public testing::Test {
 protected:
  void SetUp() override {
    LORRY_SKIP_WITHOUT_CUDA();
    for (int i = 0; i < 3; ++i) streams_.emplace_back(kGPU);
  }
  Stream stream(size_t i) const { return i == 0 ? Stream{kGPU} : Stream(streams_[i - 1]); }
  std::vector<OwnedStream> streams_;
};

TEST_F(StreamsOfBackward, a_loss_of_another_stream_is_walked_after_its_forward) {
  const Tensor x = full({1 << 20}, 3.0, {kF32, kGPU}).requires_grad_();
  Tensor loss;
  delay(stream(1));
  {
    fence(stream(0), stream(1));
    const StreamScope there(stream(1));
    const Tensor h = x.mul(2);
    loss = h.mul(h).sum();
  }
  loss.backward();  // on the default stream, which does not know of the other
  EXPECT_EQ(numbers(x.grad()), std::vector<float>(1 << 20, 24));
}

TEST_F(StreamsOfBackward, captured_and_retained_gradients_belong_to_the_callers_stream) {
  const Tensor x = full({1 << 20}, 3.0, {kF32, kGPU}).requires_grad_();
  Tensor loss, h;
  {
    fence(stream(0), stream(1));
    const StreamScope there(stream(1));
    h = x.mul(2);
    h.retain_grad();
    h.register_hook([&](const Tensor& g) {
      EXPECT_EQ(current_stream(kGPU), stream(1));
      delay(stream(1));
      return g.mul(5);
    });
    loss = h.mul(h).sum();
  }
  const StreamScope caller(stream(2));
  const auto got = autograd::grad({loss}, {x, h}, {}, {.retain_graph = true});
  EXPECT_EQ(current_stream(kGPU), stream(2));
  EXPECT_EQ(numbers(got[0]), std::vector<float>(1 << 20, 120));
  EXPECT_EQ(numbers(got[1]), std::vector<float>(1 << 20, 60));
  EXPECT_EQ(numbers(h.grad()), std::vector<float>(1 << 20, 60));
}

/// A value of a random graph, and the stream that made it.
struct Made {
  Tensor on_gpu, on_cpu;
  Stream stream;
};

TEST_F(StreamsOfBackward, random_graphs_over_several_streams_give_the_gradients_of_the_cpu) {
  for (int64_t graph = 0; graph < test::scaled(20); ++graph) {
    SCOPED_TRACE(graph);
    std::mt19937 random(static_cast<uint32_t>(graph));
    const auto any = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
    std::vector<Made> values;
    std::vector<std::pair<Tensor, Tensor>> leaves;
    for (int i = 0; i < 3; ++i) {
      const Tensor host = rand({256, 256}, {kF32, kCPU}).sub(0.5).requires_grad_();
      const Tensor there = host.detach().to(kGPU).requires_grad_();
      leaves.emplace_back(there, host);
      values.push_back({there, host, stream(0)});
    }
    for (int i = 0; i < 15; ++i) {
      const Made a = values[any(values.size())], b = values[any(values.size())];
      const Stream here = stream(any(4));
      for (const Made* input : {&a, &b}) {
        fence(input->stream, here);
        input->on_gpu.record_stream(here);
      }
      if (any(5) == 0) delay(here);
      const size_t which = any(4);
      const auto compute = [&](const Tensor& p, const Tensor& q) {
        return which == 0 ? p.mul(q) : which == 1 ? p.sin().add(q) : which == 2 ? p.tanh() : p.matmul(q).mul(0.1);
      };
      const StreamScope there(here);
      values.push_back({compute(a.on_gpu, b.on_gpu), compute(a.on_cpu, b.on_cpu), here});
      if (any(5) == 0)
        values.back().on_gpu.register_hook([here](const Tensor&) {
          delay(here);
          return Tensor();
        });
    }
    Tensor on_gpu, on_cpu;
    {
      const StreamScope there(stream(1));
      on_gpu = zeros({}, {kF32, kGPU});
      on_cpu = zeros({}, {kF32, kCPU});
      for (size_t i = 3; i < values.size(); ++i) {
        fence(values[i].stream, stream(1));
        values[i].on_gpu.record_stream(stream(1));
        on_gpu = on_gpu.add(values[i].on_gpu.sum());
        on_cpu = on_cpu.add(values[i].on_cpu.sum());
      }
    }
    values.clear();
    const StreamScope caller(stream(any(4)));
    on_gpu.backward();
    on_cpu.backward();
    on_gpu = Tensor();
    for (const auto& [there, host] : leaves) {
      if (!host.grad().defined()) continue;
      const Tensor got = there.grad().cpu(), expected = host.grad();
      EXPECT_LT(got.sub(expected).norm().item<double>(), 1e-3 * (1 + expected.norm().item<double>()));
    }
  }
}

}  // namespace
}  // namespace lorry
