#pragma once

// Stores past the caches. A store into memory that is not in the cache reads the line first, so writing an array that
// is larger than the cache moves its bytes twice. Streaming stores do not, and leave the cache to others.

#include <cstdint>

namespace lorry::kernels::cpu {

/// Whether so many bytes, once written, would be gone from the last level of the cache before somebody reads them.
bool exceeds_cache(int64_t bytes);

/// memcpy by streaming stores: for memory that is read much later. Other threads see it after end_streaming().
void copy_past_cache(void* to, const void* from, int64_t bytes);

/// Orders the thread's streaming stores before what follows.
void end_streaming();

}  // namespace lorry::kernels::cpu
