#pragma once

// Calls over lists that are made again from what was announced of them.

#include <vector>

#include "lorry/ops/dispatch/run.h"

namespace lorry::foreach {

/// door::run, for rows over lists too. Throws as it does.
std::vector<Tensor> run(const door::CallView& call);

}  // namespace lorry::foreach
