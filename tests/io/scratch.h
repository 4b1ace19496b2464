#pragma once

// Files in a scratch folder, and a child process to kill or to rob of rights.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>

#include "lorry/device/cpu/team.h"
#include "lorry/tensor/tensor.h"
#include "tests/support/message.h"
#include "tests/support/scratch_folder.h"

namespace lorry::io::test {

using Scratch = lorry::test::ScratchFolder;

inline void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string get(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Starts a child that runs `body` on one thread (the parent's team does not exist there) and ends without unwinding
/// the parent's state.
template <class F>
pid_t spawn(F&& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int status = 99;
  try {
    cpu::set_threads(1);
    set_default_device(kCPU);  // a GPU's driver does not survive a fork
    status = body();
  } catch (...) {
  }
  ::_exit(status);
}

/// The child's exit status, or minus the signal that ended it.
inline int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Calls save(1), save(2), ... in a child and kills it some random time after the first call has returned.
template <class F>
void kill_while_saving(std::mt19937& random, F&& save) {
  int done[2];
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = spawn([&]() -> int {
    for (int64_t i = 1;; ++i) {
      save(i);
      if (i == 1 && ::write(done[1], "", 1) != 1) return 1;
    }
  });
  ::close(done[1]);
  char byte;
  EXPECT_EQ(::read(done[0], &byte, 1), 1) << "the first save failed";
  ::close(done[0]);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), -SIGKILL);
}

using lorry::test::message;

}  // namespace lorry::io::test
