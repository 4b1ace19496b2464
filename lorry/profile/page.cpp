#include "lorry/profile/page.h"

#include <fmt/format.h>

#include "lorry/profile/cell_text.h"
#include "lorry/profile/svg.h"

namespace lorry::profile {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lorry: a profile</title>
<style>
:root{--ink:#222;--paper:#fff;--faint:#666;--rule:#ddd;--bar:#0072b2;--box:#f6f6f4}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#1a1a1a;--faint:#999;--rule:#444;
--bar:#56b4e9;--box:#242424}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid var(--rule)}
.wide{overflow-x:auto}svg{max-width:100%;height:auto}
table{border-collapse:collapse;font-size:.85rem;width:100%}
td,th{padding:.2rem .5rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
td:first-child,th:first-child{text-align:left;max-width:24rem;overflow:hidden;text-overflow:ellipsis}
.verdict{background:var(--box);padding:.8rem 1rem;border-left:4px solid var(--bar)}
.where{color:var(--faint);font-size:.85rem}li{margin:.6rem 0}
</style></head><body>
)";

std::string where(const std::string& path, const std::string& line) {
  if (path.empty() && line.empty()) return {};
  return fmt::format("<div class=\"where\">{}{}{}</div>", xml_text(path), path.empty() || line.empty() ? "" : ", ",
                     xml_text(line));
}

std::string verdict(const Diagnosis& d) {
  if (!d.is_complete()) {
    std::string text = "<p class=\"verdict\">Records are missing, so there is no verdict:</p><ul>";
    for (const std::string& why : d.incomplete) text += fmt::format("<li>{}</li>", xml_text(why));
    return text + "</ul>";
  }
  const double whole = d.times.total();
  return fmt::format(
      "<p class=\"verdict\">Regime: <b>{}</b>, {:.0f} % of {} on {} ({}){}.</p>\n<div class=\"wide\">{}</div>\n",
      name(d.regime), percent(d.times[d.regime], whole), time_cell(whole), xml_text(d.ceilings.name),
      to_string(d.device), recording_text(d), to_svg(d));
}

std::string phases(const Diagnosis& d) {
  std::string text =
      "<h2>Phases</h2><div class=\"wide\"><table><tr><th>phase</th><th>time</th><th>overhead</th><th>memory</th>"
      "<th>compute</th><th>waiting</th></tr>\n";
  for (const Phase& x : d.phases) {
    text += fmt::format("<tr><td>{}</td><td>{}</td>", xml_text(x.name), time_cell(x.times.total()));
    for (const double ns : x.times.ns) text += fmt::format("<td>{:.0f} %</td>", percent(ns, x.times.total()));
    text += "</tr>\n";
  }
  return text + "</table></div>\n";
}

std::string findings(const Diagnosis& d) {
  std::string text = "<h2>What would help</h2>\n";
  if (d.findings.empty()) return text + "<p>No finding gains more than a few per cent.</p>\n";
  text += "<ol>\n";
  for (const Finding& x : d.findings)
    text += fmt::format("<li><b>{}</b>: predicted gain {} ({:.0f} %)<br>{}<br>{}{}</li>\n", name(x.kind),
                        time_cell(x.gain_ns), percent(x.gain_ns, d.times.total()), xml_text(x.what), xml_text(x.cure),
                        where(x.path, x.line));
  return text + "</ol>\n";
}

std::string waits(const Diagnosis& d) {
  if (d.waits.empty()) return {};
  std::string text =
      "<h2>Waits for the GPU</h2><div class=\"wide\"><table><tr><th>operator</th><th>times</th><th>waited</th>"
      "<th>GPU idle because of it</th><th>verdict</th></tr>\n";
  for (const WaitReport& x : d.waits)
    text += fmt::format("<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", xml_text(x.name),
                        where(x.path, x.line), x.count, time_cell(x.waited_ns), time_cell(x.idle_caused_ns),
                        x.is_needed ? "the work before it takes the time" : "hidden synchronisation");
  return text + "</table></div>\n";
}

std::string table_text(const Table& t) {
  std::string text = fmt::format(
      "<h2>By {0}</h2><div class=\"wide\"><table><tr><th>{0}</th><th>calls</th><th>CPU "
      "self</th><th>CPU</th><th>GPU</th>"
      "<th>bytes</th><th>FLOP</th><th>of the ceiling</th></tr>\n",
      title(t.by));
  const auto add = [&](const TableRow& x) {
    text += fmt::format(
        "<tr><td title=\"{0}\">{0}</td><td>{1}</td><td>{2}</td><td>{3}</td><td>{4}</td><td>{5}</td><td>{6}"
        "</td><td>{7}</td></tr>\n",
        xml_text(x.name), x.calls, time_cell(x.self_cpu_ns), time_cell(x.cpu_ns), time_cell(x.device_ns),
        count_cell(x.bytes, "B"), count_cell(x.flops, "FLOP"),
        x.ratio_to_ceiling ? fmt::format("{:.0f} %", 100 * *x.ratio_to_ceiling) : "-");
  };
  for (const TableRow& row : t.rows) add(row);
  add(t.total);
  return text + "</table></div>\n";
}

}  // namespace

std::string page(const Recording& recording, const Report& report) {
  std::string text = kHead;
  text += fmt::format("<h1>A profile of {}</h1>\n<p>Recorded on {}, {} spans.</p>\n", time_cell(recording.duration),
                      xml_text(recording.started), recording.spans.size());
  text += verdict(report.diagnosis);
  if (report.diagnosis.is_complete())
    text += findings(report.diagnosis) + waits(report.diagnosis) + phases(report.diagnosis);
  for (const Table& t : report.tables) text += table_text(t);
  text += "<h2>Memory</h2>\n<div class=\"wide\">" + to_svg(report.memory) + "</div>\n";
  return text + "</body></html>\n";
}

}  // namespace lorry::profile
