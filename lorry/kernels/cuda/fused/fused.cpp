// Fused calls on a GPU: kernels are generated (emit.h, emit_columns.h, emit_rows.h) and compiled in the background
// (runtime_compiler.h).

#include "lorry/kernels/fused.h"

#include <optional>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/tickets.h"
#include "lorry/kernels/cuda/fused/column_arguments.h"
#include "lorry/kernels/cuda/fused/map_arguments.h"
#include "lorry/kernels/cuda/fused/row_arguments.h"
#include "lorry/kernels/cuda/fused/runtime_compiler.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

/// A pointwise call. Without elements it has no kernel.
class CudaMapKernel final : public FusedKernel {
 public:
  CudaMapKernel(const FusedCall& call, int device) : CudaMapKernel(MapCall(call), device) {}

  bool ready() const override { return kernel_ == nullptr || kernel_->function() != nullptr; }
  void will_wait() const override {
    if (kernel_ != nullptr) kernel_->will_wait();
  }
  void wait() const override {
    if (kernel_ != nullptr) kernel_->wait();
  }
  std::string source() const override { return source_; }

  bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const override {
    if (kernel_ == nullptr) return true;
    ArgumentWords words;
    argument_->write(words, inputs, outputs);
    lorry::cuda::launch_compiled(stream, {argument_->blocks(), kMapBlock}, kernel_->function(), words.data(),
                                 argument_->type());
    return true;
  }

 private:
  CudaMapKernel(const MapCall& call, int device) {
    const Walk walk(call);
    if (walk.iteration.numel() == 0) return;
    EmittedMap emitted = emit_map(call, walk);
    argument_.emplace(call, walk, emitted);
    source_ = std::move(emitted.source);
    kernel_ = RuntimeCompiler::get().kernel({std::move(emitted.name), source_}, architecture_of(device), device);
  }

  std::optional<MapArgument> argument_;
  std::string source_;
  std::shared_ptr<const RuntimeKernel> kernel_;
};

/// A pointwise call with sums.
class CudaColumnKernel final : public FusedKernel {
 public:
  CudaColumnKernel(const MapCall& call, int device)
      : emitted_(emit_columns(call)),
        argument_(call, emitted_),
        sums_(static_cast<int64_t>(call.sums.size())),
        kernel_(RuntimeCompiler::get().kernel({emitted_.name, emitted_.source}, architecture_of(device), device)) {}

  bool ready() const override { return kernel_->function() != nullptr; }
  void will_wait() const override { kernel_->will_wait(); }
  void wait() const override { kernel_->wait(); }
  std::string source() const override { return emitted_.source; }

  bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const override {
    const ColumnTiling& tiling = emitted_.tiling;
    std::optional<Scratch> cells;
    std::optional<Tickets> tickets;
    if (tiling.parts > 1) {
      cells.emplace(sums_ * tiling.parts * tiling.part_cells * static_cast<int64_t>(sizeof(double)), stream);
      tickets.emplace(tiling.tiles, stream);
    }
    ArgumentWords words;
    if (!argument_.write(words, inputs, outputs, cells ? cells->data() : nullptr, tickets ? tickets->data() : nullptr))
      return false;
    lorry::cuda::launch_compiled(stream, {tiling.blocks(), kMapBlock}, kernel_->function(), words.data(),
                                 argument_.type());
    return true;
  }

 private:
  const EmittedColumns emitted_;
  const ColumnArgument argument_;
  const int64_t sums_;
  const std::shared_ptr<const RuntimeKernel> kernel_;
};

class CudaRowKernel final : public FusedKernel {
 public:
  CudaRowKernel(const RowCall& call, int device) : emitted_(emit_rows(call)), argument_(call, emitted_) {
    if (call.rows == 0) return;
    grid_ = emitted_.plan.grid(call.rows);
    kernel_ = RuntimeCompiler::get().kernel({emitted_.name, emitted_.source}, architecture_of(device), device);
  }

  bool ready() const override { return kernel_ == nullptr || kernel_->function() != nullptr; }
  void will_wait() const override {
    if (kernel_ != nullptr) kernel_->will_wait();
  }
  void wait() const override {
    if (kernel_ != nullptr) kernel_->wait();
  }
  std::string source() const override { return emitted_.source; }

  bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const override {
    if (kernel_ == nullptr) return true;
    ArgumentWords words;
    if (!argument_.write(words, inputs, outputs)) return false;
    lorry::cuda::launch_compiled(stream, {grid_, static_cast<unsigned>(emitted_.plan.block())}, kernel_->function(),
                                 words.data(), argument_.type());
    return true;
  }

 private:
  const EmittedRows emitted_;
  const RowArgument argument_;
  unsigned grid_ = 0;
  std::shared_ptr<const RuntimeKernel> kernel_;
};

std::unique_ptr<const FusedKernel> make_rows(const RowCall& call, Device device) {
  return std::make_unique<CudaRowKernel>(call, device.index);
}

int64_t row_distribution(const RowStep& step, DType dtype, int64_t n, std::string& why) {
  const std::optional<RowPlan> plan = plan_of(step, dtype, n, why);
  return plan ? static_cast<int64_t>(dtype) << 32 | plan->lanes << 8 | plan->runs : -1;
}

std::unique_ptr<const FusedKernel> make(const FusedCall& call, Device device) {
  if (!call.sums.empty()) return std::make_unique<CudaColumnKernel>(MapCall(call), device.index);
  return std::make_unique<CudaMapKernel>(call, device.index);
}

}  // namespace

const FusedKernels& fused_kernels() {
  static constexpr FusedKernels kKernels{.make = make,
                                         .make_rows = make_rows,
                                         .row_distribution = row_distribution,
                                         // 8 MB of f32 read and written: 2 us at 4.2 TB/s, where a launch takes 4.
                                         .few_elements = 1 << 20,
                                         .warm_up = [] { RuntimeCompiler::get().warm_up(); },
                                         .column_sums = true};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
