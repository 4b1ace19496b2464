#include "lorry/kernels/backend.h"

namespace lorry::kernels {

const Backend& backend(Device device, const char* where) {
  if (device.is_cpu()) [[likely]] return cpu::table();
  raise<DeviceError>("{}: no kernels for device {} in this build; expected cpu", where, device);
}

}  // namespace lorry::kernels
