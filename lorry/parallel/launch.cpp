#include "lorry/parallel/launch.h"

#include <charconv>

#include "lorry/base/env.h"
#include "lorry/base/error.h"

namespace lorry::parallel {
namespace {

constexpr int64_t kMostRanks = 1 << 20;
constexpr int kPorts = 65535;

/// A variable that the launcher sets.
int required(Launcher launcher, const char* variable, int64_t low, int64_t high) {
  const std::optional<int64_t> value = env::integer(variable, low, high);
  if (!value)
    raise_as<ValueError>("parallel", "{} has started this process without {}; start it with mpirun, srun or torchrun",
                         name(launcher), variable);
  return static_cast<int>(*value);
}

/// HOST:PORT. An address of IPv6 stands in brackets.
void read_address(const std::string& text, Launch& to) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  int port = 0;
  if (colon != std::string::npos) {
    const char *const begin = text.data() + colon + 1, *const end = text.data() + text.size();
    if (const auto [rest, error] = std::from_chars(begin, end, port); error != std::errc() || rest != end) port = 0;
  }
  if (host.empty() || port < 1 || port > kPorts)
    raise_as<ValueError>("parallel",
                         "LORRY_ADDRESS is no address; got '{}'; expected HOST:PORT, such as 10.0.0.1:29500", text);
  to.host = std::move(host), to.port = port;
}

Launch from_mpirun() {
  constexpr Launcher kBy = Launcher::mpirun;
  Launch x{.launcher = kBy};
  x.size = required(kBy, "OMPI_COMM_WORLD_SIZE", 1, kMostRanks);
  x.rank = required(kBy, "OMPI_COMM_WORLD_RANK", 0, x.size - 1);
  x.local_size = required(kBy, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, x.size);
  x.local_rank = required(kBy, "OMPI_COMM_WORLD_LOCAL_RANK", 0, x.local_size - 1);
  // The folder of this run, where all its processes of a machine write.
  if (const auto folder = env::text("PMIX_SERVER_TMPDIR"); folder && x.local_size == x.size)
    x.file = *folder + "/lorry-address";
  return x;
}

Launch from_torchrun() {
  constexpr Launcher kBy = Launcher::torchrun;
  Launch x{.launcher = kBy};
  x.size = required(kBy, "WORLD_SIZE", 1, kMostRanks);
  x.rank = required(kBy, "RANK", 0, x.size - 1);
  x.local_rank = static_cast<int>(env::integer("LOCAL_RANK", 0, x.size - 1).value_or(x.rank));
  x.local_size = static_cast<int>(env::integer("LOCAL_WORLD_SIZE", 1, x.size).value_or(x.size));
  const auto host = env::text("MASTER_ADDR");
  if (!host) raise_as<ValueError>("parallel", "torchrun has started this process without MASTER_ADDR");
  x.host = *host;
  x.port = required(kBy, "MASTER_PORT", 1, kPorts);
  // There the launcher itself listens, for processes of PyTorch.
  if (env::text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++x.port;
  return x;
}

Launch from_srun() {
  constexpr Launcher kBy = Launcher::srun;
  Launch x{.launcher = kBy};
  x.size = required(kBy, "SLURM_NTASKS", 1, kMostRanks);
  x.rank = required(kBy, "SLURM_PROCID", 0, x.size - 1);
  x.local_rank = required(kBy, "SLURM_LOCALID", 0, x.size - 1);
  x.local_size = static_cast<int>(env::integer("SLURM_NTASKS_PER_NODE", 1, x.size).value_or(x.size));
  return x;
}

Launch from_environment() {
  if (env::text("OMPI_COMM_WORLD_SIZE")) return from_mpirun();
  if (env::text("WORLD_SIZE") && env::text("RANK")) return from_torchrun();
  // A shell inside a job has the job's variables too, but only srun's processes have a number.
  if (env::text("SLURM_PROCID") && env::text("SLURM_STEP_ID")) return from_srun();
  return {};
}

}  // namespace

const char* name(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "no launcher";
    case Launcher::mpirun:
      return "mpirun";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::srun:
      return "srun";
  }
  return "?";
}

Launch launched() {
  Launch x = from_environment();
  if (const auto address = env::text("LORRY_ADDRESS")) read_address(*address, x);
  return x;
}

}  // namespace lorry::parallel
