#include "lorry/profile/nvtx.h"

#if LORRY_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace lorry::profile {

#if LORRY_WITH_NVTX
void nvtx_push(const char* name) noexcept { nvtxRangePushA(name); }
void nvtx_pop() noexcept { nvtxRangePop(); }
#else
void nvtx_push(const char*) noexcept {}
void nvtx_pop() noexcept {}
#endif

}  // namespace lorry::profile
