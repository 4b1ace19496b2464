#pragma once

// One command as several processes, which mpirun starts.

#include "lorry/cli/options.h"

namespace lorry::cli {

/// Starts this command again as `options.devices` processes, each of which takes its share of the processors. Without
/// options.restarts this process becomes mpirun. With restarts it waits: when the processes fail after the first step,
/// they are started again, and go on from the last checkpoint; a line says what was lost. That ends when they fail
/// three times without coming further. Returns the exit status of the last start. Throws IoError if mpirun cannot be
/// started.
int run_as_processes(const TrainOptions& options);

/// Whether these processes were started again after a failure.
bool was_restarted();

}  // namespace lorry::cli
