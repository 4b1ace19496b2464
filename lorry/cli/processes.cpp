#include "lorry/cli/processes.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lorry/base/env.h"
#include "lorry/base/error.h"
#include "lorry/cli/interrupt.h"
#include "lorry/cli/metrics.h"
#include "lorry/cli/run_folder.h"
#include "lorry/io/checkpoint.h"

namespace lorry::cli {
namespace {

constexpr const char* kRestarted = "LORRY_RESTARTED";

/// The words of this process's command line.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

/// Options of which only this process takes notice, each with a value.
bool is_of_launcher(const std::string& word, const char* option, bool& has_value) {
  has_value = word.starts_with(std::string(option) + "=");
  return has_value || word == option;
}

std::vector<std::string> launcher_command(int64_t processes) {
  std::vector<std::string> words{"mpirun", "-n", std::to_string(processes), "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  require<IoError>(!error, "train: cannot find this program: {}", error.message());
  words.push_back(self.string());
  const std::vector<std::string> own = command_line();
  for (size_t i = 1; i < own.size(); ++i) {
    bool has_value = false;
    if (is_of_launcher(own[i], "--devices", has_value) || is_of_launcher(own[i], "--restarts", has_value))
      i += has_value ? 0 : 1;
    else
      words.push_back(own[i]);
  }
  return words;
}

/// Becomes the command.
[[noreturn]] void become(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  raise<IoError>(
      "train: --devices starts the processes with {}, which cannot be started: {}; install openmpi-bin, or start them "
      "with mpirun, srun or torchrun yourself",
      words[0], std::strerror(errno));
}

/// Runs the command in a process group of its own, and passes signals on. Returns its exit status; `interrupted` says
/// whether there was a signal.
int run_processes(const std::vector<std::string>& words, bool& interrupted) {
  const Interrupt interrupt;
  const pid_t self = ::getpid(), child = ::fork();
  require<IoError>(child >= 0, "train: cannot start a process: {}", std::strerror(errno));
  if (child == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
    try {
      if (::getppid() == self) become(words);
    } catch (const std::exception& error) {
      fmt::print(stderr, "lorry: {}\n", error.what());
    }
    ::_exit(1);
  }
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    require<IoError>(ended >= 0 || errno == EINTR, "train: cannot wait for mpirun: {}", std::strerror(errno));
    if (interrupt.raised() && !std::exchange(interrupted, true) && ended != child) ::kill(child, SIGTERM);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// How far a run has come, by its files.
struct Position {
  int64_t steps = 0;                             ///< taken, with those that are lost
  int64_t saved = 0;                             ///< in the checkpoint
  std::filesystem::file_time_type written = {};  ///< when steps were noted last
};

Position position_of(const RunFolder& folder) {
  Position position;
  const RunHistory history = read_history(folder.metrics(), INT64_MAX);
  if (!history.steps.empty()) position.steps = history.steps.back().step;
  if (folder.has_checkpoint()) position.saved = io::load_checkpoint(folder.checkpoint()).state.step;
  std::error_code ignored;
  position.written = std::filesystem::last_write_time(folder.metrics(), ignored);
  return position;
}

}  // namespace

bool was_restarted() { return env::integer(kRestarted, 0, 1).value_or(0) == 1; }

int run_as_processes(const TrainOptions& options) {
  // Each process computes with its share of the processors.
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(options.devices));
  ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
  const std::vector<std::string> words = launcher_command(options.devices);
  if (options.restarts == 0) become(words);
  const RunFolder folder = options.resume.empty() ? RunFolder{options.out} : find_run(options.resume, "train");
  Position before = position_of(folder);
  int64_t in_vain = 0;  // starts that came no further than the one before
  for (int64_t restart = 1;; ++restart) {
    bool interrupted = false;
    const int status = run_processes(words, interrupted);
    if (status == 0 || interrupted || restart > options.restarts) return status;
    const Position now = position_of(folder);
    // What fails before the first step would fail again, and so would what has failed twice in one place.
    if (restart == 1 && (now.written == before.written || now.steps <= before.saved)) return status;
    in_vain = restart > 1 && now.saved <= before.saved && now.steps <= before.steps ? in_vain + 1 : 0;
    if (in_vain > 1) return status;
    const int64_t lost = std::max<int64_t>(now.steps - now.saved, 0);
    fmt::print(
        stderr, "lorry: restart {} of {}: {}; {} {} lost\n", restart, options.restarts,
        now.saved > 0 ? fmt::format("the run goes on after step {}", now.saved) : std::string("the run begins again"),
        lost, lost == 1 ? "step is" : "steps are");
    before = now;
    std::this_thread::sleep_for(std::chrono::seconds(in_vain));
    ::setenv(kRestarted, "1", 1);
  }
}

}  // namespace lorry::cli
