#include "lorry/profile/recording.h"

namespace lorry::profile {

PartRecord Recording::origin_of(const DeviceRecord& work) const {
  if (work.span == kNone) return {};
  const SpanRecord& span = spans[static_cast<size_t>(work.span)];
  if (work.replayed != kNone && span.parts != kNone)
    return part_lists[static_cast<size_t>(span.parts)][static_cast<size_t>(work.replayed)];
  return {span.name, span.path, span.line, 1, span.bytes, span.flops, span.dtype};
}

}  // namespace lorry::profile
