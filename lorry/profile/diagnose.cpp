#include "lorry/profile/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/base/units.h"
#include "lorry/profile/cell_text.h"
#include "lorry/profile/program_view.h"
#include "lorry/profile/svg.h"

namespace lorry::profile {
namespace {

/// The devices that worked.
std::vector<Device> devices_of(const Recording& r) {
  std::vector<Device> devices;
  for (const DeviceRecord& x : r.device) {
    const Device gpu{DeviceType::cuda, x.device};
    if (std::ranges::find(devices, gpu) == devices.end()) devices.push_back(gpu);
  }
  if (devices.empty()) devices.push_back(kCPU);
  return devices;
}

/// A finding for waits that follow each other with nothing between.
void add_joinable_waits(const Diagnosis& d, std::vector<Finding>& to) {
  for (const WaitReport& x : d.waits) {
    if (x.could_join == 0 || x.joining_saves_ns <= 0) continue;
    to.push_back({.kind = Finding::Kind::waits,
                  .what = fmt::format("{} of {} waits of {} {} another wait with no launch between", x.could_join,
                                      x.count, x.name, x.could_join == 1 ? "follows" : "follow"),
                  .cure = "read all values at once: stack the tensors, and copy them to the host in one call",
                  .path = x.path,
                  .line = x.line,
                  .count = x.could_join,
                  .time_ns = static_cast<double>(x.waited_ns),
                  .gain_ns = x.joining_saves_ns});
  }
}

void add_points(const ProgramView& p, Diagnosis& to) {
  std::map<std::string, RooflinePoint> points;
  for (const int32_t i : p.calls) {
    const SpanRecord& x = p.span(i);
    if (x.flops == 0 || x.bytes == 0 || x.parts != kNone || x.device != p.device) continue;
    RooflinePoint& point = points[p.r.name_of(x)];
    point.name = p.r.name_of(x);
    point.bytes += static_cast<double>(x.bytes), point.flops += static_cast<double>(x.flops), point.ns += p.taken_ns(x);
  }
  for (auto& [name, point] : points)
    if (point.ns > 0) to.points.push_back(point);
  std::ranges::stable_sort(to.points, std::greater<>(), &RooflinePoint::ns);
  if (to.points.size() > 8) to.points.resize(8);
}

std::string where(const std::string& path, const std::string& line) {
  if (path.empty() && line.empty()) return {};
  return fmt::format(" ({}{}{})", path, path.empty() || line.empty() ? "" : ", ", line);
}

const char* meaning(Regime regime) {
  constexpr const char* kMeanings[] = {
      "calls cost more than their work: fewer, larger calls would help, or a graph of them",
      "the device moves bytes: fewer would help, by fusing, in place, or in a smaller dtype",
      "the device computes: a faster dtype or algorithm would help",
      "nothing works while the host or the link is waited for: prefetch, overlap, or ask less often"};
  return kMeanings[static_cast<int>(regime)];
}

}  // namespace

const char* name(Finding::Kind kind) {
  constexpr const char* kNames[] = {"fuse",     "foreach",   "elements",  "graph",      "host tensors",
                                    "pageable", "dtype",     "alignment", "contiguous", "out of place",
                                    "batch",    "optimizer", "waits"};
  return kNames[static_cast<int>(kind)];
}

Diagnosis diagnose(const Recording& recording, const DiagnoseOptions& options) {
  if (!(options.least_gain >= 0))
    raise_as<ValueError>("diagnose", "least_gain is {}; expected a share, 0 or more", options.least_gain);
  Diagnosis made;
  made.incomplete = recording.incomplete;
  if (!recording.no_gpu.empty())
    made.incomplete.push_back(fmt::format("the work of GPUs was not recorded: {}", recording.no_gpu));
  made.duration_ns = recording.duration;
  if (!made.incomplete.empty()) return made;
  std::vector<Ceilings> known = options.ceilings;
  for (const Device device : devices_of(recording))
    if (std::ranges::find(known, device, &Ceilings::device) == known.end()) known.push_back(ceilings(device));
  const ProgramView program(recording, known);
  made.device = program.device;
  if (program.here != nullptr) made.ceilings = *program.here;
  find_regimes(program, made);
  find_waits(program, made);
  std::vector<Finding> findings;
  Claims claims(program);
  find_in_products(program, claims, findings);
  find_in_calls(program, claims, findings);
  find_in_tensors(program, claims, findings);
  add_joinable_waits(made, findings);
  for (Finding& x : findings)
    if (x.gain_ns >= options.least_gain * made.times.total() && x.gain_ns > 0) made.findings.push_back(std::move(x));
  std::ranges::stable_sort(made.findings, std::greater<>(), &Finding::gain_ns);
  add_points(program, made);
  return made;
}

std::string to_string(const Diagnosis& d) {
  if (!d.is_complete()) {
    std::string text = "incomplete, so there is no verdict:\n";
    for (const std::string& why : d.incomplete) text += "  " + why + "\n";
    return text;
  }
  const double whole = d.times.total();
  std::string text = fmt::format("regime: {} ({:.0f} % of {}); {}\n", name(d.regime), percent(d.times[d.regime], whole),
                                 time_text(whole), meaning(d.regime));
  text += fmt::format("  device {} ({}), busy {:.0f} % of the time", to_string(d.device), d.ceilings.name,
                      std::min(100.0, percent(static_cast<double>(d.busy_ns), whole)));
  text += recording_text(d) + "\n";
  text += fmt::format("\n{:<24} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "phase", "time", "overhead", "memory", "compute",
                      "waiting");
  for (const Phase& x : d.phases) {
    text += fmt::format("{:<24} {:>10}", x.name, time_text(x.times.total()));
    for (const double ns : x.times.ns) text += fmt::format(" {:>8.0f} %", percent(ns, x.times.total()));
    text += "\n";
  }
  if (!d.waits.empty()) text += "\nwaits for the GPU:\n";
  for (const WaitReport& x : d.waits)
    text += fmt::format("  {} x {}{}: {} waited, the GPU idle for {} because of it; {}\n", x.count, x.name,
                        where(x.path, x.line), time_text(x.waited_ns), time_text(x.idle_caused_ns),
                        x.is_needed ? "not to blame: the work before it takes the time" : x.text);
  if (!d.findings.empty()) text += "\nwhat would help, by predicted gain:\n";
  size_t number = 0;
  for (const Finding& x : d.findings) {
    text += fmt::format("  {}. {} ({:.0f} %) {}{}\n     {}\n     {}\n", ++number, time_text(x.gain_ns),
                        percent(x.gain_ns, whole), name(x.kind), where(x.path, x.line), x.what, x.cure);
  }
  if (d.findings.empty()) text += "\nno finding gains more than a few per cent\n";
  return text;
}

std::string to_json(const Diagnosis& d) {
  using Json = nlohmann::ordered_json;
  const auto times = [](const RegimeTimes& t) {
    Json json;
    for (int i = 0; i < kRegimes; ++i) json[name(static_cast<Regime>(i))] = t.ns[static_cast<size_t>(i)];
    return json;
  };
  Json json = {{"complete", d.is_complete()}, {"incomplete", d.incomplete}, {"duration_ns", d.duration_ns}};
  if (d.is_complete()) {
    json["regime"] = name(d.regime), json["device"] = to_string(d.device), json["busy_ns"] = d.busy_ns;
    json["times_ns"] = times(d.times);
    json["phases"] = Json::array(), json["waits"] = Json::array(), json["findings"] = Json::array();
    for (const Phase& x : d.phases)
      json["phases"].push_back({{"name", x.name},
                                {"host_ns", x.host_ns},
                                {"device_ns", x.device_ns},
                                {"regime", name(x.times.largest())},
                                {"times_ns", times(x.times)}});
    for (const WaitReport& x : d.waits)
      json["waits"].push_back({{"operator", x.name},
                               {"text", x.text},
                               {"module", x.path},
                               {"line", x.line},
                               {"count", x.count},
                               {"waited_ns", x.waited_ns},
                               {"idle_caused_ns", x.idle_caused_ns},
                               {"needed", x.is_needed},
                               {"could_join", x.could_join},
                               {"joining_saves_ns", x.joining_saves_ns}});
    for (const Finding& x : d.findings)
      json["findings"].push_back({{"kind", name(x.kind)},
                                  {"what", x.what},
                                  {"cure", x.cure},
                                  {"module", x.path},
                                  {"line", x.line},
                                  {"count", x.count},
                                  {"time_ns", x.time_ns},
                                  {"gain_ns", x.gain_ns},
                                  {"gain_bytes", x.gain_bytes},
                                  {"can_apply", x.can_apply}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string to_svg(const Diagnosis& d) {
  Roofline plot{.title = fmt::format("Roofline of {}: {}", d.ceilings.name, name(d.regime)),
                .bytes_per_s = d.ceilings.copy_bytes_per_s};
  for (const auto& [dtype, rate] : d.ceilings.matmul_flops_per_s)
    plot.roofs.push_back({std::string(lorry::name(dtype)), rate});
  if (d.ceilings.tf32_flops_per_s > 0) plot.roofs.push_back({"tf32", d.ceilings.tf32_flops_per_s});
  double whole = 0;
  for (const RooflinePoint& x : d.points) whole += x.ns;
  for (const RooflinePoint& x : d.points)
    plot.dots.push_back({x.name, x.flops / x.bytes, 1e9 * x.flops / x.ns, x.ns / whole});
  return to_svg(plot);
}

}  // namespace lorry::profile
