#include "lorry/profile/processor.h"

#include <hwy/targets.h>

#include <cstdint>
#include <fstream>

namespace lorry::profile {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string simd_name() {
  const int64_t targets = hwy::SupportedTargets();
  return hwy::TargetName(targets & -targets);  // the lowest bit is the best
}

}  // namespace lorry::profile
