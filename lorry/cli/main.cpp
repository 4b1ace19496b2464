#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>

#include "lorry/cli/commands.h"
#include "lorry/cli/output.h"
#include "lorry/device/cpu/team.h"
#include "lorry/device/device.h"
#include "lorry/tensor/tensor.h"

namespace lorry::cli {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // Clang before 17 does not deduce arguments of aggregates

int run(const Arguments& arguments) {
  const Device gpu{DeviceType::cuda, 0};
  set_default_device(arguments.common.device.value_or(device::available(gpu.type) ? gpu : kCPU));
  if (arguments.common.threads) cpu::set_threads(*arguments.common.threads);
  return std::visit(Overloaded{
                        [&](const InfoOptions& o) { return run_info(o, arguments.common); },
                        [&](const TrainOptions& o) { return run_train(o, arguments.common); },
                        [&](const GenerateOptions& o) { return run_generate(o, arguments.common); },
                        [&](const BenchOptions& o) { return run_bench(o, arguments.common); },
                        [&](const LessonsOptions& o) { return run_lessons(o, arguments.common); },
                    },
                    arguments.command);
}

/// If the caller has closed a standard stream, the next opened file would get its descriptor and receive what is
/// written to the stream. So a descriptor that refuses every write is opened in its place.
void refuse_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDONLY);  // gets the lowest free number
}

/// In GCC's OpenMP a waiting thread spins for 300,000 rounds, about 13 ms, before it sleeps. If other processes use the
/// processors too, every barrier then waits for a time slice: 40 small training steps on a loaded 2-core machine took
/// 37 s, and 2 s with a limit of 1,000. On an idle machine the nano step takes 72 ms with 1,000 rounds, 65 ms with
/// 10,000 and 64 ms with 30,000. The runtime reads its settings before main, so the command starts itself again with
/// these settings.
void limit_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("GOMP_SPINCOUNT", "10000", 0);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(self.c_str(), argv);  // if this fails, the default works too
}

}  // namespace
}  // namespace lorry::cli

// 0: done. 1: failed, with a message. 2: wrong usage.
int main(int argc, char** argv) {
  lorry::cli::refuse_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // so that a file beyond the size limit is an error with a message
  lorry::cli::limit_spinning(argv);
  try {
    const auto parsed = lorry::cli::parse(argc, argv);
    const int* done = std::get_if<int>(&parsed);
    const int status = done ? *done : lorry::cli::run(std::get<lorry::cli::Arguments>(parsed));
    lorry::cli::flush_standard_output();
    return status;
  } catch (const std::bad_alloc&) {
    std::fputs("lorry: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lorry: %s\n", error.what());
  }
  return 1;
}
