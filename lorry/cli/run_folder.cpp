#include "lorry/cli/run_folder.h"

#include <optional>
#include <string>
#include <system_error>

#include "lorry/base/error.h"
#include "lorry/cli/metrics.h"
#include "lorry/io/lock.h"
#include "lorry/io/staging.h"

namespace lorry::cli {
namespace fs = std::filesystem;
namespace {

/// The run whose folder or checkpoint `path` names.
std::optional<RunFolder> run_of(const fs::path& path) {
  if (const RunFolder run{path}; run.has_checkpoint()) return run;
  const fs::path named = path.has_filename() ? path : path.parent_path();  // ignore a trailing slash
  std::error_code error;
  for (const fs::path& at : {named, fs::weakly_canonical(path, error)}) {
    const RunFolder run{at.has_parent_path() ? at.parent_path() : "."};
    if (at.filename() == run.checkpoint().filename() && run.has_checkpoint()) return run;
  }
  return std::nullopt;
}

[[noreturn]] void raise_none(const fs::path& path, std::string_view command) {
  std::error_code error;
  if (fs::status(path / "checkpoint", error).type() == fs::file_type::none)
    io::raise_io("cannot read", path, error.value());
  std::optional<std::string> holder;
  if (fs::is_directory(path, error)) holder = io::lock_holder(RunFolder{path}.lock());
  raise<IoError>("{}: there is no run or checkpoint at '{}'; expected a folder that `lorry train` wrote{}", command,
                 path.string(), holder ? fmt::format("; {} is training there and has saved nothing yet", *holder) : "");
}

}  // namespace

bool RunFolder::has_checkpoint() const {
  std::error_code error;
  return fs::exists(io::AtomicDirectory::find(checkpoint()), error);
}

void RunFolder::require_own() const {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path path = entry->path();
    const std::string name = path.filename().string();
    std::error_code ignored;
    bool own = path == lock() || io::is_staged_name(name, checkpoint().filename().string()) ||
               io::is_staged_name(name, metrics().filename().string());
    // A run that was killed before its first checkpoint leaves metrics. Files that are not regular are written to
    // directly.
    if (path == metrics()) own = !fs::is_regular_file(path, ignored) || is_history(path);
    if (path == curve()) own = !fs::is_regular_file(path, ignored);
    require<IoError>(own, "train: '{}' holds '{}', which is not of this run; choose another --out, or move that away",
                     folder.string(), name);
  }
  if (error) io::raise_io("cannot list", folder, error.value());
}

RunFolder find_run(const fs::path& path, std::string_view command) {
  if (const auto run = run_of(path)) return *run;
  raise_none(path, command);
}

fs::path find_checkpoint(const fs::path& path, std::string_view command) {
  if (const auto run = run_of(path)) return run->checkpoint();
  std::error_code error;
  if (!fs::exists(io::AtomicDirectory::find(path) / "state.json", error)) raise_none(path, command);
  return path;
}

}  // namespace lorry::cli
