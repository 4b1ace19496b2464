#pragma once

// Several processes train as one: rank 0 decides how the run goes on, writes its files and talks; the others take the
// steps that it announces.

#include <filesystem>
#include <string>

#include "lorry/cli/trainer.h"
#include "lorry/parallel/process_group.h"

namespace lorry::cli {

/// Rank 0's side.
class Lead {
 public:
  explicit Lead(parallel::ProcessGroup group) : group_(std::move(group)) {}
  /// Before a step. `until_event` is the number of steps until something else than a step may be due, at least 1: so
  /// many are announced at once, but not more than take about half a second.
  void before_step(const Trainer& trainer, int64_t until_event);
  /// After a step, which took so long.
  void after_step(double seconds);
  /// Whether steps that were announced are to be taken still.
  bool is_under_way() const { return left_ > 0; }
  /// Before a save in which the others take part.
  void before_save(const std::filesystem::path& directory);
  /// Lets the others end.
  void end();

 private:
  const parallel::ProcessGroup group_;
  int64_t left_ = 0;
  double seconds_ = 0;  ///< of the last step; 0: none
};

/// Does what rank 0 announces until that ends the run.
void follow(Trainer& trainer, const parallel::ProcessGroup& group);

}  // namespace lorry::cli
