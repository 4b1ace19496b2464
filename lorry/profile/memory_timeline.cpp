#include "lorry/profile/memory_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "lorry/base/error.h"
#include "lorry/base/units.h"
#include "lorry/profile/svg.h"

namespace lorry::profile {
namespace {

constexpr size_t kPoints = 2000;
constexpr const char* kBefore = "(before the session)";

/// Goes through the memory events of one allocator and keeps count.
class Replayed {
 public:
  Replayed(const Recording& r, int32_t allocator, GroupBy by) : r_(r), allocator_(allocator), by_(by) {
    holders_.push_back({.name = kBefore});
    for (const auto& [name, bytes] : r.memory_before)
      if (name == allocator) holders_[0].bytes += bytes;
    in_use_ = before_ = holders_[0].bytes;
  }

  int64_t before() const { return before_; }
  int64_t in_use() const { return in_use_; }
  std::vector<MemoryHolder>& holders() { return holders_; }
  bool concerns(const MemoryRecord& x) const { return x.allocator == allocator_; }

  void step(const MemoryRecord& x) {
    in_use_ += x.bytes;
    if (x.bytes > 0) {
      MemoryHolder& holder = holders_[holder_of(x)];
      holder.bytes += x.bytes, ++holder.blocks;
      holder.allocated_bytes += x.bytes, ++holder.allocations;
      blocks_[x.address] = {x.bytes, holder_of(x)};
      return;
    }
    const auto block = blocks_.find(x.address);
    if (block == blocks_.end()) {
      holders_[0].bytes += x.bytes;
      return;
    }
    MemoryHolder& holder = holders_[block->second.second];
    holder.bytes -= block->second.first, --holder.blocks;
    blocks_.erase(block);
  }

 private:
  const std::string& name_of(const MemoryRecord& x) const {
    static const std::string outside = "(outside operators)";
    const std::string& name = by_ == GroupBy::op       ? r_.names[static_cast<size_t>(x.name)]
                              : by_ == GroupBy::module ? r_.paths[static_cast<size_t>(x.path)]
                                                       : r_.lines[static_cast<size_t>(x.line)];
    return name.empty() ? outside : name;
  }
  size_t holder_of(const MemoryRecord& x) {
    const auto [at, is_new] = numbers_.try_emplace(name_of(x), holders_.size());
    if (is_new) holders_.push_back({.name = name_of(x)});
    return at->second;
  }

  const Recording& r_;
  const int32_t allocator_;
  const GroupBy by_;
  int64_t in_use_ = 0, before_ = 0;
  std::vector<MemoryHolder> holders_;
  std::unordered_map<std::string, size_t> numbers_;
  std::unordered_map<uint64_t, std::pair<int64_t, size_t>> blocks_;  ///< by address: bytes and holder
};

/// The highest use of each allocator, by its name's index.
std::map<int32_t, int64_t> peaks_of(const Recording& r) {
  std::map<int32_t, int64_t> in_use, peaks;
  for (const auto& [allocator, bytes] : r.memory_before) peaks[allocator] = in_use[allocator] += bytes;
  for (const MemoryRecord& x : r.memory) {
    const int64_t now = in_use[x.allocator] += x.bytes;
    int64_t& peak = peaks[x.allocator];
    peak = std::max(peak, now);
  }
  return peaks;
}

int32_t chosen_allocator(const Recording& r, const std::string& name) {
  const std::map<int32_t, int64_t> peaks = peaks_of(r);
  std::string known;
  int32_t best = kNone;
  for (const auto& [allocator, peak] : peaks) {
    const std::string& its = r.names[static_cast<size_t>(allocator)];
    if (its == name) return allocator;
    known += (known.empty() ? "'" : ", '") + its + "'";
    if (best == kNone || peak > peaks.at(best)) best = allocator;
  }
  if (!name.empty())
    raise_as<ValueError>("memory_timeline", "the recording has no memory of '{}'; expected one of {}", name,
                         known.empty() ? "none: record with SessionOptions::memory" : known);
  return best;
}

}  // namespace

double MemoryTimeline::explained() const {
  if (peak_bytes == 0) return 1;
  int64_t known = 0;
  for (const MemoryHolder& x : holders)
    if (x.name != "(outside operators)") known += x.bytes;
  return static_cast<double>(known) / static_cast<double>(peak_bytes);
}

MemoryTimeline memory_timeline(const Recording& recording, GroupBy by, const std::string& allocator) {
  if (by == GroupBy::shape)
    raise_as<ValueError>("memory_timeline", "blocks have no shapes; expected to group by op, module or line");
  MemoryTimeline made{.allocator = allocator, .by = by};
  const int32_t chosen = chosen_allocator(recording, allocator);
  if (chosen == kNone) return made;
  made.allocator = recording.names[static_cast<size_t>(chosen)];

  // Where the peak is, and who holds memory there.
  Replayed first(recording, chosen, by);
  made.before_bytes = made.peak_bytes = first.before();
  size_t events = 0, at_peak = 0;
  for (size_t i = 0; i < recording.memory.size(); ++i) {
    const MemoryRecord& x = recording.memory[i];
    if (!first.concerns(x)) continue;
    first.step(x), ++events;
    if (first.in_use() > made.peak_bytes) made.peak_bytes = first.in_use(), made.peak_ns = x.time, at_peak = i + 1;
  }
  made.end_bytes = first.in_use();
  Replayed second(recording, chosen, by);
  for (size_t i = 0; i < at_peak; ++i)
    if (second.concerns(recording.memory[i])) second.step(recording.memory[i]);
  made.holders = first.holders();
  for (MemoryHolder& x : made.holders) x.bytes = x.blocks = 0;
  for (size_t i = 0; i < second.holders().size(); ++i)
    made.holders[i].bytes = second.holders()[i].bytes, made.holders[i].blocks = second.holders()[i].blocks;

  std::vector<size_t> order(made.holders.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return made.holders[i].bytes; });
  const size_t largest = std::min(order.size(), MemoryTimeline::kLargest);

