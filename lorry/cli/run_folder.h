#pragma once

// What a training run leaves in its folder:
//   DIR/checkpoint/     model.safetensors, optimizer.safetensors, state.json: complete, the newest that was saved
//   DIR/metrics.jsonl   the course of the run
//   DIR/loss.svg        the same as a picture

#include <filesystem>

#include "lorry/io/file.h"

namespace lorry::cli {

struct RunFolder {
  std::filesystem::path folder;

  std::filesystem::path checkpoint() const { return folder / "checkpoint"; }
  /// True as well while a crash has left only the set-aside one, which loading finds: the run is there, and nobody starts it over.
  bool has_checkpoint() const {
    std::error_code error;
    return std::filesystem::exists(io::AtomicDirectory::find(checkpoint()), error);
  }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path curve() const { return folder / "loss.svg"; }
};

}  // namespace lorry::cli
