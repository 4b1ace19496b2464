#include "lorry/bench/lessons/json.h"

#include <nlohmann/json.hpp>

#include "lorry/bench/machine.h"

namespace lorry::bench::lessons {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr double kPerSecond = 1e6;  // from a rate per microsecond

Json to_json(const Way& way, const Ceilings& ceilings) {
  Json json = {{"name", way.name},           {"code", way.code},          {"median_us", way.time.median_us},
               {"min_us", way.time.min_us},  {"p90_us", way.time.p90_us}, {"spread", way.time.spread},
               {"samples", way.time.samples}};
  if (way.work.calls > 0) json["calls"] = way.work.calls;
  if (way.work.bytes > 0) json["bytes"] = way.work.bytes;
  if (way.work.flops > 0) json["flops"] = way.work.flops, json["dtype"] = way.work.dtype;
  if (const std::optional<Bound> least = bound(way.work, ceilings))
    json["bound"] = least->what, json["bound_us"] = least->us;
  for (const Figure& figure : way.figures)
    json["figures"].push_back({{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}});
  return json;
}

Json to_json(const Comparison& comparison, const Ceilings& ceilings) {
  Json json = {{"title", comparison.title},
               {"slow", comparison.ways.front().name},
               {"good", comparison.ways[comparison.good].name},
               {"ratio", comparison.ratio()},
               {"verdict", comparison.verdict},
               {"why", comparison.why},
               {"given", comparison.given},
               {"ways", Json::array()}};
  for (const Way& way : comparison.ways) json["ways"].push_back(to_json(way, ceilings));
  return json;
}

Json to_json(const Lesson& lesson, const Ceilings& ceilings) {
  Json json = {{"number", lesson.number},   {"title", lesson.title},        {"teaches", lesson.teaches},
               {"seconds", lesson.seconds}, {"comparisons", Json::array()}, {"tried", Json::array()},
               {"notes", lesson.notes},     {"absent", lesson.absent}};
  if (!lesson.error.empty()) json["error"] = lesson.error;
  for (const Comparison& comparison : lesson.comparisons) json["comparisons"].push_back(to_json(comparison, ceilings));
  for (const Tried& t : lesson.tried)
    json["tried"].push_back({{"what", t.what}, {"code", t.code}, {"outcome", t.outcome}});
  return json;
}

}  // namespace

Json to_json(const std::vector<Lesson>& lessons, const Ceilings& ceilings, const Settings& settings) {
  Json rates = {{"copy_bytes_per_s", kPerSecond * ceilings.copy_bytes}, {"call_us", ceilings.call_us}};
  for (const auto& [dtype, rate] : ceilings.flops) rates["flops_per_s"][dtype] = kPerSecond * rate;
  if (!ceilings.error.empty()) rates["error"] = ceilings.error;
  if (ceilings.to_device_bytes > 0) {
    rates["to_device_bytes_per_s"] = kPerSecond * ceilings.to_device_bytes;
    rates["to_host_bytes_per_s"] = kPerSecond * ceilings.to_host_bytes;
  }
  Json all = Json::array();
  for (const Lesson& lesson : lessons) all.push_back(to_json(lesson, ceilings));
  return {{"schema", kSchema},
          {"machine", describe_machine()},
          {"device", to_string(settings.device)},
          {"seconds_per_way", settings.seconds},
          {"ceilings", rates},
          {"lessons", all}};
}

}  // namespace lorry::bench::lessons
