#include "lorry/kernels/backend.h"

#include "lorry/device/cpu/calls.h"
#include "lorry/kernels/recorded_calls.h"

namespace lorry::kernels {
namespace {

const Backend& cpu_column() { return lorry::cpu::recorded_calls() == nullptr ? cpu::table() : cpu::recording_table(); }

/// One column per device type, in the order of DeviceType; null if this build has no kernels for it.
using Column = const Backend& (*)();
#ifdef LORRY_WITH_CUDA
constexpr Column kColumns[kDeviceTypeCount] = {cpu_column, cuda::table, meta::table};
#else
constexpr Column kColumns[kDeviceTypeCount] = {cpu_column, nullptr, meta::table};
#endif

}  // namespace

const Backend& backend(Device device) {
  if (const Column column = kColumns[static_cast<int>(device.type)]) [[likely]]
    return column();
  raise<DeviceError>("no kernels for device {} in this build; expected cpu", device);
}

}  // namespace lorry::kernels
