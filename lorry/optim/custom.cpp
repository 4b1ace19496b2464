#include "lorry/optim/custom.h"

#include <cmath>

#include "lorry/ops/creation.h"
#include "lorry/ops/ops.h"

namespace lorry::optim::detail {

void raise_no_device_code(const char* where, Device device) {
  raise_as<ValueError>(where,
                       "execution 'fused' has no code for {}; compile what includes lorry/optim/custom.h with nvcc, or "
                       "take foreach or loop",
                       device);
}

Tensor read_bytes(const void* from, size_t bytes, Device device) {
  return from_blob(const_cast<void*>(from), {static_cast<int64_t>(bytes)}, {.dtype = kU8, .device = device}).to(kCPU);
}

void write_bytes(void* to, const Tensor& bytes, Device device) { from_blob(to, bytes.sizes(), {.dtype = kU8, .device = device}).copy_(bytes); }

bool skips(const double* grad_factor, Device device) {
  if (!grad_factor) return false;
  return std::isnan(from_blob(const_cast<double*>(grad_factor), {}, {.dtype = kF64, .device = device}).item<double>());
}

}  // namespace lorry::optim::detail
