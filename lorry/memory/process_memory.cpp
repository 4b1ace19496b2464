#include "lorry/memory/process_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace lorry::memory {
namespace {

constexpr int64_t kNoLimit = INT64_MAX;

/// The file's text; empty if it cannot be read.
std::string contents(const std::string& path) {
  std::string text;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char piece[4096];
  for (ssize_t count; (count = read(file, piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(count));
  close(file);
  return text;
}

/// The number at the beginning of the text, after blanks; none for other text ("max"). A number larger than 64 bits
/// means no limit.
std::optional<int64_t> number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return kNoLimit;
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// Calls visit(line) for every line of the text.
template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The number after `key` in the line that begins with it; none if there is no such line.
std::optional<int64_t> field(std::string_view text, std::string_view key) {
  std::optional<int64_t> found;
  for_each_line(text, [&](std::string_view line) {
    if (line.starts_with(key)) found = number(line.substr(key.size()));
  });
  return found;
}

/// The number of pages of RAM in the kernel's table of zones. The zone of device memory is not counted.
int64_t present_pages(std::string_view zones) {
  int64_t pages = 0;
  bool ram = false;
  for_each_line(zones, [&](std::string_view line) {
    constexpr std::string_view kPresent = "        present ";
    if (line.starts_with("Node")) ram = !line.ends_with("Device");
    if (ram && line.starts_with(kPresent)) pages += number(line.substr(kPresent.size())).value_or(0);
  });
  return pages;
}

int64_t page_size() { return sysconf(_SC_PAGESIZE); }

/// The names of the same files and fields in the two versions of control groups.
struct Version {
  const char* mounted[2];
  const char *limit, *usage;
  const char *file_pages, *shared_pages;  // in memory.stat; file pages that are not shared memory can be dropped
  const char *swap_limit, *swap_usage;    // null in version 1, where one limit covers memory and swap
};
constexpr Version kVersions[] = {
    {{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
     "memory.max",
     "memory.current",
     "file ",
     "shmem ",
     "memory.swap.max",
     "memory.swap.current"},
    {{"/sys/fs/cgroup/memory", nullptr},
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     "total_cache ",
     "total_shmem ",
     nullptr,
     nullptr},
};

/// Calls visit(version, directory) for every existing control group of the process, from its own to the root. In a
/// container the path may contain groups that are not mounted; then the root of the mount is the container's own group.
template <class Visit>
void for_each_group(const std::string& root, const Visit& visit) {
  const std::string groups = contents(root + "/proc/self/cgroup");
  for_each_line(groups, [&](std::string_view line) {  // "0::/path" in version 2, "4:memory,...:/path" in version 1
    const size_t first = line.find(':');
    if (first == std::string_view::npos) return;
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && (',' + std::string(controllers) + ',').find(",memory,") == std::string::npos) return;
    const Version& version = kVersions[controllers.empty() ? 0 : 1];
    for (const char* mounted : version.mounted) {
      if (mounted == nullptr) continue;
      std::string path(line.substr(second + 1));
      for (;;) {
        while (!path.empty() && path.back() == '/') path.pop_back();
        visit(version, root + mounted + path + "/");
        if (path.empty()) break;
        path.erase(path.rfind('/'));
      }
    }
  });
}

int64_t group_limit(const Version& version, const std::string& directory) {
  return number(contents(directory + version.limit)).value_or(kNoLimit);
}

int64_t present_memory(const std::string& root) {
  const auto read = [&] { return present_pages(contents(root + "/proc/zoneinfo")) * page_size(); };
  if (!root.empty()) return read();
  static const int64_t own = read();  // read once: the file is long, and the amount of RAM does not change
  return own;
}

/// MemTotal, or more. Some kernels initialise memory only as it is used: MemTotal grows, up to the present memory minus
/// what the kernel reserves at its start (its tables, its code, room for a crash dump). That is at least 1.6 %, and was
/// 1.9 % where it was measured; a sixteenth is subtracted, so that no memory is counted that never becomes available.
int64_t machine_memory(const std::string& root) {
  const int64_t known = field(contents(root + "/proc/meminfo"), "MemTotal:").value_or(0) * 1024;
  const int64_t present = present_memory(root);
  return known == 0 ? kNoLimit : std::max(known, present - present / 16);
}

int64_t resource_limit(decltype(RLIMIT_AS) which) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

/// Pages of this process.
struct ProcessPages {
  int64_t resident = 0;
  int64_t of_files = 0;  ///< resident ones of files and shared memory
};
ProcessPages process_pages(const std::string& root) {
  const std::string text = contents(root + "/proc/self/statm");
  int64_t pages[3] = {};  // of address space, resident, of files
  for (size_t at = 0, k = 0; k < 3 && at < text.size(); ++k) {
    pages[k] = number(std::string_view(text).substr(at)).value_or(0);
    at = std::min(text.find(' ', at), text.size() - 1) + 1;
  }
  return {pages[1], pages[2]};
}

}  // namespace

int64_t process_memory_resident(const std::string& root) { return process_pages(root).resident * page_size(); }

int64_t process_memory_limit(const std::string& root) {
  int64_t limit = std::min({machine_memory(root), resource_limit(RLIMIT_AS), resource_limit(RLIMIT_DATA)});
  for_each_group(root, [&](const Version& version, const std::string& directory) {
    limit = std::min(limit, group_limit(version, directory));
  });
  return limit;
}

int64_t process_memory_available(int64_t reserved, const std::string& root) {
  const ProcessPages pages = process_pages(root);
  const int64_t untouched = std::max<int64_t>(0, reserved - (pages.resident - pages.of_files) * page_size());

  const std::string machine = contents(root + "/proc/meminfo");
  const int64_t swap = field(machine, "SwapFree:").value_or(0) * 1024;
  int64_t available = kNoLimit;
  if (const auto free = field(machine, "MemAvailable:")) {
    const int64_t uncounted = machine_memory(root) - field(machine, "MemTotal:").value_or(0) * 1024;
    available = *free * 1024 + swap + std::max<int64_t>(0, uncounted);
  }
  for_each_group(root, [&](const Version& version, const std::string& directory) {
    const int64_t limit = group_limit(version, directory);
    if (limit >= kNoLimit / 2) return;  // version 1 has a number near the largest instead of "no limit"
    const std::string usage = contents(directory + "memory.stat");
    const int64_t droppable = std::max<int64_t>(
        0, field(usage, version.file_pages).value_or(0) - field(usage, version.shared_pages).value_or(0));
    int64_t room = limit - number(contents(directory + version.usage)).value_or(0) + droppable;
    if (version.swap_limit != nullptr) {
      const int64_t swap_limit = number(contents(directory + version.swap_limit)).value_or(kNoLimit);
      room += std::clamp<int64_t>(swap_limit - number(contents(directory + version.swap_usage)).value_or(0), 0, swap);
    }
    available = std::min(available, room);
  });
  return std::max<int64_t>(0, available - untouched);
}

}  // namespace lorry::memory
