#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "lorry/base/units.h"
#include "lorry/bench/machine.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/output.h"
#include "lorry/cli/progress.h"
#include "lorry/cli/report.h"
#include "lorry/cli/run_facts.h"
#include "lorry/device/device.h"
#include "lorry/device/driver_facts.h"
#include "lorry/profile/ceilings.h"
#include "lorry/profile/memory_use.h"

namespace lorry::cli {
namespace {

std::string text_of(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print(const Table& table, const nlohmann::ordered_json& facts) {
  for (const auto& [name, value] : facts.items()) {
    if (!value.is_object()) {
      table.print("{:<12} {}\n", name, text_of(value));
      continue;
    }
    std::string line;
    for (const auto& [key, entry] : value.items())
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", key, text_of(entry));
    table.print("{:<12} {}\n", name, line);
  }
}

/// "matmul f32" for "matmul_f32_gflop_per_s".
std::string title_of(std::string name) {
  for (const char* unit : {"_us", "_gb_per_s", "_gflop_per_s"})
    if (name.ends_with(unit)) name.resize(name.size() - std::strlen(unit));
  std::ranges::replace(name, '_', ' ');
  return name;
}
std::string text_of_ceiling(const std::string& name, const nlohmann::ordered_json& figure) {
  const double value = figure.get<double>();
  if (name.ends_with("_us")) return duration_text(value);
  return quantity(1e9 * value, name.ends_with("_gb_per_s") ? "B/s" : "FLOP/s");
}

/// The ceilings of a device; those that do not apply to it are left out.
nlohmann::ordered_json ceilings_of(Device device, bool remeasure) {
  const profile::Ceilings& c = profile::ceilings(device, {.remeasure = remeasure});
  nlohmann::ordered_json found;
  const auto add = [&](const std::string& name, double value) {
    if (value > 0) found[name] = value;
  };
  add("copy_gb_per_s", c.copy_bytes_per_s / 1e9);
  add("read_gb_per_s", c.read_bytes_per_s / 1e9);
  add(device.is_cpu() ? "call_us" : "launch_us", c.launch_s * 1e6);
  add("launch_and_wait_us", c.wait_s * 1e6);
  add("team_launch_us", c.team_s * 1e6);
  add("from_host_gb_per_s", c.link_to_device_bytes_per_s / 1e9);
  add("to_host_gb_per_s", c.link_to_host_bytes_per_s / 1e9);
  add("from_pageable_host_gb_per_s", c.pageable_to_device_bytes_per_s / 1e9);
  add("to_pageable_host_gb_per_s", c.pageable_to_host_bytes_per_s / 1e9);
  for (const auto& [dtype, rate] : c.matmul_flops_per_s) add(fmt::format("matmul_{}_gflop_per_s", dtype), rate / 1e9);
  add("matmul_tf32_gflop_per_s", c.tf32_flops_per_s / 1e9);
  found["measured"] = c.measured_at;
  found["measured_in_s"] = c.measured_in_s;
  found["cached"] = c.cached;
  return found;
}

void print_ceilings(const Table& table, const std::string& device, const nlohmann::ordered_json& found) {
  for (const auto& [name, value] : found.items())
    if (name.ends_with("_us") || name.ends_with("_per_s"))
      table.print("{:<12} {:<24} {}\n", device, title_of(name), text_of_ceiling(name, value));
  table.print("{:<12} {:<24} {}{}\n", device, "measured", found["measured"].get<std::string>(),
              found["cached"].get<bool>() ? ", by an earlier command" : "");
}

/// Who uses the memory of a device, and what this process's context on a GPU cost.
nlohmann::ordered_json memory_of(Device device) {
  const profile::MemoryOwners owners = profile::memory_owners(device);
  nlohmann::ordered_json found = {{"total_bytes", owners.total},
                                  {"free_bytes", owners.free},
                                  {"tensors_bytes", owners.in_use},
                                  {"cached_bytes", owners.cached}};
  if (owners.cache_bound) found["cache_bound_bytes"] = *owners.cache_bound;
  if (owners.rest_of_process) found["rest_of_process_bytes"] = *owners.rest_of_process;
  if (owners.others) found["others_bytes"] = *owners.others;
  if (const auto context = device::context_cost(device)) {
    if (context->bytes) found["context_bytes"] = *context->bytes;
    found["context_s"] = context->seconds;
  }
  return found;
}

void print_memory(const Table& table, const std::string& device, const nlohmann::ordered_json& found) {
  const auto row = [&](const char* key, std::string_view what) {
    if (found.contains(key)) table.print("{:<12} {:<24} {}\n", device, what, bytes_text(found[key].get<int64_t>()));
  };
  row("total_bytes", device == "cpu" ? "memory for this process" : "memory");
  row("free_bytes", "memory left");
  row("tensors_bytes", "in tensors");
  row("cached_bytes", "cached for tensors");
  row("cache_bound_bytes", "cached at most");
  row("rest_of_process_bytes", device == "cpu" ? "rest of this process" : "context and libraries");
  row("others_bytes", found.contains("rest_of_process_bytes") ? "other processes" : "contexts and others");
  row("context_bytes", "the context alone");
  if (found.contains("context_s"))
    table.print("{:<12} {:<24} {}\n", device, "to create it", duration_text(1e6 * found["context_s"].get<double>()));
}

std::vector<Device> all_devices() {
  std::vector<Device> devices = {kCPU};
  for (int i = 0; i < device::count(DeviceType::cuda); ++i)
    devices.push_back({DeviceType::cuda, static_cast<int8_t>(i)});
  return devices;
}

nlohmann::ordered_json to_json(const RunFolder& folder, const RunFacts& run) {
  nlohmann::ordered_json json = {{"checkpoint", folder.checkpoint().string()},
                                 {"preset", run.settings.preset},
                                 {"layers", run.model.layers},
                                 {"heads", run.model.heads},
                                 {"width", run.model.width},
                                 {"context", run.model.context},
                                 {"vocab", run.model.vocab},
                                 {"parameters", run.parameters},
                                 {"dtype", name(run.settings.dtype)},
                                 {"optimizer", run.settings.optimizer},
                                 {"lr", run.settings.lr},
                                 {"batch", run.settings.batch * run.settings.accumulate},
                                 {"seed", run.settings.seed},
                                 {"texts", run.texts},
                                 {"step", run.step},
                                 {"saved_step", run.saved_step},
                                 {"steps", *run.settings.steps},
                                 {"tokens", run.step * run.tokens_per_step},
                                 {"seconds", run.history.seconds()}};
  if (run.time) json["elapsed_s"] = run.time->elapsed, json["max_seconds"] = run.time->given;
  if (!run.history.steps.empty()) json["train_loss"] = run.history.recent_loss(kRecentSteps);
  if (!run.history.validations.empty()) {
    json["validation_loss"] = run.history.validations.back().loss;
    json["validation_step"] = run.history.validations.back().step;
  }
  json["lock"] = run.holder ? nlohmann::ordered_json(*run.holder) : nlohmann::ordered_json(nullptr);
  return json;
}

void print(const Table& table, const RunFacts& run) {
  const auto row = [&](const char* what, const std::string& value) { table.print("{:<16} {}\n", what, value); };
  const nn::GPTConfig& m = run.model;
  row("model", fmt::format("preset {}: {} layers, {} heads, width {}, context {}", run.settings.preset, m.layers,
                           m.heads, m.width, m.context));
  row("parameters", fmt::format("{}, {}", quantity(static_cast<double>(run.parameters), ""), run.settings.dtype));
  row("optimizer", fmt::format("{}, learning rate {:g}, batch {}, seed {}", run.settings.optimizer, run.settings.lr,
                               run.settings.batch * run.settings.accumulate, run.settings.seed));
  for (const std::string& text : run.texts) row("text", text);
  row("steps", fmt::format("{} of {}{}{}", run.step, run.time && run.step < *run.settings.steps ? "about " : "",
                           *run.settings.steps,
                           run.step > run.saved_step ? fmt::format("; saved after {}", run.saved_step) : ""));
  row("tokens", quantity(static_cast<double>(run.step * run.tokens_per_step), ""));
  if (run.time) row("time", fmt::format("{} of {}", hms_text(run.time->elapsed), hms_text(run.time->given)));
  if (!run.history.steps.empty())
    row("training loss", fmt::format("{:.4f}, mean of the last {} steps", run.history.recent_loss(kRecentSteps),
                                     std::min(kRecentSteps, run.history.steps.size())));
  if (!run.history.validations.empty()) {
    const ValidationMetrics& last = run.history.validations.back();
    row("validation loss", fmt::format("{:.4f} nats per byte after step {}", last.loss, last.step));
  }
  row("lock", run.holder ? fmt::format("held by {}", *run.holder) : "held by nobody");
}

}  // namespace

int run_info(const InfoOptions& options, const CommonOptions& common) {
  require_writable(common.json);
  const Table table{common.json};
  if (!options.run.empty()) {
    const RunFolder folder = find_run(options.run, "info");
    const RunFacts run = run_facts(folder);
    print(table, run);
    write_json(common.json, to_json(folder, run));
    return 0;
  }
  nlohmann::ordered_json facts = bench::describe_machine();
  print(table, facts);
  for (const Device device : all_devices()) {
    facts["memory"][to_string(device)] = memory_of(device);
    print_memory(table, to_string(device), facts["memory"][to_string(device)]);
  }
  if (options.measure || options.remeasure) {
    nlohmann::ordered_json ceilings;
    for (const Device device : all_devices()) {
      ceilings[to_string(device)] = ceilings_of(device, options.remeasure);
      print_ceilings(table, to_string(device), ceilings[to_string(device)]);
    }
    facts["ceilings"] = ceilings;
  }
  write_json(common.json, facts);
  return 0;
}

}  // namespace lorry::cli
