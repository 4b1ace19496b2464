#include "lorry/io/file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <random>

#include "lorry/base/error.h"
#include "tests/io/scratch.h"

namespace {
bool g_can_exchange = true;
}

/// In place of the C library's: a file system that cannot exchange two names, where a test asks for one.
extern "C" int renameat2(int from_directory, const char* from, int to_directory, const char* to,
                         unsigned flags) noexcept {
  if (g_can_exchange) return static_cast<int>(::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
  errno = EINVAL;
  return -1;
}

namespace lorry::io::test {
namespace {

namespace fs = std::filesystem;
constexpr std::array<std::string_view, 2> kKnown = {"first", "second"};

/// Limits the size of written files for a scope, as a full disk would.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limited{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

void write(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void write_directory(const fs::path& path, const std::string& text) {
  AtomicDirectory directory(path, kKnown);
  for (const std::string_view name : kKnown) write(directory.path() / name, text);
  directory.commit();
}

TEST(File, a_mapping_shows_the_bytes_and_never_writes_them_back) {
  const Scratch scratch;
  put(scratch / "a", "hello");
  {
    const MappedFile file(scratch / "a");
    ASSERT_EQ(file.size(), 5u);
    file.data()[0] = std::byte{'j'};
    EXPECT_EQ(file.bytes()[0], std::byte{'j'});
  }
  EXPECT_EQ(get(scratch / "a"), "hello");
}

TEST(File, an_empty_file_maps_to_nothing) {
  const Scratch scratch;
  put(scratch / "a", "");
  EXPECT_EQ(MappedFile(scratch / "a").size(), 0u);
}

TEST(File, what_is_no_regular_file_is_refused_without_waiting) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(message<IoError>([&] { MappedFile(scratch / "fifo"); }),
            "cannot read '" + (scratch / "fifo").string() + "': it is not a regular file");
  EXPECT_EQ(message<IoError>([&] { MappedFile(scratch.root()); }),
            "cannot read '" + scratch.root().string() + "': Is a directory");
  EXPECT_EQ(message<IoError>([&] { MappedFile(scratch / "no"); }),
            "cannot open '" + (scratch / "no").string() + "': No such file or directory");
  EXPECT_EQ(message<IoError>([] { MappedFile("/dev/zero"); }), "cannot read '/dev/zero': it is not a regular file");
}

TEST(File, a_file_without_read_permission_is_an_error) {
  const Scratch scratch;
  put(scratch / "a", "secret");
  fs::permissions(scratch / "a", fs::perms::none);
  fs::permissions(scratch.root(), fs::perms::owner_all | fs::perms::others_exec);
  const pid_t child = spawn([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;  // root may read everything
    return message<IoError>([&] { MappedFile(scratch / "a"); }) ==
                   "cannot open '" + (scratch / "a").string() + "': Permission denied"
               ? 0
               : 1;
  });
  EXPECT_EQ(wait_for(child), 0);
}

TEST(File, text_longer_than_the_limit_is_refused) {
  const Scratch scratch;
  put(scratch / "a", "hello");
  EXPECT_EQ(read_text(scratch / "a", 5), "hello");
  EXPECT_EQ(message<IoError>([&] { read_text(scratch / "a", 4); }),
            "cannot read '" + (scratch / "a").string() + "': it has 5 bytes; expected at most 4");
}

TEST(AtomicFile, replaces_a_file_and_leaves_nothing_else) {
  const Scratch scratch;
  write(scratch / "a", "old");
  write(scratch / "a", "new");
  EXPECT_EQ(get(scratch / "a"), "new");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"a"});
}

TEST(AtomicFile, without_a_commit_the_old_file_stays) {
  const Scratch scratch;
  write(scratch / "a", "old");
  AtomicFile(scratch / "a").write("half");
  EXPECT_EQ(get(scratch / "a"), "old");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"a"});
}

TEST(AtomicFile, a_full_disk_is_an_error_that_names_the_file_and_keeps_the_old_one) {
  const Scratch scratch;
  write(scratch / "a", "old");
  const FileLimit limit(1000);
  EXPECT_EQ(message<IoError>([&] { write(scratch / "a", std::string(2000, 'x')); }),
            "cannot write '" + (scratch / "a").string() + "': File too large");
  EXPECT_EQ(get(scratch / "a"), "old");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"a"});
}

