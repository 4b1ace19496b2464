#pragma once

// A profile as one page of HTML that needs nothing else.

#include <string>
#include <vector>

#include "lorry/profile/diagnose.h"
#include "lorry/profile/memory_timeline.h"
#include "lorry/profile/table.h"

namespace lorry::profile {

/// What `lorry profile` shows of a recording.
struct Report {
  Diagnosis diagnosis;
  std::vector<Table> tables;
  MemoryTimeline memory;
};

std::string page(const Recording& recording, const Report& report);

}  // namespace lorry::profile
