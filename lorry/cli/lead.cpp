#include "lorry/cli/lead.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "lorry/base/error.h"

namespace lorry::cli {
namespace {

constexpr double kMostSeconds = 0.5;

/// The words of this process's command line.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

void Lead::before_step(const Trainer& trainer, int64_t until_event) {
  if (left_ == 0) {
    const double most = seconds_ > 0 ? kMostSeconds / seconds_ : 1;
    left_ = std::clamp<int64_t>(static_cast<int64_t>(most), 1, std::max<int64_t>(until_event, 1));
    const std::optional<LearningRatePlan>& plan = trainer.plan();
    group_.exchange(fmt::format("{} {}", left_, plan ? plan->text() : ""), true);
  }
  --left_;
}

void Lead::after_step(double seconds) { seconds_ = seconds; }

void Lead::end() { group_.exchange("0 ", true); }

void follow(Trainer& trainer, const parallel::ProcessGroup& group) {
  for (;;) {
    const std::string words = group.exchange("", true)[0];
    const size_t space = words.find(' ');
    const int64_t steps = std::stoll(words.substr(0, space));
    if (steps == 0) return;
    if (const std::string plan = words.substr(space + 1); !plan.empty())
      trainer.set_plan(LearningRatePlan::parse(plan));
    for (int64_t i = 0; i < steps; ++i) trainer.step();
  }
}

void start_on_devices(int devices) {
  std::vector<std::string> words{"mpirun", "-n", std::to_string(devices), "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  require<IoError>(!error, "train: cannot find this program: {}", error.message());
  words.push_back(self.string());
  const std::vector<std::string> own = command_line();
  for (size_t i = 1; i < own.size(); ++i) {
    if (own[i] == "--devices")
      ++i;
    else if (!own[i].starts_with("--devices="))
      words.push_back(own[i]);
  }
  // Each process computes with its share of the processors.
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(devices));
  ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp("mpirun", arguments.data());
  raise<IoError>(
      "train: --devices {} starts the processes with mpirun, which cannot be started: {}; install "
      "openmpi-bin, or start them with mpirun, srun or torchrun yourself",
      devices, std::strerror(errno));
}

}  // namespace lorry::cli
