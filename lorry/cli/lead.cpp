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

// What rank 0 announces: a word, a space, and what it needs.
constexpr std::string_view kSteps = "steps", kSave = "save", kEnd = "end";

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
    group_.exchange(fmt::format("{} {} {}", kSteps, left_, plan ? plan->text() : ""), true);
  }
  --left_;
}

void Lead::after_step(double seconds) { seconds_ = seconds; }

void Lead::before_save(const std::filesystem::path& directory) {
  group_.exchange(fmt::format("{} {}", kSave, directory.string()), true);
}

void Lead::end() { group_.exchange(fmt::format("{} ", kEnd), true); }

namespace {

/// Cuts the first word off.
std::string next_word(std::string& text) {
  const size_t space = text.find(' ');
  std::string word = text.substr(0, space);
  text.erase(0, space == std::string::npos ? space : space + 1);
  return word;
}

void follow_steps(Trainer& trainer, std::string what) {
  const int64_t steps = std::stoll(next_word(what));
  if (!what.empty()) trainer.set_plan(LearningRatePlan::parse(what));
  for (int64_t i = 0; i < steps; ++i) trainer.step();
}

}  // namespace

void follow(Trainer& trainer, const parallel::ProcessGroup& group) {
  for (;;) {
    std::string what = group.exchange("", true)[0];
    const std::string word = next_word(what);
    if (word == kEnd) return;
    if (word == kSave)
      trainer.save(what);
    else
      follow_steps(trainer, std::move(what));
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
