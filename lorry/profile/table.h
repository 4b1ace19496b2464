#pragma once

// A recording as a table: by operator, module, source line, or operator and shapes.

#include <optional>
#include <string>
#include <vector>

#include "lorry/profile/ceilings.h"
#include "lorry/profile/recording.h"

namespace lorry::profile {

/// What the rows of a table stand for.
///   op      the operator, or the operators of a fused unit
///   module  the scopes of the call; each counts for the modules around it too
///   line    the program's source line that made the call
///   shape   the operator, with sizes and dtypes of its inputs
enum class GroupBy : uint8_t { op, module, line, shape };

/// The order of rows: the largest first; name: by the alphabet.
enum class SortBy : uint8_t { time, self_cpu, cpu, device, calls, bytes, flops, name };

/// What a table shows, and in which order.
struct TableOptions {
  GroupBy by = GroupBy::op;
  SortBy sort_by = SortBy::time;  ///< time: of GPUs where they worked, else of the CPU; the largest first
  int64_t row_limit = 100;        ///< rows beyond it are counted together
};

/// The calls of one operator, module, line, or operator with shapes. Times are in nanoseconds.
struct TableRow {
  std::string name = {};
  int64_t calls = 0;
  int64_t self_cpu_ns = 0;  ///< without the spans inside
  int64_t cpu_ns = 0;
  int64_t device_ns = 0;  ///< of kernels, copies and fills on GPUs
  int64_t launches = 0;
  int64_t bytes = 0, flops = 0;  ///< what its calls must move and compute
  /// The time that bytes and operations need at the device's ceilings (for whichever takes longer), as a share of the
  /// time that was taken. Empty if neither is known.
  std::optional<double> ratio_to_ceiling = {};
};

/// Rows, what they leave out, and their sum.
struct Table {
  GroupBy by{};
  std::vector<TableRow> rows;
  int64_t left_out = 0;  ///< rows beyond the limit, which are in `rest`
  TableRow rest, total;
  int64_t duration_ns = 0;  ///< of the session
  bool has_device = false;  ///< GPUs worked
};

/// The title of the first column.
const char* title(GroupBy by);

/// ceilings: of the devices that calls ran on, for ratios; a device without entry gets none. Throws ValueError for a
/// negative row_limit.
Table table(const Recording& recording, const TableOptions& options = {}, const std::vector<Ceilings>& ceilings = {});
/// For people: columns with units.
std::string to_string(const Table& table);
/// For programs: all figures, times in nanoseconds.
std::string to_json(const Table& table);

}  // namespace lorry::profile
