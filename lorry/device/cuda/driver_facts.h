#pragma once

// The functions of the CUDA column for lorry/device/driver_facts.h.

#include <optional>

#include "lorry/device/driver_facts.h"

namespace lorry::cuda {

device::DriverFacts driver_facts(int device);
std::optional<device::ContextCost> context_cost(int device);

}  // namespace lorry::cuda
