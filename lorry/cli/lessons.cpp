#include "lorry/bench/lessons.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lorry/base/units.h"
#include "lorry/bench/lessons/json.h"
#include "lorry/bench/lessons/page.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/output.h"
#include "lorry/cli/progress.h"
#include "lorry/cli/report.h"
#include "lorry/ops/ops.h"

namespace lorry::cli {
namespace {

using bench::lessons::Comparison;
using bench::lessons::Lesson;
using bench::lessons::Way;

/// How lessons are printed: bars on a terminal only.
class LessonPrinter {
 public:
  explicit LessonPrinter(const Table& table) : table_(table), columns_(terminal_columns(table.stream())) {}

  void print(const Lesson& lesson) const {
    table_.print("{} {}\n", lesson.number, lesson.title);
    paragraph(lesson.teaches, 2);
    for (const Comparison& comparison : lesson.comparisons) print(comparison);
    for (const bench::lessons::Tried& tried : lesson.tried) {
      table_.print("\n");
      paragraph(tried.what, 2);
      code(tried.code);
      paragraph(tried.outcome, 4);
    }
    if (!lesson.notes.empty() || !lesson.absent.empty() || !lesson.error.empty()) table_.print("\n");
    for (const std::string& note : lesson.notes) paragraph(note, 2);
    for (const std::string& absent : lesson.absent) paragraph("not shown here: " + absent, 2);
    if (!lesson.error.empty()) paragraph("this lesson ended early: " + lesson.error, 2);
    table_.print("\n");
  }

 private:
  static constexpr int kText = 100;  ///< the longest line of text

  void print(const Comparison& comparison) const {
    table_.print("\n");
    paragraph(comparison.title, 2);
    if (!comparison.given.empty()) {
      table_.print("    given\n");
      code(comparison.given);
    }
    size_t width = 0;
    double longest = 0;
    for (const Way& way : comparison.ways) {
      width = std::max(width, way.name.size());
      longest = std::max(longest, way.time.median_us);
    }
    for (size_t i = 0; i < comparison.ways.size(); ++i) {
      const Way& way = comparison.ways[i];
      // not folded: that counts bytes, and a block has three
      write(table_.stream(), fmt::format("    {:<{}} {:>8}{}\n", way.name, width, duration_text(way.time.median_us),
                                         bar(way.time.median_us / longest, width)));
      for (const bench::lessons::Figure& figure : way.figures)
        table_.print("      {}\n", bench::lessons::text_of(figure));
      if (i + 1 == comparison.ways.size() || comparison.ways[i + 1].code != way.code) code(way.code);
    }
    paragraph(comparison.verdict, 4);
    if (!comparison.why.empty()) paragraph("Why: " + comparison.why, 4);
  }

  void paragraph(const std::string& text, int indent) const {
    const int room = std::min(columns_.value_or(kText), kText);
    table_.print("{:{}}{}\n", "", indent, folded(text, std::max(20, room - indent), indent));
  }
  void code(const std::string& text) const {
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      write(table_.stream(), fmt::format("      | {}\n", text.substr(at, end - at)));
      at = end + 1;
    }
  }
  /// A bar of eighths of a character, from the longest time; empty where nobody looks.
  std::string bar(double share, size_t width) const {
    const int room = std::min(columns_.value_or(0), kText) - static_cast<int>(width) - 18;
    if (room < 10 || !(share >= 0)) return "";
    constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int eighths = std::max(1, static_cast<int>(std::lround(8 * share * room)));
    std::string text = "  ";
    for (int i = 0; i < eighths / 8; ++i) text += "█";
    return text + kEighths[eighths % 8];
  }

  const Table& table_;
  std::optional<int> columns_;
};

/// What is being measured: a line on standard error that is redrawn; nothing unless that is a terminal.
class StatusLine {
 public:
  StatusLine(size_t total, bool quiet) : total_(total), columns_(quiet ? std::nullopt : terminal_columns(stderr)) {}
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(size_t done, std::string_view what) const {
    if (!columns_) return;
    const ProgressFacts facts{
        .label = "lessons", .done = static_cast<int64_t>(done), .total = static_cast<int64_t>(total_), .figure = what};
    fmt::print(stderr, "\r\033[K{}", progress_line(facts, *columns_ - 1));
    std::fflush(stderr);
  }
  void clear() const {
    if (columns_) fmt::print(stderr, "\r\033[K");
  }

 private:
  size_t total_;
  std::optional<int> columns_;
};

/// The entries with these numbers, in the order of the table; all without numbers.
std::vector<const bench::lessons::Entry*> chosen(const std::vector<int64_t>& numbers) {
  std::vector<const bench::lessons::Entry*> entries;
  for (const bench::lessons::Entry& entry : bench::lessons::table())
    if (numbers.empty() || std::ranges::find(numbers, entry.number) != numbers.end()) entries.push_back(&entry);
  return entries;
}

}  // namespace

int run_lessons(const LessonsOptions& options, const CommonOptions& common) {
  if (!options.child.empty()) return bench::lessons::run_child(options.child, default_device());
  require_writable(common.json);
  require_writable(options.report);
  const bench::lessons::Settings settings{
      .device = default_device(), .seconds = options.seconds, .child = {"/proc/self/exe", "lessons", "--child"}};
  manual_seed(common.seed);
  const Table table{common.json, options.report};
  const LessonPrinter printer(table);
  const auto entries = chosen(options.numbers);
  StatusLine status_line(entries.size(), common.quiet);
  status_line.show(0, "the ceilings of this device");
  const bench::lessons::Ceilings ceilings = bench::lessons::measure_ceilings(settings);
  std::vector<Lesson> lessons;
  for (const bench::lessons::Entry* entry : entries) {
    status_line.show(lessons.size(), entry->title);
    lessons.push_back(bench::lessons::run(*entry, settings, ceilings));
    status_line.clear();
    printer.print(lessons.back());
  }
  write_json(common.json, bench::lessons::to_json(lessons, ceilings, settings));
  if (!options.report.empty()) write_file(options.report, bench::lessons::page_of(lessons, ceilings, settings));
  int status = 0;
  if (!ceilings.error.empty()) {
    fmt::print(stderr, "lorry: not every ceiling was measured: {}\n", ceilings.error);
    status = 1;
  }
  for (const Lesson& lesson : lessons)
    if (!lesson.error.empty()) {
      fmt::print(stderr, "lorry: lesson {} ended early: {}\n", lesson.number, lesson.error);
      status = 1;
    }
  return status;
}

}  // namespace lorry::cli
