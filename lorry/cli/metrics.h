#pragma once

// The history of a training run in metrics.jsonl, one JSON object per line:
//   {"step": 7, "loss": 4.21, "lr": 0.0002, "gradient_norm": 1.4, "seconds": 0.61}    after each step
//   {"step": 7, "validation_loss": 4.35}                                             where it was measured
// Losses are written so that reading gives the same bits. A resumed run first removes lines after its checkpoint, so
// the file always contains one history.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

namespace lorry::cli {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0, lr = 0, gradient_norm = 0;
  double seconds = 0;  ///< training time since the run began, without validation
};

struct ValidationMetrics {
  int64_t step = 0;
  double loss = 0;
};

/// A training loss is reported as the mean over this many steps.
inline constexpr size_t kRecentSteps = 20;

/// The contents of a metrics file; an incomplete last line is ignored.
struct RunHistory {
  std::vector<StepMetrics> steps;
  std::vector<ValidationMetrics> validations;

  /// The mean loss of the last `count` steps. Throws ValueError if there are none.
  double recent_loss(size_t count) const;
  /// The last validation loss, if one was measured.
  std::optional<double> validation_loss() const;
  /// Training time so far.
  double seconds() const { return steps.empty() ? 0.0 : steps.back().seconds; }
};

/// The records of the file `path` up to `step`; empty if the file does not exist or cannot be read back. Throws
/// FormatError.
RunHistory read_history(const std::filesystem::path& path, int64_t step);

/// Whether a run has written the file, also if it is empty or its last line is incomplete.
bool is_history(const std::filesystem::path& path);

class MetricsFile {
 public:
  /// Opens `path` to continue after `step`: later lines are removed; 0 starts a new file. A FIFO or a device is written
  /// to directly. Throws IoError, FormatError.
  MetricsFile(std::filesystem::path path, int64_t step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Each line reaches the system before the call returns. Throws IoError.
  void add(const StepMetrics& metrics);
  void add(const ValidationMetrics& metrics);
  const RunHistory& history() const { return history_; }

 private:
  void write(const std::string& line);

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
  RunHistory history_;
};

}  // namespace lorry::cli
