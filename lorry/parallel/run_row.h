#pragma once

// Collectives, made again from their announcements: the CallView::run of every call that this room announces.

#include <vector>

#include "lorry/ops/dispatch/run.h"

namespace lorry::parallel {

/// door::run for the rows of this room. The group is the one of that name. Throws as door::run does.
std::vector<Tensor> run(const door::CallView& call);

}  // namespace lorry::parallel
