#include "lorry/bench/compile_cases.h"

#include <fmt/core.h>

#include "lorry/ops/ops.h"

namespace lorry::bench {

void require_same_bits(const std::string& name, const Tensor& eager, const Tensor& compiled) {
  const ModeScope no_grad(0, kGradMode);
  int64_t different = -1;
  if (eager.dtype() == compiled.dtype() && eager.sizes() == compiled.sizes()) {
    const auto bytes = [](const Tensor& x) {
      const Tensor host = x.detach().to(kCPU).contiguous();
      return host.view({host.numel()}).view(kU8);
    };
    different = bytes(eager).ne(bytes(compiled)).count_nonzero().item<int64_t>();
    if (different == 0) return;
  }
  raise_as<CompileError>("bench compile",
                         "'{}' gives other results compiled than eager; got {} {} eager and {} {} compiled{}; expected "
                         "the same bits; nothing is reported; this is an error of the compiler",
                         name, eager.dtype(), eager.sizes(), compiled.dtype(), compiled.sizes(),
                         different < 0 ? std::string() : fmt::format(", {} bytes of which differ", different));
}

void require_same(const CompileCase& about, const Tensor& eager, const Tensor& compiled) {
  if (about.tolerance == 0) return require_same_bits(about.name, eager, compiled);
  const ModeScope no_grad(0, kGradMode);
  const auto largest = [](const Tensor& x) { return x.abs().max().to(kF64).item<double>(); };
  if (eager.dtype() == compiled.dtype() && eager.sizes() == compiled.sizes() &&
      largest(eager - compiled) <= about.tolerance * largest(eager))
    return;
  raise_as<CompileError>("bench compile",
                         "'{}' gives other results compiled than eager; got {} eager and {} compiled; expected a "
                         "difference of at most {} of the largest element; nothing is reported",
                         about.name, eager, compiled, about.tolerance);
}

Result CompileCases::head(const CompileCase& about, const char* implementation) {
  Result row{.suite = "compile", .name = about.name, .time = {}, .implementation = implementation};
  row.dtype = lorry::name(about.dtype);
  return row;
}

void CompileCases::say_uncompiled(const CompileCase& about, const CompileStats& stats) {
  fmt::print(stderr, "compile: '{}' runs as it is on {} and has no compiled row: {} recordings, {} calls as it is\n",
             about.name, to_string(default_device()), stats.recordings, stats.eager_calls);
}

}  // namespace lorry::bench
