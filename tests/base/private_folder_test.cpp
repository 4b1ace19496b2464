#include "lorry/base/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "lorry/base/error.h"
#include "tests/support/scratch_folder.h"

namespace lorry {
namespace {
namespace fs = std::filesystem;

class CacheFolder : public ::testing::Test {
 protected:
  static void set(const char* name, const char* value) { value ? ::setenv(name, value, 1) : ::unsetenv(name); }
  static std::string folder(const char* lorry, const char* xdg, const char* home) {
    const char* names[] = {"LORRY_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
    const char* values[] = {lorry, xdg, home};
    std::optional<std::string> before[3];
    for (int i = 0; i < 3; ++i) {
      if (const char* value = std::getenv(names[i])) before[i] = value;
      set(names[i], values[i]);
    }
    std::string result;
    try {
      const auto path = cache_folder();
      result = path ? path->string() : "none";
    } catch (const ValueError&) {
      result = "ValueError";
    }
    for (int i = 0; i < 3; ++i) set(names[i], before[i] ? before[i]->c_str() : nullptr);
    return result;
  }
};

TEST_F(CacheFolder, is_chosen_by_the_environment) {
  EXPECT_EQ(folder("/x", "/y", "/z"), "/x");
  EXPECT_EQ(folder(nullptr, "/y", "/z"), "/y/lorry");
  EXPECT_EQ(folder(nullptr, "relative", "/z"), "/z/.cache/lorry");
  EXPECT_EQ(folder(nullptr, nullptr, nullptr), "none");
  EXPECT_EQ(folder("", "/y", "/z"), "none");
  EXPECT_EQ(folder("off", "/y", "/z"), "none");
  EXPECT_EQ(folder("relative", "/y", "/z"), "ValueError");
}

class PrivateFolderTest : public ::testing::Test {
 protected:
  fs::path path() const { return scratch_.root() / "a" / "b"; }
  const test::ScratchFolder scratch_;
};

TEST_F(PrivateFolderTest, holds_files_that_only_its_user_can_read) {
  const PrivateFolder folder(path(), PrivateFolder::IfAbsent::make);
  ASSERT_TRUE(folder.is_open());
  const std::string bytes("x\0y", 3);
  EXPECT_EQ(folder.write("file", bytes), 0);
  EXPECT_EQ(folder.read("file", 3), bytes);
  EXPECT_EQ(folder.read("file", 2), std::nullopt);
  EXPECT_EQ(folder.read("other", 3), std::nullopt);
  struct stat facts;
  ASSERT_EQ(::stat(path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat((path() / "file").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  EXPECT_EQ(scratch_.names("a/b"), std::set<std::string>{"file"});
}

TEST_F(PrivateFolderTest, what_others_could_have_written_is_not_read) {
  const PrivateFolder folder(path(), PrivateFolder::IfAbsent::make);
  ASSERT_EQ(folder.write("file", "x"), 0);
  ASSERT_EQ(::chmod((path() / "file").c_str(), 0620), 0);
  EXPECT_EQ(folder.read("file", 9), std::nullopt);
  ASSERT_EQ(::chmod((path() / "file").c_str(), 0600), 0);
  EXPECT_EQ(folder.read("file", 9), "x");
  ASSERT_EQ(::symlink("file", (path() / "link").c_str()), 0);
  EXPECT_EQ(folder.read("link", 9), std::nullopt);
  ASSERT_EQ(::mkfifo((path() / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(folder.read("fifo", 9), std::nullopt);
  ASSERT_EQ(::chmod(path().c_str(), 0750), 0);
  const PrivateFolder shared(path());
  EXPECT_FALSE(shared.is_open());
  EXPECT_EQ(shared.error(), EPERM);
  EXPECT_EQ(why_not_usable(EPERM), "it must be a folder of this user with mode 0700");
}

TEST_F(PrivateFolderTest, is_not_made_by_a_reader) {
  const PrivateFolder folder(path());
  EXPECT_FALSE(folder.is_open());
  EXPECT_EQ(folder.error(), ENOENT);
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(PrivateFolderTest, old_temporary_files_are_removed_and_young_ones_kept) {
  const PrivateFolder folder(path(), PrivateFolder::IfAbsent::make);
  for (const char* name : {"old.staged", "young.staged", "old"}) std::ofstream(path() / name) << "x";
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const char* name : {"old.staged", "old"}) fs::last_write_time(path() / name, long_ago);
  folder.remove_staged();
  EXPECT_EQ(scratch_.names("a/b"), (std::set<std::string>{"old", "young.staged"}));
}

}  // namespace
}  // namespace lorry
