#pragma once

// A checkpoint is a directory with model.safetensors, optimizer.safetensors and state.json. It is written under a
// temporary name and renamed when every byte is on the disk, so that a crash or a full disk leaves the old checkpoint.
// The files hold everything that a run needs to continue with the same bits.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>

#include "lorry/io/file.h"
#include "lorry/io/safetensors.h"

namespace lorry::io {

/// Named values of a configuration: {"layers", 4}, {"lr", 1e-3}.
using Setting = std::variant<bool, int64_t, double, std::string>;
using Settings = std::map<std::string, Setting>;

/// The state of a run other than its tensors.
struct TrainingState {
  int64_t step = 0;            ///< optimizer steps done
  uint64_t seed = 0;           ///< of the random number generator
  uint64_t random_offset = 0;  ///< the generator's offset
  uint64_t data_position = 0;  ///< Corpus::position
  Settings schedule = {};      ///< state of the learning rate schedule
  Settings config = {};        ///< settings of the model and the run

  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

/// The contents of a checkpoint.
struct Checkpoint {
  TensorMap model;
  TensorMap optimizer;
  TrainingState state;
};

/// Saves to `directory`, whose parent must exist. Replaces a previous checkpoint there and removes what a killed writer
/// left. Throws IoError (the previous checkpoint stays), also if the directory contains anything but a checkpoint.
void save_checkpoint(const std::filesystem::path& directory, const Checkpoint& checkpoint);

/// A checkpoint while it is written, for several processes that each write a share: one of them makes it and commits it
/// when all shares are on the disk. save_checkpoint is the case of one.
class CheckpointWriter {
 public:
  /// Throws as save_checkpoint does.
  CheckpointWriter(const std::filesystem::path& directory, const TrainingState& state);
  /// The temporary name under which it is written.
  const std::filesystem::path& path() const { return staged_.path(); }
  /// Makes it the checkpoint.
  void commit();

  /// The files of a checkpoint at `path`, and what the model's says of itself.
  static std::filesystem::path model_in(const std::filesystem::path& path);
  static std::filesystem::path optimizer_in(const std::filesystem::path& path);
  static Metadata model_metadata();

 private:
  const std::string state_;
  AtomicDirectory staged_;
};

/// Loads the newest complete checkpoint saved to `directory`. Throws IoError if there is none, and FormatError that
/// names the file if one is damaged or was written by a newer version. The tensors are views of the mapped files.
Checkpoint load_checkpoint(const std::filesystem::path& directory);

/// A required setting as T (bool, int64_t, double or std::string; integers convert to double). Throws FormatError.
template <class T>
T setting(const Settings& settings, const std::string& name);

/// Settings that are all numbers, for a schedule's load_state_dict(). Throws FormatError for others.
std::map<std::string, double> numbers(const Settings& settings);

}  // namespace lorry::io
