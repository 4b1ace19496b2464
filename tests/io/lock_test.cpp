#include "lorry/io/lock.h"

#include "tests/io/scratch.h"

namespace lorry::io::test {
namespace {

TEST(FileLock, tells_a_second_process_who_holds_it_and_leaves_nothing) {
  const Scratch scratch;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  {
    const FileLock lock(scratch / "lock");
    const std::string expected =
        fmt::format("'{}' is locked by process {} on {}; expected one process at a time; wait for its end",
                    (scratch / "lock").string(), ::getpid(), host);
    EXPECT_EQ(wait_for(spawn(
                  [&] { return message<IoError>([&] { FileLock second(scratch / "lock"); }) == expected ? 0 : 1; })),
              0);
  }
  EXPECT_TRUE(scratch.names().empty());
}

TEST(FileLock, what_a_killed_process_left_locks_nothing) {
  const Scratch scratch;
  wait_for(spawn([&]() -> int {
    const FileLock lock(scratch / "lock");
    ::_exit(0);
  }));
  EXPECT_EQ(scratch.names(), std::set<std::string>{"lock"});
  const FileLock lock(scratch / "lock");
  EXPECT_NE(get(scratch / "lock").find(fmt::format("process {} on ", ::getpid())), std::string::npos);
}

TEST(FileLock, who_holds_it_is_told_and_nothing_is_left_or_removed) {
  const Scratch scratch;
  EXPECT_FALSE(lock_holder(scratch / "lock"));
  EXPECT_TRUE(scratch.names().empty());
  {
    const FileLock lock(scratch / "lock");
    EXPECT_TRUE(lock_holder(scratch / "lock").value().starts_with(fmt::format("process {} on ", ::getpid())));
  }
  put(scratch / "lock", "process 1 on nowhere");
  EXPECT_FALSE(lock_holder(scratch / "lock")) << "a killed process holds nothing";
  EXPECT_EQ(scratch.names(), std::set<std::string>{"lock"});
}

TEST(FileLock, a_file_that_is_no_lock_stays) {
  const Scratch scratch;
  put(scratch / "lock", "mine");
  EXPECT_EQ(message<IoError>([&] { FileLock lock(scratch / "lock"); }),
            "cannot lock '" + (scratch / "lock").string() + "': the file is there and is no lock; move it away");
  EXPECT_EQ(get(scratch / "lock"), "mine");
}

}  // namespace
}  // namespace lorry::io::test
