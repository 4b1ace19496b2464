#pragma once

// Calls over lists, made again from their announcements. door::run calls this for them: it is the CallView::run of
// every call that this room announces.

#include <vector>

#include "lorry/ops/dispatch/run.h"

namespace lorry::foreach {

/// door::run for the rows of this room, and for those that are not over lists. Throws as door::run does.
std::vector<Tensor> run(const door::CallView& call);

}  // namespace lorry::foreach
