#pragma once

// The memory and the launches of a call.

#include "lorry/bench/result.h"
#include "lorry/device/device.h"
#include "lorry/device/launches.h"
#include "lorry/memory/memory.h"

namespace lorry::bench {

/// Makes one call, after earlier ones have done one-time work, and sets the row's extra_bytes and, on a GPU, its
/// launches.
template <class F>
void count_call(Result& row, F&& call) {
  device::synchronize(row.device);
  memory::reset_peak(row.device);
  const int64_t before = memory::stats(row.device).allocated;
  {
    const device::LaunchCount count;
    call();
    if (!row.device.is_cpu()) row.launches = count.kernels();
  }
  device::synchronize(row.device);
  row.extra_bytes = memory::stats(row.device).peak_allocated - before;
}

}  // namespace lorry::bench
