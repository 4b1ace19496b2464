#include "lorry/profile/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "lorry/base/error.h"
#include "lorry/base/units.h"
#include "lorry/profile/cell_text.h"
#include "lorry/profile/program_view.h"

namespace lorry::profile {
namespace {

/// The least time in nanoseconds that work needs at its device's ceilings. 0 if unknown.
double least_ns(Device device, int64_t bytes, int64_t flops, DType dtype, const std::vector<Ceilings>& all) {
  const auto at = std::ranges::find(all, device, &Ceilings::device);
  return at != all.end() ? least_time(*at, bytes, flops, dtype).most() : 0;
}

/// "[8, 64] f32, [64] f32".
std::string shapes_of(const Recording& r, const SpanRecord& span) {
  if (span.operands == kNone) return {};
  const OperandList& list = r.operand_lists[static_cast<size_t>(span.operands)];
  std::string text;
  for (int32_t i = 0; i < list.inputs; ++i) {
    const OperandRecord& x = list.operands[static_cast<size_t>(i)];
    if (!text.empty()) text += ", ";
    text += x.is_number ? "number" : fmt::format("[{}] {}", fmt::join(x.sizes.begin(), x.sizes.end(), ", "), x.dtype);
  }
  return text;
}

/// Collects rows by name.
class Rows {
 public:
  TableRow& operator[](const std::string& name) {
    const auto [at, is_new] = numbers_.try_emplace(name, rows_.size());
    if (is_new) rows_.push_back({.name = name}), least_.push_back(0);
    return rows_[at->second];
  }
  void add_least(const std::string& name, double ns) { least_[numbers_.at(name)] += ns; }
  std::vector<TableRow> take() {
    for (size_t i = 0; i < rows_.size(); ++i) {
      const int64_t taken = rows_[i].device_ns > 0 ? rows_[i].device_ns : rows_[i].cpu_ns;
      if (least_[i] > 0 && taken > 0) rows_[i].ratio_to_ceiling = least_[i] / static_cast<double>(taken);
    }
    return std::move(rows_);
  }

