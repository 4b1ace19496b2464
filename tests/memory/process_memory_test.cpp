#include "lorry/memory/process_memory.h"
#include "tests/memory/units.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lorry {
namespace {

/// A folder that looks like the root of a machine with 8 GB, of which 6 are free, and a process of 300 MB.
class Machine {
 public:
  Machine() {
    root_ = std::filesystem::temp_directory_path() / ("lorry_machine_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
    write("proc/meminfo",
          "MemTotal:        8388608 kB\nMemFree:         1048576 kB\nMemAvailable:    6291456 kB\nSwapFree:            "
          "  0 kB\n");
    const int64_t page = sysconf(_SC_PAGESIZE);
    write("proc/self/statm", std::to_string(1000 * kMB / page) + " " + std::to_string(340 * kMB / page) + " " +
                                 std::to_string(40 * kMB / page) + " 1 0 2 0\n");
    write("proc/self/cgroup", "");
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int64_t resident() const { return memory::process_memory_resident(root_.string()); }
  int64_t limit() const { return memory::process_memory_limit(root_.string()); }
  int64_t available(int64_t reserved) const { return memory::process_memory_available(reserved, root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST(ProcessMemory, without_control_groups_the_machine_is_the_limit) {
  const Machine machine;
  EXPECT_EQ(machine.limit(), 8192 * kMB);
  EXPECT_EQ(machine.available(0), 6144 * kMB);
  EXPECT_EQ(machine.available(200 * kMB), 6144 * kMB) << "what the process holds is touched already";
  EXPECT_EQ(machine.available(1300 * kMB), 5144 * kMB) << "a gigabyte is held and not touched yet";
}

TEST(ProcessMemory, what_is_resident_counts_files_too) {
  const Machine machine;
  EXPECT_EQ(machine.resident(), 340 * kMB);
  machine.write("proc/self/statm", "");
  EXPECT_EQ(machine.resident(), 0);
  EXPECT_GT(memory::process_memory_resident(), kMB);
}

TEST(ProcessMemory, free_swap_can_be_used) {
  const Machine machine;
  machine.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\nSwapFree: 2097152 kB\n");
  EXPECT_EQ(machine.available(0), 3072 * kMB);
}

TEST(ProcessMemory, what_the_kernel_reserves_when_it_starts_is_not_there) {
  const Machine machine;
  const int64_t pages = 8347 * kMB / sysconf(_SC_PAGESIZE);  // 1.9 % more than MemTotal
  machine.write("proc/zoneinfo", "Node 0, zone   Normal\n  pages free 1\n        present  " + std::to_string(pages) +
                                     "\n        managed  7\n");
  EXPECT_EQ(machine.limit(), 8192 * kMB);
  EXPECT_EQ(machine.available(0), 6144 * kMB);
}

TEST(ProcessMemory, memory_that_the_kernel_has_not_counted_yet_is_there_but_for_what_it_reserves) {
  const Machine machine;
  const int64_t pages = 16384 * kMB / sysconf(_SC_PAGESIZE);
  machine.write("proc/zoneinfo",
                "Node 0, zone   Normal\n  pages free 1\n        spanned  9\n        present  " + std::to_string(pages) +
                    "\n        managed  7\nNode 1, zone   Device\n        present  " + std::to_string(pages) + "\n");
  EXPECT_EQ(machine.limit(), 15360 * kMB) << "the memory of devices is not the machine's";
  EXPECT_EQ(machine.available(0), 6144 * kMB + 7168 * kMB);
}

TEST(ProcessMemory, the_least_limit_on_the_path_of_a_group_of_version_2_holds) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/jobs/one\n");
  machine.write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  machine.write("sys/fs/cgroup/jobs/one/memory.current", "440401920\n");
  machine.write("sys/fs/cgroup/jobs/memory.max", "629145600\n");  // 600 MB
  machine.write("sys/fs/cgroup/jobs/memory.current", "545259520\n");
  machine.write("sys/fs/cgroup/jobs/memory.stat", "anon 300\nfile 209715200\nshmem 104857600\n");
  EXPECT_EQ(machine.limit(), 600 * kMB);
  EXPECT_EQ(machine.available(0), (600 - 520 + 100) * kMB) << "file pages can be dropped, shared memory cannot";
  EXPECT_EQ(machine.available(350 * kMB), (600 - 520 + 100 - 50) * kMB);
  EXPECT_EQ(machine.available(4096 * kMB), 0);
}

TEST(ProcessMemory, a_group_of_version_2_may_swap_what_it_is_allowed_to) {
  const Machine machine;
  machine.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 6291456 kB\nSwapFree: 2097152 kB\n");
  machine.write("proc/self/cgroup", "0::/\n");
  machine.write("sys/fs/cgroup/memory.max", "629145600\n");
  machine.write("sys/fs/cgroup/memory.current", "524288000\n");
  EXPECT_EQ(machine.available(0), (100 + 2048) * kMB);
  machine.write("sys/fs/cgroup/memory.swap.max", "0\n");
  EXPECT_EQ(machine.available(0), 100 * kMB);
}

TEST(ProcessMemory, groups_of_version_1_hold_too_and_a_huge_number_is_no_limit) {
  const Machine machine;
  machine.write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/box\n0::/\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "99999999999\n");
  EXPECT_EQ(machine.limit(), 8192 * kMB);
  EXPECT_EQ(machine.available(0), 6144 * kMB);
  machine.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "629145600\n");
  machine.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "524288000\n");
  machine.write("sys/fs/cgroup/memory/box/memory.stat", "cache 5\ntotal_cache 104857600\ntotal_shmem 0\n");
  EXPECT_EQ(machine.limit(), 600 * kMB);
  EXPECT_EQ(machine.available(0), 200 * kMB);
}

TEST(ProcessMemory, in_a_container_the_mounted_root_is_the_group) {
  const Machine machine;
  machine.write("proc/self/cgroup", "4:memory:/docker/abc\n");  // a path of the host
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "629145600\n");
  EXPECT_EQ(machine.limit(), 600 * kMB);
}

TEST(ProcessMemory, without_the_kernels_tables_there_is_no_limit_to_see) {
  EXPECT_GT(memory::process_memory_limit("/nowhere"), int64_t{1} << 50);
  EXPECT_GT(memory::process_memory_available(0, "/nowhere"), int64_t{1} << 50);
}

TEST(ProcessMemory, of_this_process_is_some_megabytes_at_least) {
  EXPECT_GT(memory::process_memory_limit(), 100 * kMB);
  EXPECT_GT(memory::process_memory_available(0), kMB);
  EXPECT_LE(memory::process_memory_available(0), memory::process_memory_limit() + (int64_t{1} << 40));
}

}  // namespace
}  // namespace lorry
