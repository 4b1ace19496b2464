#include <cstdio>
#include <exception>
#include <new>

#include "lorry/cli/commands.h"
#include "lorry/device/cpu/team.h"

namespace lorry::cli {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

int run(const Arguments& arguments) {
  if (arguments.common.threads) cpu::set_threads(*arguments.common.threads);
  return std::visit(Overloaded{
                        [&](const InfoOptions& o) { return run_info(o, arguments.common); },
                        [&](const TrainOptions& o) { return run_train(o, arguments.common); },
                        [&](const GenerateOptions& o) { return run_generate(o, arguments.common); },
                        [&](const BenchOptions& o) { return run_bench(o, arguments.common); },
                    },
                    arguments.command);
}

}  // namespace
}  // namespace lorry::cli

// 0: done. 1: it failed, and the message says why. 2: wrong usage.
int main(int argc, char** argv) {
  try {
    const auto parsed = lorry::cli::parse(argc, argv);
    if (const int* status = std::get_if<int>(&parsed)) return *status;
    return lorry::cli::run(std::get<lorry::cli::Arguments>(parsed));
  } catch (const std::bad_alloc&) {
    std::fputs("lorry: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lorry: %s\n", error.what());
  }
  return 1;
}
