#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "lorry/cli/ceilings.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/machine.h"
#include "lorry/cli/output.h"
#include "lorry/cli/report.h"
#include "lorry/cli/units.h"
#include "lorry/device/cpu/team.h"
#include "lorry/device/device.h"

namespace lorry::cli {
namespace {

std::string text_of(const nlohmann::ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void print(const Table& table, const nlohmann::ordered_json& facts) {
  for (const auto& [name, value] : facts.items()) {
    if (!value.is_object()) {
      table.print("{:<12} {}\n", name, text_of(value));
      continue;
    }
    std::string line;
    for (const auto& [key, entry] : value.items()) line += fmt::format("{}{} {}", line.empty() ? "" : ", ", key, text_of(entry));
    table.print("{:<12} {}\n", name, line);
  }
}

/// The time of day, as ISO 8601 in UTC: a saved measurement says how old it is.
std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[sizeof "2000-01-01T00:00:00Z"];
  std::strftime(text, sizeof text, "%FT%TZ", &utc);
  return text;
}

/// What it costs to give the team a loop and wait for it.
double team_launch_us() {
  const int64_t threads = cpu::threads();
  return measure([&] { cpu::parallel_for(threads, 1, [](int64_t begin, int64_t) { keep(begin); }); }).median_us;
}

/// "matmul f32" for "matmul_f32_gflop_per_s".
std::string title_of(std::string name) {
  for (const char* unit : {"_us", "_gb_per_s", "_gflop_per_s"})
    if (name.ends_with(unit)) name.resize(name.size() - std::strlen(unit));
  std::ranges::replace(name, '_', ' ');
  return name;
}
std::string text_of_ceiling(const std::string& name, double value) {
  if (name.ends_with("_us")) return duration_text(value);
  return quantity(1e9 * value, name.ends_with("_gb_per_s") ? "B/s" : "FLOP/s");
}

/// The ceilings that the benches of `device` divide by, and those of its link to the host.
nlohmann::ordered_json ceilings_of(Device device) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  nlohmann::ordered_json found = {{"copy_gb_per_s", CopyRate(device).of(kBytes) / 1e3}};
  if (device.is_cpu()) {
    found["team_launch_us"] = team_launch_us();
  } else {
    found["from_host_gb_per_s"] = link_rate(device, true) / 1e3;
    found["to_host_gb_per_s"] = link_rate(device, false) / 1e3;
  }
  for (const DType dtype : {kF32, kBF16, kF64})
    found[fmt::format("matmul_{}_gflop_per_s", dtype)] = matmul_rate(device, dtype) / 1e3;
  return found;
}

}  // namespace

int run_info(const InfoOptions& options, const CommonOptions& common) {
  nlohmann::ordered_json facts = describe_machine();
  const Table table{common.json};
  print(table, facts);
  if (options.measure) {
    nlohmann::ordered_json ceilings = {{"cpu", ceilings_of(kCPU)}};
    for (int i = 0; i < device::count(DeviceType::cuda); ++i) {
      const Device gpu{DeviceType::cuda, static_cast<int8_t>(i)};
      ceilings[to_string(gpu)] = ceilings_of(gpu);
    }
    for (const auto& [device, figures] : ceilings.items())
      for (const auto& [name, value] : figures.items())
        table.print("{:<12} {:<14} {}\n", device, title_of(name), text_of_ceiling(name, value.get<double>()));
    ceilings["measured"] = now();
    facts["ceilings"] = ceilings;
  }
  write_json(common.json, facts);
  return 0;
}

}  // namespace lorry::cli
