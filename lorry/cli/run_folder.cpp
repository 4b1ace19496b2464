#include "lorry/cli/run_folder.h"

#include <string>
#include <system_error>

#include "lorry/base/error.h"
#include "lorry/cli/metrics.h"
#include "lorry/io/staging.h"

namespace lorry::cli {
namespace fs = std::filesystem;

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
    // A run that was killed before its first checkpoint leaves metrics. What is no regular file is written through.
    if (path == metrics()) own = !fs::is_regular_file(path, ignored) || is_course(path);
    if (path == curve()) own = !fs::is_regular_file(path, ignored);
    require<IoError>(own, "train: '{}' holds '{}', which is not of this run; choose another --out, or move that away",
                     folder.string(), name);
  }
  if (error) io::raise_io("cannot list", folder, error.value());
}

}  // namespace lorry::cli
