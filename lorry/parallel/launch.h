#pragma once

// Where this process stands among those that a launcher has started together. Launchers say so in the environment:
//
//   mpirun      OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   torchrun    RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   srun        SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
//
// LORRY_ADDRESS=HOST:PORT says where rank 0 listens for the others, whatever the launcher.

#include <string>

namespace lorry::parallel {

enum class Launcher { none, mpirun, torchrun, srun };
const char* name(Launcher launcher);

struct Launch {
  Launcher launcher = Launcher::none;
  int rank = 0, size = 1;              ///< of all processes
  int local_rank = 0, local_size = 1;  ///< of those on this machine
  /// Where rank 0 listens. No host: all processes are of this machine, and rank 0 writes the port to `file`; without a
  /// file as well, they learn it through MPI.
  std::string host = {};
  int port = 0;
  std::string file = {};
};

/// Reads the environment. A process that no launcher has started is rank 0 of 1. Throws ValueError for variables that
/// are missing, are no numbers, or contradict each other.
Launch launched();

}  // namespace lorry::parallel
