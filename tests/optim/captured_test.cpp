// A step that is captured into a device graph and replayed.

#include <cuda_runtime_api.h>

#include "lorry/device/cuda/runtime.h"
#include "lorry/optim/loss_scaler.h"
#include "tests/optim/support.h"
#include "tests/support/on_cuda.h"

namespace lorry::optim::test {
namespace {

using lorry::test::kGPU;

/// What was enqueued on a stream while it was captured.
class Replay {
 public:
  template <class F>
  Replay(const Stream& stream, const F& enqueue) : stream_(lorry::cuda::handle(stream)) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    enqueue();
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  }
  ~Replay() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  void operator()() const { ASSERT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

TEST(CapturedStep, reads_settings_in_tensors_when_it_is_replayed) {
  LORRY_SKIP_WITHOUT_CUDA();
  const double rates[] = {0.5, 0.25, 0.125, 0.75}, decays[] = {0.25, 0, 0.5, 0.125};
  const Tensor expected = parameter(tensor_of({1, -2, 3}, {3}).to(kCPU)), a = parameter(expected.detach().to(kGPU));
  expected.set_grad(full({3}, 0.5, {.device = kCPU})), a.set_grad(full({3}, 0.5, {.device = kGPU}));
  AdamW numbers({{"a", expected}}, {}, Execution::fused), tensors({{"a", a}}, {}, Execution::fused);
  const Tensor lr = full({}, rates[0], {.device = kGPU}), decay = full({}, decays[0], {.device = kGPU});
  tensors.set_lr(lr);
  tensors.set("weight_decay", decay);
  const OwnedStream stream(kGPU);
  current_stream(kGPU).synchronize();
  const StreamScope scope(stream);
  tensors.step();  // what a step needs is made outside the capture
  const Replay replay(stream, [&] { tensors.step(); });
  for (int step = 0; step < 4; ++step) {
    numbers.set_lr(rates[step]);
    numbers.set("weight_decay", decays[step]);
    numbers.step();
    if (step == 0) continue;
    lr.fill_(rates[step]), decay.fill_(decays[step]);
    replay();
  }
  EXPECT_EQ(values(a.to(kCPU)), values(expected));
}

TEST(CapturedStep, adapts_its_loss_scale_when_it_is_replayed) {
  LORRY_SKIP_WITHOUT_CUDA();
  const LossScalerOptions options{.scale = 4, .growth = 2, .backoff = 0.5, .interval = 3};
  const auto train = [](const Tensor& a, SGD& sgd, LossScaler& scaler) {
    a.grad().mul_(scaler.current_scale());
    scaler.step(sgd);
    scaler.update();
  };
  const auto gradient = [](int step) { return step % 7 == 5 ? double{INFINITY} : 0.25 * step; };
  const Tensor expected = parameter(tensor_of({1, -2, 3}, {3}).to(kCPU)), a = parameter(expected.detach().to(kGPU));
  expected.set_grad(zeros({3}, {.device = kCPU})), a.set_grad(zeros({3}, {.device = kGPU}));
  SGD by_hand({{"a", expected}}, {.lr = 0.5}), sgd({{"a", a}}, {.lr = 0.5});
  LossScaler eager(options, kCPU), scaler(options, kGPU);
  const OwnedStream stream(kGPU);
  current_stream(kGPU).synchronize();
  const StreamScope scope(stream);
  train(a, sgd, scaler);  // what a step needs is made outside the capture
  const Replay replay(stream, [&] { train(a, sgd, scaler); });
  for (int step = 0; step < 20; ++step) {
    expected.grad().fill_(step == 0 ? 0 : gradient(step));
    train(expected, by_hand, eager);
    if (step == 0) continue;
    a.grad().fill_(gradient(step));
    replay();
    ASSERT_EQ(scaler.current_scale().item<double>(), eager.current_scale().item<double>()) << step;
  }
  EXPECT_EQ(values(a.to(kCPU)), values(expected));
}

}  // namespace
}  // namespace lorry::optim::test
