#include "lorry/bench/lessons/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lorry/base/units.h"
#include "lorry/bench/lessons/plots.h"
#include "lorry/bench/machine.h"
#include "lorry/profile/svg.h"

namespace lorry::bench::lessons {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #fcfcfa; --text: #1d2126; --quiet: #667080; --line: #dcdfe3; --box: #f1f2f0;
  --slow: #c8553d; --good: #2f8a6b; --other: #8a94a3; --link: #1f5fa8; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --text: #e3e6ea; --quiet: #98a2b0; --line: #333a43; --box: #1d2228;
    --slow: #e2775f; --good: #4fb592; --other: #7b8696; --link: #83b4ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 5rem; max-width: 60rem; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.45rem; margin: 3.5rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.number { color: var(--quiet); font-variant-numeric: tabular-nums; margin-right: .5rem; }
.quiet { color: var(--quiet); } .small { font-size: .875rem; }
.verdict { border-left: 4px solid var(--good); padding: .1rem 0 .1rem .8rem; margin: .8rem 0; }
.error { border-left-color: var(--slow); }
table { border-collapse: collapse; font-size: .9rem; } td { padding: .15rem 1rem .15rem 0; vertical-align: top; }
td:first-child { color: var(--quiet); white-space: nowrap; }
nav ol { columns: 2; padding: 0; list-style: none; } nav li { break-inside: avoid; padding: .1rem 0; }
.codes { display: grid; grid-template-columns: 1fr 1fr; gap: .75rem; }
.codes.one { grid-template-columns: 1fr; } .codes > div { min-width: 0; }
.label { font-size: .85rem; font-weight: 600; margin: 0 0 .2rem; } .label.slow { color: var(--slow); }
.label.good { color: var(--good); }
pre { margin: 0 0 .5rem; padding: .6rem .8rem; overflow-x: auto; background: var(--box); border-radius: 6px;
  font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; tab-size: 2; }
ul.figures { margin: .2rem 0 .6rem; padding-left: 1.1rem; font-size: .875rem; color: var(--quiet); }
svg { display: block; margin: .5rem 0 1rem; } .wide { overflow-x: auto; }
.wide svg { width: 100%; min-width: 32rem; max-width: 48rem; height: auto; }
svg text.time { text-anchor: end; font-variant-numeric: tabular-nums; }
svg text.axis { fill: var(--quiet); font-size: 11px; }
svg text { font: 13px system-ui, sans-serif; fill: var(--text); } svg text.name { text-anchor: end; }
svg text.tick { text-anchor: middle; fill: var(--quiet); font-size: 12px; }
svg .bar { fill: var(--other); } svg .bar.first { fill: var(--slow); } svg .bar.good { fill: var(--good); }
@media (max-width: 42rem) { .codes { grid-template-columns: 1fr; } nav ol { columns: 1; } h1 { font-size: 1.6rem; }
  body { padding-top: 1rem; } }
)";

std::string text_of(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return value.dump();
  std::string all;
  for (const auto& [name, entry] : value.items())
    all += fmt::format("{}{} {}", all.empty() ? "" : ", ", name, text_of(entry));
  return all;
}

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", profile::xml_text(name), profile::xml_text(value));
}

std::string machine_table() {
  std::string out = "<table>\n";
  const nlohmann::ordered_json machine = describe_machine();
  for (const auto& [name, value] : machine.items())
    if (name != "programs") out += row(name, text_of(value));
  return out + "</table>\n";
}

std::string ceilings_table(const Ceilings& ceilings) {
  std::string out = "<table>\n";
  if (ceilings.copy_bytes > 0) out += row("copy", quantity(1e6 * ceilings.copy_bytes, "B/s"));
  for (const auto& [dtype, rate] : ceilings.flops)
    out += row(fmt::format("product in {}", dtype), quantity(1e6 * rate, "FLOP/s"));
  if (ceilings.call_us > 0) out += row("smallest call", duration_text(ceilings.call_us));
  if (ceilings.to_device_bytes > 0) {
    out += row("host to device", quantity(1e6 * ceilings.to_device_bytes, "B/s"));
    out += row("device to host", quantity(1e6 * ceilings.to_host_bytes, "B/s"));
  }
  if (!ceilings.error.empty()) out += row("missing", ceilings.error);
  return out + "</table>\n";
}

std::string figures_list(const Way& way) {
  if (way.figures.empty()) return "";
  std::string out = "<ul class=\"figures\">";
  for (const Figure& figure : way.figures) out += fmt::format("<li>{}</li>", profile::xml_text(text_of(figure)));
  return out + "</ul>\n";
}

