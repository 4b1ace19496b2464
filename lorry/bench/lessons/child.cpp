#include "lorry/bench/lessons/child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/device/cpu/team.h"

extern char** environ;

namespace lorry::bench::lessons {
namespace {
constexpr int kSecondsPerStep = 60;
}

Child::Child(const Settings& settings, const std::string& experiment) {
  int ends[2];
  require<Error>(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
                 "lessons: no socket for a child process; {}", std::strerror(errno));
  std::vector<std::string> words = settings.child;
  words.insert(words.end(),
               {experiment, "--device", to_string(settings.device), "--threads", fmt::format("{}", cpu::threads())});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const int failed = posix_spawn(&process_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  socket_ = ends[0];
  constexpr timeval kLimit{.tv_sec = kSecondsPerStep, .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &kLimit, sizeof kLimit);
  if (failed != 0) {
    close(socket_);
    raise<Error>("lessons: '{}' cannot be started as a child process; {}", words[0], std::strerror(failed));
  }
}

Child::~Child() {
  close(socket_);
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

std::optional<nlohmann::json> Child::step() {
  while (true) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      const nlohmann::json step = nlohmann::json::parse(read_.substr(0, end));
      read_.erase(0, end + 1);
      return step;
    }
    char buffer[4096];
    const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    require<Error>(got >= 0 || errno != EAGAIN, "lessons: a child process gave no answer within {} s", kSecondsPerStep);
    if (got <= 0) return std::nullopt;
    read_.append(buffer, static_cast<size_t>(got));
  }
}

void Child::go_on() {
  [[maybe_unused]] const ssize_t sent = send(socket_, "\n", 1, MSG_NOSIGNAL);  // a child that has ended needs none
}

std::string Child::wait() {
  int status = 0;
  waitpid(std::exchange(process_, -1), &status, 0);
  if (WIFSIGNALED(status)) return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

bool tell(const nlohmann::json& step) {
  fmt::print("{}\n", step.dump());
  std::fflush(stdout);
  return std::getchar() == '\n';
}

int run_child(const std::string& experiment, Device device) {
  const std::pair<const char*, void (*)(Device)> experiments[] = {{"start", start_child},
#ifdef LORRY_WITH_CUDA
                                                                  {"vector", vector_child},
                                                                  {"pointers", pointers_child}
#endif
  };
  for (const auto& [name, run] : experiments)
    if (name == experiment) {
      run(device);
      return 0;
    }
  raise<ValueError>("lessons: there is no experiment '{}'", experiment);
}

}  // namespace lorry::bench::lessons
