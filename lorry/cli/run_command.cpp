#include "lorry/cli/commands.h"
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

}  // namespace

int run_command(const Arguments& arguments) {
  const Device gpu{DeviceType::cuda, 0};
  set_default_device(arguments.common.device.value_or(device::available(gpu.type) ? gpu : kCPU));
  if (arguments.common.threads) cpu::set_threads(*arguments.common.threads);
  return std::visit(Overloaded{
                        [&](const InfoOptions& o) { return run_info(o, arguments.common); },
                        [&](const TrainOptions& o) { return run_train(o, arguments.common); },
                        [&](const GenerateOptions& o) { return run_generate(o, arguments.common); },
                        [&](const BenchOptions& o) { return run_bench(o, arguments.common); },
                        [&](const LessonsOptions& o) { return run_lessons(o, arguments.common); },
                        [&](const ProfileOptions& o) { return run_profile(o, arguments.common); },
                    },
                    arguments.command);
}

}  // namespace lorry::cli
