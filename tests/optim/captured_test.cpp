// A step that is captured into a device graph and replayed.

#include <cuda_runtime_api.h>

#include "lorry/device/cuda/runtime.h"
#include "tests/optim/support.h"
#include "tests/support/on_cuda.h"

namespace lorry::optim::test {
namespace {

using lorry::test::kGPU;

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
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replayed = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(lorry::cuda::handle(stream), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  tensors.step();
  ASSERT_EQ(cudaStreamEndCapture(lorry::cuda::handle(stream), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replayed, graph, 0), cudaSuccess);
  for (int step = 0; step < 4; ++step) {
    numbers.set_lr(rates[step]);
    numbers.set("weight_decay", decays[step]);
    numbers.step();
    if (step == 0) continue;
    lr.fill_(rates[step]), decay.fill_(decays[step]);
    ASSERT_EQ(cudaGraphLaunch(replayed, lorry::cuda::handle(stream)), cudaSuccess);
  }
  EXPECT_EQ(values(a.to(kCPU)), values(expected));
  cudaGraphExecDestroy(replayed);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace lorry::optim::test
