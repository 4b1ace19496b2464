// In a build without CUDA; raw_launch.cu stands in one with it.

#include "lorry/cli/raw_launch.h"

#include "lorry/base/error.h"

namespace lorry::cli {

void raw_launch(Stream) { raise<DeviceError>("raw_launch: this build has no CUDA"); }

}  // namespace lorry::cli
