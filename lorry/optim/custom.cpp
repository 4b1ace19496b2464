#include "lorry/optim/custom.h"

#include <cmath>

#include "lorry/kernels/backend.h"
#include "lorry/kernels/meta.h"
#include "lorry/kernels/optim.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/ops.h"

namespace lorry::optim::detail {
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
                       "take compiled, foreach or loop",
                       device);
}

bool compiles_rules(Device device) { return kernels::backend(device).optim->compiles(); }

void step_on_cpu(const kernels::StepCall& call, const formula::RuleRun& rule, const char* where, Device device) {
  const auto step = kernels::backend(device).optim->step_rule;
  if (step == nullptr) raise_no_device_code(where, device);
  step(call, rule);
}

void on_host_bytes(std::span<std::byte> bytes, const Stream& stream, const std::function<void(std::byte* host)>& f) {
  if (stream.device.is_cpu()) return f(bytes.data());
  if (stream.device.is_meta()) return kernels::meta::count_call();
  const Tensor there = from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())},
                                 {.dtype = kU8, .device = stream.device}),
               copy = there.to(kCPU);
  f(static_cast<std::byte*>(copy.data_ptr()));
  there.copy_(copy);
}

std::vector<PresentNumber> present_numbers(std::span<const kernels::NumberSource> numbers, Device device) {
  std::vector<PresentNumber> present;
  for (const kernels::NumberSource& x : numbers)
    present.push_back(
        {x.block, x.setting,
         x.from == nullptr
             ? x.value
             : from_blob(const_cast<void*>(x.from), {}, {.dtype = x.dtype, .device = device}).item<double>()});
  return present;
}

bool is_nan(const double* grad_factor, Device device) {
  if (!grad_factor || device.is_meta()) return false;
  return std::isnan(from_blob(const_cast<double*>(grad_factor), {}, {.dtype = kF64, .device = device}).item<double>());
}

}  // namespace lorry::optim::detail