/// The codes next to each other; ways that share one text stand above it together.
std::string codes(const Comparison& comparison) {
  const std::vector<Way>& ways = comparison.ways;
  const bool one = std::ranges::all_of(ways, [&](const Way& way) { return way.code == ways[0].code; });
  std::string out = fmt::format("<div class=\"codes{}\">\n", one ? " one" : "");
  for (size_t i = 0; i < ways.size();) {
    out += "<div>\n";
    const size_t first = i;
    for (; i < ways.size() && ways[i].code == ways[first].code; ++i) {
      const char* kind = i == 0 ? "label slow" : i == comparison.good ? "label good" : "label";
      out += fmt::format("<p class=\"{}\">{}: {}</p>\n", kind, profile::xml_text(ways[i].name),
                         profile::xml_text(duration_text(ways[i].time.median_us)));
      out += figures_list(ways[i]);
    }
    out += fmt::format("<pre><code>{}</code></pre>\n</div>\n", profile::xml_text(ways[first].code));
  }
  return out + "</div>\n";
}

std::string section(const Comparison& comparison) {
  std::string out = fmt::format("<h3>{}</h3>\n{}", profile::xml_text(comparison.title), bars_of(comparison));
  out += fmt::format("<p class=\"verdict\">{}</p>\n", profile::xml_text(comparison.verdict));
  if (!comparison.why.empty())
    out += fmt::format("<p class=\"quiet small\">Why: {}</p>\n", profile::xml_text(comparison.why));
  if (!comparison.given.empty())
    out +=
        fmt::format("<p class=\"label\">given</p>\n<pre><code>{}</code></pre>\n", profile::xml_text(comparison.given));
  return out + codes(comparison);
}

std::string section(const Lesson& lesson) {
  std::string out =
      fmt::format("<section id=\"lesson-{0}\">\n<h2><span class=\"number\">{0}</span>{1}</h2>\n<p>{2}</p>\n",
                  lesson.number, profile::xml_text(lesson.title), profile::xml_text(lesson.teaches));
  for (const Comparison& comparison : lesson.comparisons) out += section(comparison);
  for (const Tried& tried : lesson.tried)
    out += fmt::format("<h3>{}</h3>\n<pre><code>{}</code></pre>\n<p class=\"verdict\">{}</p>\n",
                       profile::xml_text(tried.what), profile::xml_text(tried.code), profile::xml_text(tried.outcome));
  for (const std::string& note : lesson.notes) out += fmt::format("<p>{}</p>\n", profile::xml_text(note));
  for (const std::string& absent : lesson.absent)
    out += fmt::format("<p class=\"quiet\">Not shown here: {}</p>\n", profile::xml_text(absent));
  if (!lesson.error.empty())
    out += fmt::format("<p class=\"verdict error\">This lesson ended early: {}</p>\n", profile::xml_text(lesson.error));
  return out + "</section>\n";
}

std::string contents(const std::vector<Lesson>& lessons) {
  std::string out = "<nav><ol>\n";
  for (const Lesson& lesson : lessons)
    out += fmt::format("<li><span class=\"number\">{0}</span><a href=\"#lesson-{0}\">{1}</a></li>\n", lesson.number,
                       profile::xml_text(lesson.title));
  return out + "</ol></nav>\n";
}

}  // namespace

std::string page_of(const std::vector<Lesson>& lessons, const Ceilings& ceilings, const Settings& settings) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>Lorry: lessons on {0}</title>\n<style>{1}</style>\n</head>\n<body>\n<header>\n"
      "<h1>Lessons on this machine</h1>\n"
      "<p class=\"quiet\">Measured on {0} on {2}. Every number was measured in this run, and the code shown is the "
      "code "
      "that ran.</p>\n</header>\n",
      profile::xml_text(to_string(settings.device)), kStyle, utc_now().substr(0, 10));
  out += contents(lessons);
  out += "<section>\n<h2>The machine</h2>\n" + machine_table() + "</section>\n";
  out +=
      "<section>\n<h2>Its ceilings</h2>\n<p>The largest rates that were measured. A call takes at least the time of "
      "its bytes at the rate "
      "of a copy, unless they are in a cache, and that of its operations at the rate of a large product. Points are "
      "the ways of the lessons that have both.</p>\n" +
      ceilings_table(ceilings) + "<div class=\"wide\">" + roofline_of(ceilings, lessons) + "</div></section>\n";
  for (const Lesson& lesson : lessons) out += section(lesson);
  return out + "</body>\n</html>\n";
}

}  // namespace lorry::bench::lessons
