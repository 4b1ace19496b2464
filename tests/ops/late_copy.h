#pragma once

#include <cstdint>
#include <vector>

#include "lorry/device/device.h"

namespace lorry::test {

struct LateCopy {
  void* to;
  const void* from;
  int64_t bytes;
};

/// Enqueues a kernel that lets the next one start at once, and makes the copies, at most 16, some time later.
void copy_late(Stream stream, const std::vector<LateCopy>& copies);
/// Copies a byte by a kernel that does not wait for the one before it.
void copy_early(Stream stream, const LateCopy& copy);

}  // namespace lorry::test
