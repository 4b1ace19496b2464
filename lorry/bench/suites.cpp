#include "lorry/bench/suites.h"

namespace lorry::bench {
namespace {

#ifdef LORRY_WITH_CUDA
constexpr auto kMatmulCeiling = matmul_ceiling_suite;
#else
constexpr std::nullptr_t kMatmulCeiling = nullptr;
#endif

constexpr Suite kSuites[] = {{"attention", attention_suite},
                             {"compile", compile_suite},
                             {"foreach", foreach_suite},
                             {"generate", generate_suite},
                             {"lossy", lossy_suite},
                             {"matmul", matmul_suite},
                             {"matmul_ceiling", kMatmulCeiling},
                             {"memory", memory_suite},
                             {"operators", operators_suite},
                             {"optim", optim_suite},
                             {"overhead", overhead_suite},
                             {"parallel", parallel_suite},
                             {"profile", profile_suite},
                             {"replay", replay_suite},
                             {"transfers", transfers_suite}};

}  // namespace

std::span<const Suite> suites() { return kSuites; }

}  // namespace lorry::bench
