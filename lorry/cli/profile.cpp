// lorry profile: runs another command under a session, and says where its time went.

#include "lorry/profile/diagnose.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <optional>

#include "lorry/base/units.h"
#include "lorry/cli/apply.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/output.h"
#include "lorry/profile/chrome_trace.h"
#include "lorry/profile/memory_timeline.h"
#include "lorry/profile/page.h"
#include "lorry/profile/session.h"
#include "lorry/profile/table.h"

namespace lorry::cli {
namespace {

/// What a recording shows.
profile::Report report_of(const profile::Recording& recording, const ProfileOptions& options) {
  profile::Report report;
  report.diagnosis = profile::diagnose(recording);
  const std::vector<profile::Ceilings> ceilings{report.diagnosis.ceilings};
  for (const profile::GroupBy by : options.by)
    report.tables.push_back(
        profile::table(recording, {.by = by, .sort_by = options.sort_by, .row_limit = options.rows}, ceilings));
  report.memory = profile::memory_timeline(recording, profile::GroupBy::op);
  return report;
}

void print(const Table& out, const profile::Recording& recording, const profile::Report& report) {
  out.print("\nrecorded: {} in {} spans of {} threads, {} pieces of work on GPUs, {} waits\n",
            duration_text(static_cast<double>(recording.duration) / 1000), recording.spans.size(),
            recording.threads.size(), recording.device.size(), recording.waits.size());
  for (const profile::Table& table : report.tables) out.print("\n{}", profile::to_string(table));
  if (!recording.memory.empty()) out.print("\n{}", profile::to_string(report.memory, 8));
  out.print("\n{}", profile::to_string(report.diagnosis));
}

std::string json_of(const profile::Recording& recording, const profile::Report& report,
                    const std::optional<profile::Trial>& trial) {
  nlohmann::ordered_json json = {{"started", recording.started}, {"duration_ns", recording.duration}};
  json["tables"] = nlohmann::ordered_json::array();
  for (const profile::Table& table : report.tables)
    json["tables"].push_back(nlohmann::ordered_json::parse(profile::to_json(table)));
  json["memory"] = nlohmann::ordered_json::parse(profile::to_json(report.memory));
  json["diagnosis"] = nlohmann::ordered_json::parse(profile::to_json(report.diagnosis));
  if (trial) json["applied"] = nlohmann::ordered_json::parse(profile::to_json(*trial));
  return json.dump(2) + "\n";
}

/// Tries the cures of a run that ended well. Its report is already printed: an error here is printed too, and does not
/// change the exit status.
std::optional<profile::Trial> apply(const ProfileOptions& options, const CommonOptions& common, const Table& out) {
  const auto& train = std::get<TrainOptions>(options.command->command);
  if (!common.quiet) fmt::print(stderr, "trying cures: each is measured for a few seconds\n");
  std::optional<profile::Trial> trial;
  try {
    trial = try_cures(train, options.apply_all);
  } catch (const std::exception& error) {
    fmt::print(stderr, "lorry: profile: the cures cannot be tried: {}\n", error.what());
    return std::nullopt;
  }
  out.print("\n{}", profile::to_string(*trial));
  return trial;
}

}  // namespace

int run_profile(const ProfileOptions& options, const CommonOptions& common) {
  for (const std::string& file : {common.json, options.trace, options.report, options.memory_plot})
    require_writable(file);
  profile::Session session({.max_spans = options.max_spans, .save_to = options.trace});
  int status = 1;
  std::exception_ptr failed;
  try {
    status = run_command(*options.command);
  } catch (...) {
    failed = std::current_exception();  // what was recorded until then is shown
  }
  const profile::Recording recording = session.stop();
  if (!options.trace.empty()) profile::write_chrome_trace(recording, options.trace);
  const profile::Report report = report_of(recording, options);
  const Table out{common.json, options.command->common.json};
  print(out, recording, report);
  write_file(options.memory_plot, options.memory_plot.empty() ? "" : profile::to_svg(report.memory));
  write_file(options.report, options.report.empty() ? "" : profile::page(recording, report));
  std::optional<profile::Trial> trial;
  if ((options.apply || options.apply_all) && failed == nullptr && status == 0) trial = apply(options, common, out);
  write_file(common.json, common.json.empty() ? "" : json_of(recording, report, trial));
  if (failed != nullptr) std::rethrow_exception(failed);
  return status;
}

}  // namespace lorry::cli
