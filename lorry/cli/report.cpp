#include "lorry/cli/report.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lorry/base/error.h"

namespace lorry::cli {

void write_json(const std::string& path, const nlohmann::ordered_json& figures) {
  if (path.empty()) return;
  const std::string draft = path + ".part";
  std::ofstream file(draft);
  file << figures.dump(2) << '\n';
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(draft.c_str());
    raise<IoError>("--json: cannot write '{}': {}", path, std::strerror(error));
  }
}

}  // namespace lorry::cli