TEST(AtomicFile, names_that_cannot_be_written_are_refused) {
  const Scratch scratch;
  const auto text = [](const fs::path& path) { return message<IoError>([&] { write(path, "x"); }); };
  EXPECT_EQ(text(scratch.root()), "cannot write '" + scratch.root().string() + "': Is a directory");
  EXPECT_EQ(text(scratch / "no/a"), "cannot create '" + (scratch / "no/a").string() + "': No such file or directory");
  EXPECT_EQ(text("/dev/full"), "cannot write '/dev/full': No space left on device");
  EXPECT_EQ(text(""), "cannot write '': it names no file or directory");
  EXPECT_EQ(text(".."), "cannot write '..': it names no file or directory");
}

TEST(AtomicFile, a_directory_without_write_permission_is_an_error) {
  const Scratch scratch;
  fs::permissions(scratch.root(),
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  const pid_t child = spawn([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;  // root may write everywhere
    const std::string text = message<IoError>([&] { write(scratch / "a", "x"); });
    return text == "cannot create '" + (scratch / "a").string() + "': Permission denied" ? 0 : 1;
  });
  EXPECT_EQ(wait_for(child), 0);
  fs::permissions(scratch.root(), fs::perms::owner_all);
}

TEST(AtomicFile, a_link_keeps_leading_to_the_file_that_is_replaced) {
  const Scratch scratch;
  put(scratch / "a", "old");
  fs::create_symlink("a", scratch / "link");
  write(scratch / "link", "new");
  EXPECT_TRUE(fs::is_symlink(scratch / "link"));
  EXPECT_EQ(get(scratch / "a"), "new");
}

TEST(AtomicFile, a_link_to_nothing_makes_what_it_leads_to) {
  const Scratch scratch;
  fs::create_directory(scratch / "d");
  fs::create_symlink("d/b", scratch / "a");
  fs::create_symlink(scratch / "a", scratch / "link");
  write(scratch / "link", "new");
  EXPECT_TRUE(fs::is_symlink(scratch / "link"));
  EXPECT_TRUE(fs::is_symlink(scratch / "a"));
  EXPECT_EQ(get(scratch / "d/b"), "new");
  fs::create_symlink("loop", scratch / "loop");
  EXPECT_EQ(message<IoError>([&] { write(scratch / "loop", "x"); }),
            "cannot follow '" + (scratch / "loop").string() + "': Too many levels of symbolic links");
}

TEST(AtomicFile, a_fifo_and_a_device_are_written_through_and_stay) {
  const Scratch scratch;
  const fs::path fifo = scratch / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  fs::create_symlink("fifo", scratch / "link");
  for (const fs::path& path : {fifo, scratch / "link"}) {
    std::string read;
    std::thread reader([&] { read = get(fifo); });
    write(path, "through");
    reader.join();
    EXPECT_EQ(read, "through");
  }
  EXPECT_TRUE(fs::is_fifo(fifo));
  EXPECT_EQ(scratch.names(), (std::set<std::string>{"fifo", "link"}));
  write("/dev/null", "nowhere");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(AtomicFile, the_leftovers_of_a_dead_writer_go_and_those_of_a_living_one_stay) {
  const Scratch scratch;
  EXPECT_EQ(wait_for(spawn([&]() -> int {
              AtomicFile file(scratch / "a");
              file.write("half");
              ::_exit(7);
            })),
            7);
  EXPECT_EQ(scratch.names().size(), 1u);
  AtomicFile living(scratch / "a");
  living.write("first");
  EXPECT_EQ(scratch.names().size(), 1u) << "the dead writer's file is gone, the living one's is there";
  write(scratch / "a", "second");
  EXPECT_EQ(scratch.names().size(), 2u);
  living.commit();
  EXPECT_EQ(get(scratch / "a"), "first");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"a"});
}

