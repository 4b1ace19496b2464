#include "lorry/kernels/cuda/common/tickets.h"

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/stream_memory.h"

namespace lorry::kernels::cuda {

Tickets::Tickets(int64_t count, Stream stream) {
  StreamMemory* const memory = count <= StreamMemory::kCounters ? memory_of(stream) : nullptr;
  if (memory != nullptr) {
    data_ = memory->counters;
    return;
  }
  const int64_t bytes = count * static_cast<int64_t>(sizeof(uint32_t));
  data_ = own_.emplace(bytes, stream).as<uint32_t>();
  lorry::cuda::fill_bytes(stream, data_, 0, bytes);
}

}  // namespace lorry::kernels::cuda
