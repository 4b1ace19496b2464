#include "lorry/optim/custom.h"

#include <algorithm>
#include <cmath>

#include "lorry/kernels/cpu/optim/step.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/ops.h"

namespace lorry::optim::detail {
namespace {

/// A copy in host memory of some of a device's bytes. Waits for them.
Tensor read_bytes(const void* from, size_t bytes, Device device) {
  return from_blob(const_cast<void*>(from), {static_cast<int64_t>(bytes)}, {.dtype = kU8, .device = device}).to(kCPU);
}

void write_bytes(void* to, const Tensor& bytes, Device device) {
  from_blob(to, bytes.sizes(), {.dtype = kU8, .device = device}).copy_(bytes);
}

/// True when *grad_factor on the device says to leave the step out.
bool skips(const double* grad_factor, Device device) {
  if (!grad_factor) return false;
  return std::isnan(from_blob(const_cast<double*>(grad_factor), {}, {.dtype = kF64, .device = device}).item<double>());
}

size_t end_of(std::span<const formula::HyperBlockChange> changes) {
  int32_t end = 0;
  for (const formula::HyperBlockChange& change : changes) end = std::max(end, change.hyper_block + 1);
  return static_cast<size_t>(end);
}

}  // namespace

void raise_no_number(int asked, int count) {
  if (count == 0)
    raise_as<IndexError>("rule", "the update asks for h[{}]; got no numbers; give them after the rate", asked);
  raise_as<IndexError>("rule", "the update asks for h[{}]; got {} numbers; expected 0 to {}", asked, count, count - 1);
}

void raise_no_state(int states) {
  raise_as<IndexError>(
      "rule",
      "the update uses a state that it does not have; got a rule of {} state{}; expected states[k] with "
      "k below that; say rule<N>(...) for N states",
      states, states == 1 ? "" : "s");
}

void raise_no_device_code(const char* where, Device device) {
  raise_as<ValueError>(where,
                       "execution 'fused' has no code for {}; compile what includes lorry/optim/custom.h with nvcc, or "
                       "take foreach or loop",
                       device);
}

KernelsPtr make_kernels(Step step, Set set, Advance advance) {
  return std::make_shared<const kernels::RuleKernels>(kernels::RuleKernels{step, set, advance});
}

void step(CodeOf code, const char* where, const kernels::StepCall& call) {
  const Device device = call.list.device();
  if (!device.is_cpu()) raise_no_device_code(where, device);
  kernels::cpu::step_list(call, code(call.list.dtype(0) == kF64));
}

void set(CodeOf code, void* hyper_blocks, bool f64, std::span<const formula::HyperBlockChange> changes,
         const Stream& stream) {
  const formula::RuleCode& rule = code(f64);
  if (stream.device.is_cpu()) return kernels::cpu::set_hyper_blocks(hyper_blocks, rule, changes);
  const Tensor copy = read_bytes(hyper_blocks, end_of(changes) * rule.hyper_block_bytes, stream.device);
  kernels::cpu::set_hyper_blocks(copy.data_ptr(), rule, changes);
  write_bytes(hyper_blocks, copy, stream.device);
}

void advance(CodeOf code, void* hyper_blocks, bool f64, int32_t first, int32_t count, const double* grad_factor,
             const Stream& stream) {
  const formula::RuleCode& rule = code(f64);
  if (stream.device.is_cpu()) return kernels::cpu::advance_hyper_blocks(hyper_blocks, rule, first, count, grad_factor);
  if (skips(grad_factor, stream.device)) return;
  char* const from = static_cast<char*>(hyper_blocks) + static_cast<size_t>(first) * rule.hyper_block_bytes;
  const Tensor copy = read_bytes(from, static_cast<size_t>(count) * rule.hyper_block_bytes, stream.device);
  kernels::cpu::advance_hyper_blocks(copy.data_ptr(), rule, 0, count, nullptr);
  write_bytes(from, copy, stream.device);
}

}  // namespace lorry::optim::detail
