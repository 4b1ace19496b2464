#include "lorry/kernels/cuda/common/launch_slots.h"

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/stream_memory.h"

namespace lorry::kernels::cuda {

LaunchSlots::LaunchSlots(int64_t count, Stream stream) {
  StreamMemory* const memory = count <= StreamMemory::kSlots ? memory_of(stream) : nullptr;
  if (memory != nullptr) {
    slots_ = {memory->slots, ++memory->launches};
    return;
  }
  slots_ = {own_.emplace(16 * count, stream).data(), 1};
  lorry::cuda::fill_bytes(stream, slots_.memory, 0, 16 * count);
}

}  // namespace lorry::kernels::cuda
