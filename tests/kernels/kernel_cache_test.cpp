#include "lorry/kernels/cuda/fused/kernel_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/base/events.h"
#include "tests/support/scratch_folder.h"

namespace lorry::kernels::cuda::test {
namespace {
namespace fs = std::filesystem;

KernelKey key_of(std::string source) { return {std::move(source), "sm_90", "nvrtc 13.0", "-std=c++20", 1}; }

class KernelCacheTest : public ::testing::Test {
 protected:
  KernelCacheTest() {
    previous_ = events::set_handler([this](const events::Event& event) { warnings_.emplace_back(event.text); });
  }
  ~KernelCacheTest() override { events::set_handler(previous_); }

  fs::path folder() const { return root_ / "a" / "lorry"; }

  /// The only file in the folder.
  fs::path file() const { return fs::directory_iterator(folder())->path(); }

  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()));
  }

  /// What a process of its own finds.
  std::string found(const KernelKey& key) const {
    KernelCache cache(folder());
    const auto binary = cache.find(key);
    return binary ? *binary : "nothing";
  }

  void put(const KernelKey& key, std::string binary) const { KernelCache(folder()).put(key, std::move(binary)); }

  const lorry::test::ScratchFolder scratch_;
  const fs::path root_ = scratch_.root();
  std::vector<std::string> warnings_;
  events::Handler previous_;
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_F(KernelCacheTest, a_second_process_finds_what_the_first_one_put) {
  put(key_of("a"), std::string("binary\0of a", 11));
  EXPECT_EQ(found(key_of("a")), std::string("binary\0of a", 11));
  EXPECT_EQ(found(key_of("b")), "nothing");
  struct stat facts;
  ASSERT_EQ(::stat(folder().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat(file().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(KernelCacheTest, knows_whether_its_folder_has_kernels) {
  EXPECT_FALSE(KernelCache(std::nullopt).has_files());
  KernelCache cache(folder());
  EXPECT_FALSE(cache.has_files());  // there is no folder
  fs::create_directories(folder());
  std::ofstream(folder() / "notes.txt") << "not a kernel";
  EXPECT_FALSE(cache.has_files());
  fs::permissions(folder(), fs::perms::owner_all);
  cache.put(key_of("a"), "binary");
  EXPECT_TRUE(cache.has_files());
  EXPECT_TRUE(KernelCache(folder()).has_files());
}

TEST_F(KernelCacheTest, every_field_of_the_key_tells_kernels_apart) {
  const KernelKey key = key_of("source");
  std::vector<KernelKey> others(5, key);
  others[0].source += " ";
  others[1].architecture = "sm_80";
  others[2].compiler = "nvrtc 12.9";
  others[3].flags = "";
  others[4].emitter_version = 2;
  std::set<std::string> names{key.bytes()};
  put(key, "right");
  for (const KernelKey& other : others) {
    EXPECT_EQ(found(other), "nothing");
    EXPECT_TRUE(names.insert(other.bytes()).second);
  }
  // The same letters, divided otherwise between two fields.
  EXPECT_NE((KernelKey{"s", "ab", "c", "", 1}).bytes(), (KernelKey{"s", "a", "bc", "", 1}).bytes());
}

TEST_F(KernelCacheTest, a_file_of_another_key_under_this_name_is_not_loaded) {
  put(key_of("a"), "binary of a");
  const std::string other = read(file());
  fs::remove(file());
  put(key_of("b"), "binary of b");
  write(file(), other);
  EXPECT_EQ(found(key_of("b")), "nothing");
}

TEST_F(KernelCacheTest, no_flipped_bit_and_no_cut_file_is_loaded) {
  put(key_of("a"), "binary");
  const fs::path path = file();
  const std::string whole = read(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    write(path, damaged);
    EXPECT_EQ(found(key_of("a")), "nothing") << "byte " << i;
    write(path, whole.substr(0, i));
    EXPECT_EQ(found(key_of("a")), "nothing") << "cut to " << i;
  }
  write(path, whole + "x");
  EXPECT_EQ(found(key_of("a")), "nothing");
  put(key_of("a"), "binary");
  EXPECT_EQ(found(key_of("a")), "binary");
}

TEST_F(KernelCacheTest, what_others_could_have_written_is_not_loaded) {
  put(key_of("a"), "binary");
  ASSERT_EQ(::chmod(file().c_str(), 0620), 0);
  EXPECT_EQ(found(key_of("a")), "nothing");
  ASSERT_EQ(::chmod(file().c_str(), 0600), 0);
  EXPECT_EQ(found(key_of("a")), "binary");
  const fs::path path = file(), elsewhere = root_ / "elsewhere";
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
  EXPECT_EQ(found(key_of("a")), "nothing");
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(found(key_of("a")), "nothing");  // and does not wait
}

TEST_F(KernelCacheTest, a_folder_that_others_can_write_is_not_used_and_warned_of_once) {
  fs::create_directories(folder());
  ASSERT_EQ(::chmod(folder().c_str(), 0777), 0);
  KernelCache cache(folder());
  cache.put(key_of("a"), "binary");
  cache.put(key_of("b"), "binary");
  EXPECT_EQ(*cache.find(key_of("a")), "binary");
  EXPECT_EQ(cache.find(key_of("c")), nullptr);
  EXPECT_EQ(files(), 0U);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_[0].find("it must be a folder of this user with mode 0700"), std::string::npos) << warnings_[0];
}

TEST_F(KernelCacheTest, a_folder_that_may_only_be_read_gives_its_kernels_and_costs_one_warning) {
  put(key_of("a"), "binary of a");
  constexpr uid_t kNobody = 65'534;
  const bool is_root = ::geteuid() == 0;  // which may write everywhere
  if (is_root) {
    ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
    ASSERT_EQ(::chown(file().c_str(), kNobody, kNobody), 0);
    ASSERT_EQ(::chown(folder().c_str(), kNobody, kNobody), 0);
  }
  ASSERT_EQ(::chmod(folder().c_str(), 0500), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (is_root && (::setuid(kNobody) != 0 || ::access(folder().c_str(), R_OK | X_OK) != 0)) ::_exit(3);
    KernelCache cache(folder());
    cache.put(key_of("b"), "binary of b");
    cache.put(key_of("c"), "binary of c");
    const auto a = cache.find(key_of("a")), b = cache.find(key_of("b"));
    const bool right = a && *a == "binary of a" && b && *b == "binary of b";
    ::_exit(!right ? 1 : warnings_.size() != 1 ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(::chmod(folder().c_str(), 0700), 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 3) GTEST_SKIP() << "another user cannot enter the scratch folder";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: another kernel; 2: another number of warnings";
  EXPECT_EQ(files(), 1U);
}

TEST_F(KernelCacheTest, a_folder_that_cannot_be_made_costs_one_warning) {
  write(root_ / "a", "a file where the folder should be");
  KernelCache cache(folder());
  cache.put(key_of("a"), "binary");
  cache.put(key_of("b"), "binary");
  EXPECT_EQ(*cache.find(key_of("a")), "binary");
  EXPECT_EQ(warnings_.size(), 1U);
}

TEST_F(KernelCacheTest, a_folder_that_vanishes_is_made_again) {
  KernelCache cache(folder());
  cache.put(key_of("a"), "binary");
  fs::remove_all(folder());
  EXPECT_EQ(found(key_of("a")), "nothing");
  cache.put(key_of("b"), "binary of b");
  EXPECT_EQ(found(key_of("b")), "binary of b");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(KernelCacheTest, a_full_disk_leaves_no_file_and_costs_one_warning) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // the limit on a file's size stands for the full disk
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{64, 64};
    ::setrlimit(RLIMIT_FSIZE, &none);
    KernelCache cache(folder());
    cache.put(key_of("a"), std::string(1000, 'x'));
    cache.put(key_of("b"), std::string(1000, 'x'));
    const bool right = cache.find(key_of("a")) && warnings_.size() == 1;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(files(), 0U);
}

TEST_F(KernelCacheTest, the_files_used_longest_ago_make_room) {
  const KernelCache::Limits limits{.memory_bytes = 0, .disk_bytes = 4000};
  KernelCache cache(folder(), limits);
  const auto age = [&](const char* source, int seconds) {
    cache.put(key_of(source), std::string(1000, source[0]));
    for (const auto& entry : fs::directory_iterator(folder()))
      if (read(entry.path()).find(std::string(1000, source[0])) != std::string::npos)
        fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  };
  age("a", 300);
  age("b", 200);
  age("c", 100);
  EXPECT_NE(cache.find(key_of("a")), nullptr);  // used now
  cache.put(key_of("d"), std::string(1000, 'd'));
  EXPECT_NE(cache.find(key_of("a")), nullptr);
  EXPECT_EQ(cache.find(key_of("b")), nullptr);
  EXPECT_NE(cache.find(key_of("c")), nullptr);
  cache.put(key_of("e"), std::string(5000, 'e'));  // larger than the folder may be
  EXPECT_EQ(cache.find(key_of("e")), nullptr);
}

TEST_F(KernelCacheTest, memory_is_bounded_too) {
  KernelCache cache(std::nullopt, {.memory_bytes = 2500, .disk_bytes = 0});
  for (const char* source : {"a", "b"}) cache.put(key_of(source), std::string(1000, 'x'));
  EXPECT_NE(cache.find(key_of("a")), nullptr);
  cache.put(key_of("c"), std::string(1000, 'x'));
  EXPECT_EQ(cache.find(key_of("b")), nullptr);
  EXPECT_NE(cache.find(key_of("a")), nullptr);
  EXPECT_EQ(*cache.find(key_of("a")), *cache.find(key_of("c")));
}

TEST_F(KernelCacheTest, staged_files_of_killed_processes_are_removed_in_time) {
  put(key_of("a"), "binary");
  const fs::path old = folder() / "x.kernel.1.0.0.staged", young = folder() / "y.kernel.2.0.0.staged";
  write(old, "half");
  write(young, "half");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(1));
  put(key_of("b"), "binary");
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
}

TEST_F(KernelCacheTest, sixty_four_processes_write_at_once_and_some_are_killed) {
  constexpr int kProcesses = 64, kKeys = 8;
  const auto binary_of = [](int key) { return std::string(20000, static_cast<char>('a' + key)); };
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool right = true;
      for (int i = 0; i < 32 || process % 4 == 0; ++i) {  // a quarter goes on until it is killed
        const int key = (i + process) % kKeys;
        KernelCache cache(folder());
        const auto binary = cache.find(key_of(std::to_string(key)));
        right = right && (!binary || *binary == binary_of(key));
        cache.put(key_of(std::to_string(key)), binary_of(key));
      }
      ::_exit(right && warnings_.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (int process = 0; process < kProcesses; ++process) {
    const bool endless = process % 4 == 0;
    if (endless) ::kill(children[process], SIGKILL);
    int status = 0;
    ::waitpid(children[process], &status, 0);
    EXPECT_TRUE(endless || status == 0) << process;
  }
  for (int key = 0; key < kKeys; ++key) EXPECT_EQ(found(key_of(std::to_string(key))), binary_of(key));
}

}  // namespace
}  // namespace lorry::kernels::cuda::test
