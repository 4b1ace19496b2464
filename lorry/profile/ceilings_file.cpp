#include "lorry/profile/ceilings_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "lorry/base/events.h"
#include "lorry/base/private_folder.h"
#include "lorry/device/cpu/team.h"
#include "lorry/device/device.h"
#include "lorry/device/driver_facts.h"
#include "lorry/profile/processor.h"

namespace lorry::profile::detail {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;  // to be increased when a figure is measured differently
constexpr uint64_t kMostBytes = 1 << 16;
constexpr double kMostRate = 1e20;  // bytes or operations a second; far above any device

struct Figure {
  const char* name;
  double Ceilings::*value;
};
constexpr Figure kFigures[] = {{"copy_bytes_per_s", &Ceilings::copy_bytes_per_s},
                               {"read_bytes_per_s", &Ceilings::read_bytes_per_s},
                               {"launch_s", &Ceilings::launch_s},
                               {"wait_s", &Ceilings::wait_s},
                               {"team_s", &Ceilings::team_s},
                               {"tf32_flops_per_s", &Ceilings::tf32_flops_per_s},
                               {"link_to_device_bytes_per_s", &Ceilings::link_to_device_bytes_per_s},
                               {"link_to_host_bytes_per_s", &Ceilings::link_to_host_bytes_per_s},
                               {"pageable_to_device_bytes_per_s", &Ceilings::pageable_to_device_bytes_per_s},
                               {"pageable_to_host_bytes_per_s", &Ceilings::pageable_to_host_bytes_per_s},
                               {"measured_in_s", &Ceilings::measured_in_s}};

std::string file_name(const std::string& key) { return fmt::format("{:016x}.ceilings", fnv(key)); }

/// Reads a member that is a number between 0 and `most`.
bool read(const Json& json, const char* name, double most, double& to) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return false;
  to = found->get<double>();
  return std::isfinite(to) && to >= 0 && to <= most;
}
bool read(const Json& json, const char* name, std::string& to) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) return false;
  to = found->get<std::string>();
  return to.size() <= 256;
}

/// What every measurement of the device finds.
bool is_complete(const Ceilings& c) {
  const bool gpu = c.device.is_cuda();
  if (!(c.copy_bytes_per_s > 0 && c.read_bytes_per_s > 0 && c.launch_s > 0 && c.launch_s < 1)) return false;
  if (gpu ? !(c.wait_s > 0 && c.wait_s < 1 && c.link_to_device_bytes_per_s > 0 && c.link_to_host_bytes_per_s > 0 &&
              c.pageable_to_device_bytes_per_s > 0 && c.pageable_to_host_bytes_per_s > 0)
          : !(c.team_s > 0 && c.team_s < 1))
    return false;
  for (const DType dtype : {kF64, kF32, kBF16})
    if (!c.matmul_flops_per_s.contains(dtype)) return false;
  return !gpu || c.matmul_flops_per_s.contains(kF16);
}

}  // namespace

std::string ceilings_key(Device device) {
  if (device.is_cpu())
    return fmt::format("format {}; cpu {}; {} threads; {}", kFormat, processor_name(), cpu::threads(), simd_name());
  const device::DeviceInfo info = device::info(device);
  const device::DriverFacts driver = device::driver_facts(device);
  return fmt::format("format {}; {} {}.{}; {} multiprocessors; {} bytes; driver {} ({}); runtime {}; clocks {} {} MHz",
                     kFormat, info.name, info.compute_major, info.compute_minor, info.multiprocessors,
                     info.memory_bytes, driver.driver, driver.driver_cuda, driver.runtime_cuda, driver.clock_mhz,
                     driver.memory_clock_mhz);
}

std::string ceilings_text(const Ceilings& ceilings, const std::string& key) {
  Json json = {{"key", key}, {"name", ceilings.name}, {"measured_at", ceilings.measured_at}};
  for (const Figure& figure : kFigures) json[figure.name] = ceilings.*figure.value;
  for (const auto& [dtype, rate] : ceilings.matmul_flops_per_s)
    json["matmul_flops_per_s"][std::string(lorry::name(dtype))] = rate;
  // Replaced rather than thrown at: a device's name may be no UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Ceilings> read_ceilings(std::string_view text, const std::string& key, Device device) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  Ceilings found{.device = device, .name = {}, .matmul_flops_per_s = {}, .measured_at = {}, .cached = true};
  std::string held;
  if (!read(json, "key", held) || held != key) return std::nullopt;
  if (!read(json, "name", found.name) || !read(json, "measured_at", found.measured_at)) return std::nullopt;
  for (const Figure& figure : kFigures)
    if (!read(json, figure.name, kMostRate, found.*figure.value)) return std::nullopt;
  const auto rates = json.find("matmul_flops_per_s");
  if (rates == json.end() || !rates->is_object()) return std::nullopt;
  for (const DType dtype : {kF64, kF32, kF16, kBF16}) {
    const std::string name(lorry::name(dtype));
    double rate = 0;
    if (!rates->contains(name)) continue;
    if (!read(*rates, name.c_str(), kMostRate, rate) || rate == 0) return std::nullopt;
    found.matmul_flops_per_s[dtype] = rate;
  }
  return is_complete(found) ? std::optional(found) : std::nullopt;
}

std::optional<Ceilings> load_ceilings(const std::string& key, Device device) {
  const auto path = cache_folder();
  if (!path) return std::nullopt;
  const PrivateFolder folder(*path);
  if (!folder.is_open()) return std::nullopt;
  const auto text = folder.read(file_name(key), kMostBytes);
  return text ? read_ceilings(*text, key, device) : std::nullopt;
}

void save_ceilings(const Ceilings& ceilings, const std::string& key) {
  const auto path = cache_folder();
  if (!path) return;
  const PrivateFolder folder(*path, PrivateFolder::IfAbsent::make);
  const int error = folder.is_open() ? folder.write(file_name(key), ceilings_text(ceilings, key)) : folder.error();
  if (folder.is_open()) folder.remove_staged();
  if (error == 0) return;
  events::emit(events::Kind::warning, "ceilings",
               fmt::format("'{}' cannot be written: {}; ceilings are measured again in each process", path->string(),
                           why_not_usable(error)));
}

}  // namespace lorry::profile::detail
