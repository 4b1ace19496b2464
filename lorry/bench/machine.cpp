#include "lorry/bench/machine.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lorry/bench/build_facts.h"
#include "lorry/bench/plot.h"
#include "lorry/device/cpu/team.h"
#include "lorry/device/device.h"
#include "lorry/device/driver_facts.h"
#include "lorry/profile/processor.h"

namespace lorry::bench {
namespace {

std::string distribution() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PRETTY_NAME=")) return line.substr(13, line.size() - 14);
  return "unknown";
}

/// The GPUs, or why there is none.
nlohmann::ordered_json describe_gpus() {
  const int count = device::count(DeviceType::cuda);
  if (count == 0) return fmt::format("none: {}", device::why_absent(DeviceType::cuda));
  nlohmann::ordered_json gpus;
  for (int i = 0; i < count; ++i) {
    const Device gpu{DeviceType::cuda, static_cast<int8_t>(i)};
    const device::DeviceInfo f = device::info(gpu);
    gpus[to_string(gpu)] = fmt::format("{} ({:.1f} GiB, compute capability {}.{}, {} multiprocessors)", f.name,
                                       static_cast<double>(f.memory_bytes) / (1 << 30), f.compute_major,
                                       f.compute_minor, f.multiprocessors);
  }
  return gpus;
}

/// A version, or "none" for a library that this build lacks.
const char* or_none(const char* version) { return *version != 0 ? version : "none"; }

}  // namespace

nlohmann::ordered_json describe_machine() {
  utsname system{};
  uname(&system);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30);
  nlohmann::ordered_json machine = {
      {"lorry", kVersion},
      {"build", kBuildType},
      {"compiler", kCompiler},
      {"system", fmt::format("{}, {} {}", distribution(), system.sysname, system.release)},
      {"cpu", profile::processor_name()},
      {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
      {"threads", cpu::threads()},
      {"simd", profile::simd_name()},
      {"memory_gib", std::round(memory * 10) / 10},
      {"libraries",
       {{"openmp", kOpenMp},
        {"highway", kHighway},
        {"onednn", or_none(kOneDnn)},
        {"libdw", or_none(kLibdw)},
        {"cuda", or_none(kCuda)},
        {"fmt", kFmt}}},
      {"programs", {{"gnuplot", can_plot() ? "found" : "not found"}}},
      {"gpus", describe_gpus()}};
  if (device::available(DeviceType::cuda)) {
    const device::DriverFacts driver = device::driver_facts({DeviceType::cuda, 0});
    machine["driver"] = {{"version", driver.driver.empty() ? "unknown" : driver.driver},
                         {"cuda", driver.driver_cuda},
                         {"runtime", driver.runtime_cuda}};
  }
  return machine;
}

}  // namespace lorry::bench