TEST(AtomicFile, a_file_that_only_resembles_a_leftover_stays) {
  const Scratch scratch;
  put(scratch / ".a.staged-notes", "mine");
  put(scratch / ".a.staged-", "mine");
  write(scratch / "a", "new");
  EXPECT_EQ(scratch.names(), (std::set<std::string>{"a", ".a.staged-notes", ".a.staged-"}));
}

/// Both ways of replacing a directory: exchanging the names, and setting the old one aside.
class ReplacedDirectory : public ::testing::TestWithParam<bool> {
 protected:
  ReplacedDirectory() { g_can_exchange = GetParam(); }
  ~ReplacedDirectory() override { g_can_exchange = true; }
};
INSTANTIATE_TEST_SUITE_P(, ReplacedDirectory, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "by_exchange" : "by_setting_aside"; });

TEST_P(ReplacedDirectory, replaces_a_directory_and_leaves_nothing_else) {
  const Scratch scratch;
  write_directory(scratch / "d", "old");
  write_directory(scratch / "d/", "new");
  EXPECT_EQ(get(scratch / "d/first"), "new");
  EXPECT_EQ(scratch.names("d"), (std::set<std::string>{"first", "second"}));
  EXPECT_EQ(scratch.names(), std::set<std::string>{"d"});
}

TEST(AtomicDirectory, without_a_commit_the_old_directory_stays) {
  const Scratch scratch;
  write_directory(scratch / "d", "old");
  {
    const AtomicDirectory directory(scratch / "d", kKnown);
    write(directory.path() / "first", "half");
  }
  EXPECT_EQ(get(scratch / "d/first"), "old");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"d"});
}

TEST(AtomicDirectory, a_directory_that_holds_anything_else_is_never_replaced) {
  const Scratch scratch;
  fs::create_directory(scratch / "d");
  put(scratch / "d/thesis.tex", "years of work");
  EXPECT_EQ(message<IoError>([&] { write_directory(scratch / "d", "new"); }),
            "cannot replace '" + (scratch / "d").string() +
                "': it holds 'thesis.tex', which no checkpoint has; choose another directory");
  EXPECT_EQ(get(scratch / "d/thesis.tex"), "years of work");
  put(scratch / "file", "text");
  EXPECT_EQ(message<IoError>([&] { write_directory(scratch / "file", "new"); }),
            "cannot replace '" + (scratch / "file").string() + "': Not a directory");
}

TEST(AtomicDirectory, a_directory_set_aside_by_a_crash_is_found_and_brought_back) {
  const Scratch scratch;
  write_directory(scratch / "d", "old");
  // What a crash leaves between the two renames, on a file system that cannot exchange names.
  fs::rename(scratch / "d", scratch / ".d.previous");
  EXPECT_EQ(AtomicDirectory::find(scratch / "d"), scratch / ".d.previous");
  { const AtomicDirectory unfinished(scratch / "d", kKnown); }
  EXPECT_EQ(AtomicDirectory::find(scratch / "d"), scratch / "d");
  EXPECT_EQ(get(scratch / "d/first"), "old");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"d"});
}

TEST(AtomicDirectory, a_predecessor_half_removed_by_a_crash_goes_at_the_next_write) {
  const Scratch scratch;
  write_directory(scratch / "d", "new");
  fs::create_directory(scratch / ".d.previous");
  put(scratch / ".d.previous/second", "old");
  EXPECT_EQ(AtomicDirectory::find(scratch / "d"), scratch / "d");
  write_directory(scratch / "d", "newer");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"d"});
}

TEST_P(ReplacedDirectory, a_writer_killed_at_any_moment_leaves_one_complete_directory) {
  const Scratch scratch;
  write_directory(scratch / "d", "0");
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 25; ++round) {
    kill_while_saving(random, [&](int64_t i) { write_directory(scratch / "d", fmt::format("{}.{}", round, i)); });
    const fs::path found = AtomicDirectory::find(scratch / "d");
    EXPECT_EQ(get(found / "first"), get(found / "second"));
    EXPECT_TRUE(get(found / "first").starts_with(fmt::format("{}.", round)));
  }
  write_directory(scratch / "d", "end");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"d"});
}

}  // namespace
}  // namespace lorry::io::test
