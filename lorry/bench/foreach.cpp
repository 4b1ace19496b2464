// Operators over lists of tensors, in place, over the parameters of models: as one call, tensor by tensor ("loop"), and
// two of them with every Strategy, because the others cost the same. bench/peers/optim_torch.py makes the same calls.

#include <fmt/core.h>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/model_cases.h"
#include "lorry/foreach/foreach.h"
#include "lorry/foreach/norm.h"
#include "lorry/ops/ops.h"

namespace lorry::bench {
namespace {

using foreach::TensorList;
using profile::do_not_optimize;

constexpr Strategy kStrategies[] = {Strategy::per_tensor,   Strategy::kernel_args_4k, Strategy::kernel_args_32k,
                                    Strategy::device_table, Strategy::mapped_table,   Strategy::managed_table};

/// together: the call over lists. alone(i): the same for the i-th tensors.
template <class Together, class Alone>
void add(ModelCases& cases, const ModelShapes& model, const char* name, int64_t bytes_an_element,
         const Together& together, const Alone& alone, bool by_strategies = false) {
  cases.add(model, name, bytes_an_element, together);
  cases.add(model, fmt::format("{} loop", name), bytes_an_element, [&] {
    for (size_t i = 0; i < static_cast<size_t>(model.tensors()); ++i) alone(i);
  });
  if (!by_strategies || default_device().is_cpu()) return;  // on a CPU strategies make no difference
  for (const Strategy strategy : kStrategies) {
    const foreach::StrategyScope scope(strategy);
    cases.add(model, fmt::format("{} {}", name, lorry::name(strategy)), bytes_an_element, together);
  }
}

}  // namespace

std::vector<Result> foreach_suite(const Filter& filter) {
  const NoGrad quiet;
  ModelCases cases("foreach", filter);
  for (const ModelShapes* model : cases.models(3 * 4 + 2)) {
    {
      const TensorList x = tensors_of(*model, 1), y = tensors_of(*model, 1), z = tensors_of(*model, 1),
                       half = tensors_of(*model, 1, kBF16);
      const auto each = [&](const char* name, int64_t bytes, const auto& together, const auto& alone,
                            bool by_strategies = false) {
        add(cases, *model, name, bytes, together, alone, by_strategies);
      };
      // clang-format off
      each("add", 12, [&] { foreach::add_(x, y); }, [&](size_t i) { x[i].add_(y[i]); }, true);
      each("mul", 8, [&] { foreach::mul_(x, 1.0); }, [&](size_t i) { x[i].mul_(1.0); });
      each("addcmul", 16, [&] { foreach::addcmul_(x, y, z, 0.1); }, [&](size_t i) { x[i].addcmul_(y[i], z[i], 0.1); });
      each("lerp", 12, [&] { foreach::lerp_(x, y, 0.1); }, [&](size_t i) { x[i].lerp_(y[i], 0.1); });
      each("sqrt", 8, [&] { foreach::sqrt_(x); }, [&](size_t i) { x[i].sqrt_(); });
      const auto norm = [&](size_t i) { do_not_optimize(x[i].norm()); };
      each("norm", 4, [&] { do_not_optimize(foreach::norms(x)); }, norm, true);
      each("copy", 8, [&] { foreach::copy_(x, y); }, [&](size_t i) { x[i].copy_(y[i]); });
      each("cast f32 to bf16", 6, [&] { foreach::copy_(half, x); }, [&](size_t i) { half[i].copy_(x[i]); });
      each("zero", 4, [&] { foreach::zero_(x); }, [&](size_t i) { x[i].fill_(0); });
      // clang-format on
    }
    memory::empty_cache(default_device());
  }
  return cases.rows();
}

}  // namespace lorry::bench
