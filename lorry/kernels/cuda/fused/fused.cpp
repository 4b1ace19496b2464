// Fused pointwise calls on a GPU: a generated kernel (emit.h), compiled in the background (runtime_compiler.h).

#include "lorry/kernels/fused.h"

#include <optional>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/fused/map_arguments.h"
#include "lorry/kernels/cuda/fused/runtime_compiler.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

std::string architecture(int device) {
  return fmt::format("sm_{}", lorry::cuda::properties(device).compute_capability);
}

/// A call without elements has no kernel.
class CudaMapKernel final : public FusedKernel {
 public:
  CudaMapKernel(const FusedCall& call, int device) : CudaMapKernel(MapCall(call), device) {}

  bool ready() const override { return kernel_ == nullptr || kernel_->function() != nullptr; }
  void wait() const override {
    if (kernel_ != nullptr) kernel_->wait();
  }
  std::string source() const override { return source_; }

  void run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const override {
    if (kernel_ == nullptr) return;
    MapArgument::Words words;
    argument_->write(words, inputs, outputs);
    lorry::cuda::launch_compiled(stream, {argument_->blocks(), kMapBlock}, kernel_->function(), words.data(),
                                 argument_->type());
  }

 private:
  CudaMapKernel(const MapCall& call, int device) {
    const Walk walk(call);
    if (walk.iteration.numel() == 0) return;
    EmittedMap emitted = emit_map(call, walk);
    argument_.emplace(call, walk, emitted);
    source_ = std::move(emitted.source);
    kernel_ = RuntimeCompiler::get().kernel({std::move(emitted.name), source_}, architecture(device), device);
  }

  std::optional<MapArgument> argument_;
  std::string source_;
  std::shared_ptr<const RuntimeKernel> kernel_;
};

std::unique_ptr<const FusedKernel> make(const FusedCall& call, Device device) {
  return std::make_unique<CudaMapKernel>(call, device.index);
}

}  // namespace

const FusedKernels& fused_kernels() {
  static constexpr FusedKernels kKernels{.make = make, .warm_up = [] { RuntimeCompiler::get().warm_up(); }};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