 private:
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<TableRow> rows_;
  std::vector<double> least_;
};

/// "blocks.0.attention" and the modules around it: "blocks.0", "blocks". Of "step/blocks.0" also "step".
std::vector<std::string> modules_around(std::string path) {
  std::vector<std::string> all;
  while (!path.empty()) {
    all.push_back(path);
    const size_t cut = path.find_last_of("./");
    path.resize(cut == std::string::npos ? 0 : cut);
  }
  if (all.empty()) all.emplace_back("(outside modules)");
  return all;
}

std::string name_of_span(const Recording& r, const SpanRecord& span) {
  const std::string& name = r.name_of(span);
  return span.kind == SpanKind::backward ? name + " backward" : name;
}

std::vector<std::string> groups_of(const Recording& r, const SpanRecord& span, GroupBy by) {
  switch (by) {
    case GroupBy::op:
      return {name_of_span(r, span)};
    case GroupBy::module:
      return modules_around(r.paths[static_cast<size_t>(span.path)]);
    case GroupBy::line:
      return {span.line != 0 ? r.lines[static_cast<size_t>(span.line)] : "(unknown)"};
    case GroupBy::shape:
      return {fmt::format("{}({})", name_of_span(r, span), shapes_of(r, span))};
  }
  return {};
}

/// The time of the spans directly inside each span.
std::vector<int64_t> time_inside(const Recording& r) {
  std::vector<int64_t> inside(r.spans.size());
  for (const SpanRecord& x : r.spans)
    if (x.parent != kNone) inside[static_cast<size_t>(x.parent)] += x.duration();
  return inside;
}

void add_spans(const Recording& r, GroupBy by, const std::vector<Ceilings>& ceilings, Rows& rows) {
  const std::vector<int64_t> inside = time_inside(r);
  for (size_t i = 0; i < r.spans.size(); ++i) {
    const SpanRecord& x = r.spans[i];
    if (x.kind == SpanKind::scope) continue;
    const int64_t self = x.duration() - std::min(inside[i], x.duration());
    const double least = x.is_work() ? least_ns(x.device, x.bytes, x.flops, x.dtype, ceilings) : 0;
    bool is_innermost = true;
    for (const std::string& name : groups_of(r, x, by)) {
      TableRow& row = rows[name];
      if (is_innermost) row.self_cpu_ns += self;
      is_innermost = false;
      // Of a backward the calls inside it are counted by themselves.
      row.cpu_ns += by == GroupBy::op || by == GroupBy::shape ? x.duration() : self;
      if (by == GroupBy::op || by == GroupBy::shape || x.is_work()) ++row.calls;
      row.bytes += x.bytes, row.flops += x.flops;
      if (least > 0) rows.add_least(name, least);
    }
  }
}

/// Adds the work of GPUs, and the calls that replayed graphs made there: each at its first node.
void add_device(const Recording& r, GroupBy by, const std::vector<Ceilings>& ceilings, Rows& rows, TableRow& total) {
  std::set<std::pair<uint32_t, int32_t>> counted;  // launches of graphs, and their parts
  for (const DeviceRecord& x : r.device) {
    total.device_ns += x.duration(), ++total.launches;
    const bool is_call = x.replayed != kNone && counted.emplace(x.correlation, x.replayed).second;
    const PartRecord part = is_call ? r.origin_of(x) : PartRecord();
    if (is_call) ++total.calls, total.bytes += part.bytes, total.flops += part.flops;
    std::vector<std::string> names{"(unknown)"};
    if (x.span != kNone) {
      SpanRecord as = r.spans[static_cast<size_t>(x.span)];
      if (x.replayed != kNone) {
        const PartRecord origin = r.origin_of(x);
        as.name = origin.name, as.path = origin.path, as.line = origin.line;
      }
      names = groups_of(r, as, by);
    }
    for (const std::string& name : names) {
      TableRow& row = rows[name];
      row.device_ns += x.duration(), ++row.launches;
      if (!is_call) continue;
      ++row.calls, row.bytes += part.bytes, row.flops += part.flops;
      const Device device{DeviceType::cuda, x.device};
      rows.add_least(name, least_ns(device, part.bytes, part.flops, part.dtype, ceilings));
    }
  }
}

int64_t key_of(const TableRow& row, SortBy by) {
  switch (by) {
    case SortBy::self_cpu:
      return row.self_cpu_ns;
    case SortBy::cpu:
      return row.cpu_ns;
    case SortBy::device:
      return row.device_ns;
    case SortBy::calls:
      return row.calls;
    case SortBy::bytes:
      return row.bytes;
    case SortBy::flops:
      return row.flops;
    default:
      return 0;
  }
}

void sort(std::vector<TableRow>& rows, SortBy by) {
  if (by == SortBy::name) {
    std::ranges::sort(rows, {}, &TableRow::name);
    return;
  }
  std::ranges::stable_sort(rows, [&](const TableRow& a, const TableRow& b) {
    if (by != SortBy::time) return key_of(a, by) > key_of(b, by);
    return a.device_ns != b.device_ns ? a.device_ns > b.device_ns : a.self_cpu_ns > b.self_cpu_ns;
  });
}

void add_to(TableRow& sum, const TableRow& x) {
  sum.calls += x.calls, sum.self_cpu_ns += x.self_cpu_ns, sum.cpu_ns += x.cpu_ns, sum.device_ns += x.device_ns;
  sum.launches += x.launches, sum.bytes += x.bytes, sum.flops += x.flops;
}

/// What the host did, all together.
TableRow total_of_spans(const Recording& r) {
  TableRow total{.name = "total"};
  for (const SpanRecord& x : r.spans) {
    if (x.parent == kNone) total.cpu_ns += x.duration(), total.self_cpu_ns += x.duration();
    if (x.is_work()) ++total.calls, total.bytes += x.bytes, total.flops += x.flops;
  }
  return total;
}

/// A name that fits its column: of a long path the end tells more.
std::string fitted(const std::string& name, size_t width) {
  return name.size() <= width ? name : "..." + name.substr(name.size() - (width - 3));
}

}  // namespace

const char* title(GroupBy by) {
  constexpr const char* kTitles[] = {"operator", "module", "line", "operator and shapes"};
  return kTitles[static_cast<int>(by)];
}

Table table(const Recording& recording, const TableOptions& options, const std::vector<Ceilings>& ceilings) {
  if (options.row_limit < 0)
    raise_as<ValueError>("table", "row_limit is negative; got {}; expected 0 or more", options.row_limit);
  Rows rows;
  add_spans(recording, options.by, ceilings, rows);
  TableRow total = total_of_spans(recording);
  add_device(recording, options.by, ceilings, rows, total);
  Table made{.by = options.by,
             .rows = rows.take(),
             .rest = {.name = "other rows"},
             .total = std::move(total),
             .duration_ns = recording.duration,
             .has_device = !recording.device.empty()};
  sort(made.rows, options.sort_by);
  const auto limit = static_cast<size_t>(options.row_limit);
  for (size_t i = limit; i < made.rows.size(); ++i) add_to(made.rest, made.rows[i]), ++made.left_out;
  if (made.rows.size() > limit) made.rows.resize(limit);
  return made;
}

std::string to_string(const Table& table) {
  size_t width = 24;
  for (const TableRow& row : table.rows) width = std::min<size_t>(std::max(width, row.name.size()), 64);
  std::string text = fmt::format("{:<{}} {:>8} {:>10} {:>10}", title(table.by), width, "calls", "CPU self", "CPU");
  if (table.has_device) text += fmt::format(" {:>10} {:>8}", "GPU", "launches");
  text += fmt::format(" {:>6} {:>10} {:>10} {:>8}\n", "share", "bytes", "FLOP", "ceiling");
  const auto add = [&](const TableRow& row) {
    const int64_t whole = table.has_device ? table.total.device_ns : table.duration_ns;
    const int64_t part = table.has_device ? row.device_ns : row.self_cpu_ns;
    text += fmt::format("{:<{}} {:>8} {:>10} {:>10}", fitted(row.name, width), width, row.calls,
                        time_cell(row.self_cpu_ns), time_cell(row.cpu_ns));
    if (table.has_device) text += fmt::format(" {:>10} {:>8}", time_cell(row.device_ns), row.launches);
    text += fmt::format(" {:>5.1f}% {:>10} {:>10} {:>8}\n",
                        whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0,
                        count_cell(row.bytes, "B"), count_cell(row.flops, "FLOP"),
                        row.ratio_to_ceiling ? fmt::format("{:.0f} %", 100 * *row.ratio_to_ceiling) : "-");
  };
  for (const TableRow& row : table.rows) add(row);
  if (table.left_out > 0) {
    TableRow rest = table.rest;
    rest.name = fmt::format("{} other rows", table.left_out);
    add(rest);
  }
  add(table.total);
  return text;
}

std::string to_json(const Table& table) {
  const auto json_of = [](const TableRow& row) {
    nlohmann::ordered_json json = {
        {"name", row.name},     {"calls", row.calls},         {"self_cpu_ns", row.self_cpu_ns},
        {"cpu_ns", row.cpu_ns}, {"device_ns", row.device_ns}, {"launches", row.launches},
        {"bytes", row.bytes},   {"flops", row.flops}};
    if (row.ratio_to_ceiling) json["ratio_to_ceiling"] = *row.ratio_to_ceiling;
    return json;
  };
  nlohmann::ordered_json json = {{"by", title(table.by)}, {"duration_ns", table.duration_ns}};
  json["rows"] = nlohmann::ordered_json::array();
  for (const TableRow& row : table.rows) json["rows"].push_back(json_of(row));
  json["left_out"] = table.left_out;
  json["rest"] = json_of(table.rest), json["total"] = json_of(table.total);
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lorry::profile
