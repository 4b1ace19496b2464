#pragma once

// What a training run leaves in its folder:
//   DIR/checkpoint/     model.safetensors, optimizer.safetensors, state.json: complete, the newest that was saved
//   DIR/metrics.jsonl   the history of the run
//   DIR/loss.svg        the same as a picture
//   DIR/lock            while a process trains: which one

#include <filesystem>
#include <string_view>

#include "lorry/io/file.h"

namespace lorry::cli {

struct RunFolder {
  std::filesystem::path folder;

  std::filesystem::path checkpoint() const { return folder / "checkpoint"; }
  /// True as well while a crash has left only the set-aside one, which loading finds: the run is there, and nobody
  /// starts it over.
  bool has_checkpoint() const;
  /// Throws IoError that names the first entry which a run without a checkpoint would not leave. Nothing of it is
  /// overwritten.
  void require_own() const;
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path lock() const { return folder / "lock"; }
  std::filesystem::path curve() const { return folder / "loss.svg"; }
};

/// The run whose folder or checkpoint `path` names. Throws IoError that begins with `command` when there is none.
RunFolder find_run(const std::filesystem::path& path, std::string_view command);

/// The checkpoint of the run that `path` names, or the checkpoint outside of a run that `path` is. Throws IoError that
/// begins with `command` when there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, std::string_view command);

}  // namespace lorry::cli
