#include "lorry/cli/machine.h"

#include <fmt/core.h>
#include <hwy/targets.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lorry/cli/build_facts.h"
#include "lorry/cli/plot.h"
#include "lorry/device/cpu/team.h"

namespace lorry::cli {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string distribution() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PRETTY_NAME=")) return line.substr(13, line.size() - 14);
  return "unknown";
}

/// The widest instruction set that Highway has kernels for here; in its order the best has the lowest bit.
std::string simd() {
  const int64_t targets = hwy::SupportedTargets();
  return hwy::TargetName(targets & -targets);
}

}  // namespace

nlohmann::ordered_json describe_machine() {
  utsname system{};
  uname(&system);
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30);
  return {{"lorry", kVersion},
          {"build", kBuildType},
          {"compiler", kCompiler},
          {"system", fmt::format("{}, {} {}", distribution(), system.sysname, system.release)},
          {"cpu", processor_name()},
          {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
          {"threads", cpu::threads()},
          {"simd", simd()},
          {"memory_gib", std::round(memory * 10) / 10},
          {"libraries", {{"openmp", kOpenMp}, {"highway", kHighway}, {"onednn", kOneDnn}, {"fmt", kFmt}}},
          {"programs", {{"gnuplot", can_plot() ? "found" : "not found"}}},
          {"cuda", *kNvcc ? fmt::format("toolkit found ({}), not used: this version computes on the CPU", kNvcc) : "toolkit not found; not needed"}};
}

}  // namespace lorry::cli
