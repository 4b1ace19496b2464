#pragma once

#include "lorry/base/span.h"
#include "lorry/ops/dispatch/table.h"

namespace lorry::profile {

/// Whether such a span may launch something by itself. If so, its work on GPUs is linked to it.
inline bool may_launch(SpanKind kind, Op op) {
  return kind == SpanKind::call ? row(op).kind != OpKind::view : kind != SpanKind::scope;
}

}  // namespace lorry::profile
