#pragma once

// The files of a training run in its folder:
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
  /// Also true if a crash has left only the renamed checkpoint: loading finds it, so the run exists and must not be
  /// started over.
  bool has_checkpoint() const;
  /// Throws IoError that names the first entry which does not belong to a run without a checkpoint. Such an entry is
  /// not overwritten.
  void require_own() const;
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path lock() const { return folder / "lock"; }
  std::filesystem::path curve() const { return folder / "loss.svg"; }
};

/// The run whose folder or checkpoint is `path`. Throws IoError that begins with `command` if there is none.
RunFolder find_run(const std::filesystem::path& path, std::string_view command);

/// The checkpoint of the run at `path`, or `path` itself if it is a checkpoint. Throws IoError that begins with
/// `command` if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, std::string_view command);

}  // namespace lorry::cli
