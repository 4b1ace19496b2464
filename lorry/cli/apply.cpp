#include "lorry/cli/apply.h"

#include <memory>

#include "lorry/cli/run_folder.h"
#include "lorry/cli/run_settings.h"
#include "lorry/cli/trainer.h"
#include "lorry/io/checkpoint.h"

namespace lorry::cli {
namespace {

using Kind = profile::Finding::Kind;

/// A run that takes steps and is never saved.
std::shared_ptr<Trainer> trainer(const TrainOptions& options) {
  std::shared_ptr<Trainer> made;
  if (options.resume.empty()) {
    TrainSettings settings = options.settings;
    complete(settings, false);
    made = std::make_shared<Trainer>(settings, options.texts);
  } else {
    const RunFolder folder = find_run(options.resume, "train");
    made = std::make_shared<Trainer>(io::load_checkpoint(folder.checkpoint()), options.texts);
  }
  if (options.replay) made->replay_steps();
  if (options.compile) made->compile_steps(options.epilogues);
  return made;
}

std::function<void()> steps(const TrainOptions& options) {
  return [run = trainer(options)] { run->step(); };
}

}  // namespace

profile::Trial try_cures(const TrainOptions& options, bool everything) {
  std::vector<profile::Cure> cures;
  const auto add = [&](Kind kind, const char* name, const TrainOptions& cured) {
    cures.push_back({.kind = kind, .name = name, .make = [cured] { return steps(cured); }});
  };
  if (!options.compile) {
    TrainOptions cured = options;
    cured.compile = true;
    add(Kind::fuse, "--compile", cured);
  }
  if (!options.replay) {
    TrainOptions cured = options;
    cured.replay = true;
    add(Kind::graph, "--replay", cured);
  }
  if (options.resume.empty() && options.settings.execution != "fused" && options.settings.execution != "automatic") {
    TrainOptions cured = options;
    cured.settings.execution = "fused";
    add(Kind::optimizer, "--execution fused", cured);
  }
  return profile::apply(steps(options), cures, {.everything = everything});
}

}  // namespace lorry::cli
