#pragma once

#include <memory>

#include "lorry/device/work_graph.h"

namespace lorry::cuda {

/// See device::capture_work.
std::unique_ptr<device::WorkGraph> capture_work(Stream stream);

}  // namespace lorry::cuda
