#pragma once

// What the column of meta tells of itself.

#include <cstdint>

namespace lorry::kernels::meta {

/// How many kernels this thread has called on meta so far.
int64_t calls();
/// Counts one that is not of the table.
void count_call();

}  // namespace lorry::kernels::meta
