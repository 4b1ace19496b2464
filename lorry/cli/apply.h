#pragma once

// lorry profile --apply -- train: the steps of a run, made again with the cures of its diagnosis.

#include "lorry/cli/options.h"
#include "lorry/profile/apply.h"

namespace lorry::cli {

/// Makes steps of the run as its options say, and with --compile, --replay and --execution fused where the diagnosis
/// asks for them; with `everything`, wherever they are possible. Each variant has a model of its own, and nothing is
/// written to the run's folder. Throws what training throws; a variant that throws is a cure that was not possible.
profile::Trial try_cures(const TrainOptions& options, bool everything);

}  // namespace lorry::cli
