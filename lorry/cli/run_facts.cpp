#include "lorry/cli/run_facts.h"

#include <algorithm>
#include <limits>

#include "lorry/cli/run_settings.h"
#include "lorry/io/checkpoint.h"
#include "lorry/io/lock.h"

namespace lorry::cli {

RunFacts run_facts(const RunFolder& folder) {
  RunFacts facts;
  facts.holder = io::lock_holder(folder.lock());
  const io::Checkpoint checkpoint = io::load_checkpoint(folder.checkpoint());
  check_against_tensors(checkpoint);
  facts.settings = from_config(checkpoint.state.config, facts.texts);
  facts.model = model_config(checkpoint.state.config);
  for (const auto& [name, tensor] : checkpoint.model) facts.parameters += tensor.numel();
  facts.tokens_per_step = facts.settings.batch * facts.settings.accumulate * facts.settings.context;
  facts.saved_step = checkpoint.state.step;
  // Steps of a killed run after its checkpoint are lost.
  facts.history = read_history(folder.metrics(), facts.holder ? std::numeric_limits<int64_t>::max() : facts.saved_step);
  facts.step =
      facts.history.steps.empty() ? facts.saved_step : std::max(facts.saved_step, facts.history.steps.back().step);
  const io::Settings& schedule = checkpoint.state.schedule;
  if (schedule.contains("max_seconds"))
    facts.time = {io::setting<double>(schedule, "elapsed_s"), io::setting<double>(schedule, "max_seconds")};
  return facts;
}

}  // namespace lorry::cli
