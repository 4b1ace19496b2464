#pragma once

// Counts of kernel calls on meta.

#include <cstdint>

namespace lorry::kernels::meta {

/// The number of kernel launches that this thread has made on meta so far.
int64_t calls();
/// Counts one that is not of the table.
void count_call();

}  // namespace lorry::kernels::meta
