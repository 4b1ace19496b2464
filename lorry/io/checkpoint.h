#pragma once

// A checkpoint is a directory: model.safetensors, optimizer.safetensors and state.json. It is written beside its final
// name and renamed when every byte is on the disk, so that a crash or a full disk leaves the former checkpoint.
// Together the files hold all that a run needs to continue to the bit.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>

#include "lorry/io/safetensors.h"

namespace lorry::io {

/// Named values of a configuration: {"layers", 4}, {"lr", 1e-3}.
using Setting = std::variant<bool, int64_t, double, std::string>;
using Settings = std::map<std::string, Setting>;

/// What a run needs beside its tensors.
struct TrainingState {
  int64_t step = 0;            ///< optimizer steps done
  uint64_t seed = 0;           ///< of the random numbers
  uint64_t random_offset = 0;  ///< how many of them were used
  uint64_t data_position = 0;  ///< Corpus::position
  Settings schedule = {};      ///< of the learning rate
  Settings config = {};        ///< of the model and the run

  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

/// What a checkpoint holds.
struct Checkpoint {
  TensorMap model;
  TensorMap optimizer;
  TrainingState state;
};

/// Saves to `directory`, whose parent must exist, replacing a former checkpoint there and clearing what a killed writer
/// left. Throws IoError (the former checkpoint stays), and refuses a directory that holds anything but a checkpoint.
void save_checkpoint(const std::filesystem::path& directory, const Checkpoint& checkpoint);

/// Loads the newest complete checkpoint that was saved to `directory`. Throws IoError when there is none, FormatError
/// naming the file when one is damaged or was written by a newer version. The tensors are views of the mapped files.
Checkpoint load_checkpoint(const std::filesystem::path& directory);

/// A required setting as T (bool, int64_t, double or std::string; whole numbers serve as double). Throws FormatError.
template <class T>
T setting(const Settings& settings, const std::string& name);

/// Settings that are all numbers, as a schedule's load_state_dict() takes them. Throws FormatError for another.
std::map<std::string, double> numbers(const Settings& settings);

}  // namespace lorry::io