  Replayed third(recording, chosen, by);
  const size_t together = std::max<size_t>(1, events / kPoints);
  size_t seen = 0;
  MemoryTimeline::Point best{0, -1, {}};
  const auto note = [&](int64_t ns) {
    if (third.in_use() <= best.bytes) return;
    best = {ns, third.in_use(), {}};
    for (size_t i = 0; i < largest; ++i)
      best.of_largest.push_back(order[i] < third.holders().size() ? third.holders()[order[i]].bytes : 0);
  };
  note(0);
  for (const MemoryRecord& x : recording.memory) {
    if (!third.concerns(x)) continue;
    third.step(x);
    note(x.time);
    if (++seen % together == 0) made.points.push_back(std::exchange(best, {0, -1, {}}));
  }
  if (best.bytes >= 0) made.points.push_back(best);
  std::vector<MemoryHolder> sorted;
  for (const size_t i : order) sorted.push_back(made.holders[i]);
  made.holders = std::move(sorted);
  return made;
}

std::string to_string(const MemoryTimeline& t, int64_t row_limit) {
  std::string text =
      fmt::format("memory of {}: {} before, {} at the peak ({} after the start), {} at the end\n",
                  t.allocator.empty() ? "(nothing)" : t.allocator, bytes_text(t.before_bytes), bytes_text(t.peak_bytes),
                  duration_text(static_cast<double>(t.peak_ns) / 1000), bytes_text(t.end_bytes));
  text += fmt::format("{:<48} {:>10} {:>7} {:>7} {:>12} {:>12}\n", "at the peak", "bytes", "share", "blocks",
                      "allocated", "allocations");
  for (size_t i = 0; i < t.holders.size() && static_cast<int64_t>(i) < row_limit; ++i) {
    const MemoryHolder& x = t.holders[i];
    text += fmt::format("{:<48} {:>10} {:>6.1f}% {:>7} {:>12} {:>12}\n", x.name, bytes_text(x.bytes),
                        t.peak_bytes > 0 ? 100.0 * static_cast<double>(x.bytes) / static_cast<double>(t.peak_bytes) : 0,
                        x.blocks, bytes_text(x.allocated_bytes), x.allocations);
  }
  return text;
}

std::string to_json(const MemoryTimeline& t) {
  nlohmann::ordered_json json = {{"allocator", t.allocator},   {"before_bytes", t.before_bytes},
                                 {"peak_bytes", t.peak_bytes}, {"peak_ns", t.peak_ns},
                                 {"end_bytes", t.end_bytes},   {"explained", t.explained()}};
  json["holders"] = nlohmann::ordered_json::array(), json["points"] = nlohmann::ordered_json::array();
  for (const MemoryHolder& x : t.holders)
    json["holders"].push_back({{"name", x.name},
                               {"bytes", x.bytes},
                               {"blocks", x.blocks},
                               {"allocated_bytes", x.allocated_bytes},
                               {"allocations", x.allocations}});
  for (const MemoryTimeline::Point& x : t.points) json["points"].push_back({x.ns, x.bytes});
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_svg(const MemoryTimeline& t) {
  StackedAreas plot{.title = fmt::format("Memory of {}: {} at the peak", t.allocator, bytes_text(t.peak_bytes)),
                    .x_label = "time",
                    .y_label = "bytes in use"};
  const size_t largest = std::min(t.holders.size(), MemoryTimeline::kLargest);
  for (size_t i = 0; i < largest; ++i) plot.names.push_back(t.holders[i].name);
  plot.names.emplace_back("others");
  for (const MemoryTimeline::Point& p : t.points) {
    plot.x.push_back(static_cast<double>(p.ns) / 1000);
    std::vector<double>& column = plot.columns.emplace_back();
    double rest = static_cast<double>(p.bytes);
    for (const int64_t bytes : p.of_largest) column.push_back(static_cast<double>(bytes)), rest -= column.back();
    column.push_back(std::max(rest, 0.0));
  }
  return to_svg(plot);
}

MemoryDifference memory_difference(const MemoryTimeline& was, const MemoryTimeline& now) {
  MemoryDifference made{.was_peak = was.peak_bytes, .now_peak = now.peak_bytes, .rows = {}};
  std::map<std::string, std::pair<int64_t, int64_t>> rows;
  for (const MemoryHolder& x : was.holders) rows[x.name].first += x.bytes;
  for (const MemoryHolder& x : now.holders) rows[x.name].second += x.bytes;
  for (const auto& [name, bytes] : rows)
    if (bytes.first != bytes.second) made.rows.push_back({name, bytes.first, bytes.second});
  std::ranges::stable_sort(made.rows, std::greater<>(),
                           [](const MemoryDifference::Row& row) { return std::abs(row.now_bytes - row.was_bytes); });
  return made;
}

std::string to_string(const MemoryDifference& d, int64_t row_limit) {
  std::string text = fmt::format("peak: {} -> {}\n", bytes_text(d.was_peak), bytes_text(d.now_peak));
  for (size_t i = 0; i < d.rows.size() && static_cast<int64_t>(i) < row_limit; ++i) {
    const MemoryDifference::Row& x = d.rows[i];
    text += fmt::format("{:<48} {:>10} -> {:>10}  {}{}\n", x.name, bytes_text(x.was_bytes), bytes_text(x.now_bytes),
                        x.now_bytes > x.was_bytes ? "+" : "-", bytes_text(std::abs(x.now_bytes - x.was_bytes)));
  }
  return text;
}

}  // namespace lorry::profile
