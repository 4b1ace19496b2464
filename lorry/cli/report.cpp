#include "lorry/cli/report.h"

#include <nlohmann/json.hpp>

#include "lorry/cli/output.h"

namespace lorry::cli {

void write_json(const std::string& path, const nlohmann::ordered_json& figures) {
  write_file(path, figures.dump(2) + "\n");
}

}  // namespace lorry::cli
