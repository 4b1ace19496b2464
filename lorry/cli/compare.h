#pragma once

#include "lorry/cli/options.h"

namespace lorry::cli {

/// `lorry bench --compare OLD NEW`. Returns the exit status. Throws IoError, FormatError.
int run_compare(const BenchOptions& options, const CommonOptions& common);

}  // namespace lorry::cli
