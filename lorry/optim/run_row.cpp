#include "lorry/optim/run_row.h"

#include "lorry/foreach/run_row.h"
#include "lorry/formula/quantize.h"
#include "lorry/kernels/list.h"
#include "lorry/kernels/optim.h"
#include "lorry/ops/array.h"
#include "lorry/ops/dispatch/arguments.h"
#include "lorry/optim/rules/rule.h"
#include "lorry/optim/step_plan.h"

namespace lorry::optim {
namespace {

using door::attribute_of;
using door::CallView;
using door::refuse;

/// The arguments of an announced step.
struct AnnouncedStep {
  const detail::RuleInfo& rule;
  size_t count;   ///< of parameters
  size_t arrays;  ///< of each parameter: its states and its master
  kernels::MasterKind masters;
  std::vector<Tensor> params, states, grads;  ///< states: the first one of all parameters, then the second, ...
  Tensor blocks, grad_factor;
  bool zero_grads;
  std::vector<Tensor> setting_tensors;  ///< settings that lie in tensors
  std::vector<int64_t> numbers;         ///< of each of these: its hyper block, and which setting it is

  explicit AnnouncedStep(const CallView& call);
  std::vector<Tensor> written() const;
};

int64_t in_range(const CallView& call, int64_t value, int64_t end, const char* what) {
  if (value < 0 || value >= end) refuse(call, what);
  return value;
}

AnnouncedStep::AnnouncedStep(const CallView& call)
    : rule(detail::rule_of(
          static_cast<int>(in_range(call, attribute_of<int64_t>(call, 1), 1 << 24, "no rule has this number")))),
      count(static_cast<size_t>(
          in_range(call, attribute_of<int64_t>(call, 2), 1 << 30, "the number of parameters is wrong"))),
      masters(static_cast<kernels::MasterKind>(
          in_range(call, attribute_of<int64_t>(call, 3), 4, "there is no such master"))),
      zero_grads(attribute_of<bool>(call, 7)),
      numbers(attribute_of<std::vector<int64_t>>(call, 8)) {
  using kernels::MasterKind;
  const bool has_masters = masters != MasterKind::none && masters != MasterKind::stochastic;
  arrays = static_cast<size_t>(rule.states) + (has_masters ? 1 : 0);
  if (count == 0 || numbers.size() % 2 != 0 || call.inputs.size() != count * (2 + arrays) + 2 + numbers.size() / 2)
    refuse(call, "another number of inputs");
  size_t at = 0;
  const auto take = [&](size_t n) {
    at += n;
    return door::tensors_of(call, at - n, at);
  };
  params = take(count), states = take(count * arrays), blocks = take(1)[0], grads = take(count);
  grad_factor = take(1)[0];
  setting_tensors = take(numbers.size() / 2);
}

std::vector<Tensor> AnnouncedStep::written() const {
  std::vector<Tensor> all = params;
  all.insert(all.end(), states.begin(), states.end());
  all.push_back(blocks);
  if (zero_grads) all.insert(all.end(), grads.begin(), grads.end());
  return all;
}

/// Whether kernels take arrays of this dtype as states, or as masters.
bool is_state_dtype(DType dtype, DType param) {
  return param == kF64 ? dtype == kF64 : dtype == kF32 || dtype == kBF16 || dtype == kU8;
}
bool is_master_dtype(DType dtype, kernels::MasterKind masters) {
  return dtype == (masters == kernels::MasterKind::f32 ? kF32 : kI16);
}

/// Checks everything that the kernels rely on.
void require_consistent(const CallView& call, const AnnouncedStep& step) {
  const Device device = step.params[0].defined() ? step.params[0].device() : kCPU;
  if (!step.blocks.defined() || step.blocks.device() != device) refuse(call, "the hyper blocks are elsewhere");
  if (step.grad_factor.defined() &&
      (step.grad_factor.dim() != 0 || step.grad_factor.dtype() != kF64 || step.grad_factor.device() != device))
    refuse(call, "the factor is no 0-d f64 beside the parameters");
  for (const Tensor& x : step.setting_tensors)
    if (!x.defined() || x.numel() != 1 || !is_floating(x.dtype()) || !(x.device().is_cpu() || x.device() == device))
      refuse(call, "the tensor of a setting is no floating number beside the parameters");
  for (size_t i = 0; i < step.count; ++i) {
    const Tensor &param = step.params[i], &grad = step.grads[i];
    if (!param.defined() || !grad.defined() || param.dtype() != step.params[0].dtype() ||
        grad.dtype() != step.grads[0].dtype() || param.device() != device || grad.device() != device ||
        !(param.layout() == grad.layout()) || !param.layout().is_dense())
      refuse(call, "a parameter and its gradient, or two parameters, differ in layout, dtype or device");
    for (size_t k = 0; k < step.arrays; ++k) {
      const Tensor &state = step.states[k * step.count + i], &first = step.states[k * step.count];
      const bool compressed = state.defined() && state.dtype() == kU8;
      if (!state.defined() || state.dtype() != first.dtype() || (!compressed && state.numel() != param.numel()) ||
          (compressed && state.numel() != formula::quant_bytes(param.numel())))
        refuse(call, "a state does not fit its parameter");
    }
  }
  const DType dtype = step.params[0].dtype(), grad_dtype = step.grads[0].dtype();
  using kernels::MasterKind;
  if (!is_floating(dtype) || (step.masters != MasterKind::none && !is_narrow(dtype)) ||
      (step.masters > MasterKind::f32 && dtype != kBF16))
    refuse(call, "parameters of this dtype have no such master");
  for (size_t k = 0; k < step.arrays; ++k)
    if (const DType own = step.states[k * step.count].dtype();
        k < static_cast<size_t>(step.rule.states) ? !is_state_dtype(own, dtype) : !is_master_dtype(own, step.masters))
      refuse(call, "no state or master has this dtype");
  if (grad_dtype != dtype && !(grad_dtype == kF32 && is_narrow(dtype)))
    refuse(call, "gradients are neither of their parameters' dtype nor f32 ones of 16 bits");
}

}  // namespace

std::vector<Tensor> run(const CallView& call) {
  if (call.op != Op::optimizer_step) return foreach::run(call);
  door::require_attributes(call, 9);
  const AnnouncedStep step(call);
  require_consistent(call, step);
  const Device device = step.params[0].device();
  const DType dtype = step.params[0].dtype();
  const auto& entries = attribute_of<std::vector<int64_t>>(call, 4);
  const int64_t block_count =
      in_range(call, attribute_of<int64_t>(call, 5), 1 << 24, "the number of hyper blocks is wrong");
  if (entries.size() != 2 * step.count) refuse(call, "another number of entries");

  const auto blocks = detail::make_blocks_to_run_again(step.rule, device, dtype == kF64);
  blocks->use(step.blocks, static_cast<int>(block_count));
  std::vector<Tensor> here;  // the states on the device
  for (const Tensor& state : step.states) here.push_back(state.to(device));
  std::vector<DType> states;
  for (int k = 0; k < step.rule.states; ++k) states.push_back(here[static_cast<size_t>(k) * step.count].dtype());
  const bool has_master = step.arrays > states.size();
  foreach::ListPlan plan = new_step_plan(Strategy::automatic);
  const uint32_t group = step_group(plan, device, dtype, step.grads[0].dtype(), states,
                                    has_master ? here[states.size() * step.count].dtype() : kF32);
  for (size_t i = 0; i < step.count; ++i) {
    std::vector<Tensor> arrays;
    for (size_t k = 0; k < step.arrays; ++k) arrays.push_back(here[k * step.count + i]);
    add_step_entry(plan, group, step.params[i], step.grads[i], arrays,
                   {.word = static_cast<uint32_t>(in_range(call, entries[2 * i], block_count, "no such block")),
                    .number = static_cast<uint32_t>(in_range(call, entries[2 * i + 1], 1 << 24, "no such number"))});
  }
  const kernels::StepCall kernel{.list = plan.list(group),
                                 .first_block = 0,
                                 .block_count = static_cast<int32_t>(block_count),
                                 .masters = step.masters,
                                 .zero_grads = step.zero_grads,
                                 .grad_factor = doubles(step.grad_factor),
                                 .seed = static_cast<uint64_t>(attribute_of<int64_t>(call, 6))};
  std::vector<kernels::NumberSource> numbers;
  for (size_t i = 0; i < step.setting_tensors.size(); ++i)
    numbers.push_back(detail::number_source(
        static_cast<int>(in_range(call, step.numbers[2 * i], block_count, "no such block")),
        static_cast<int>(in_range(call, step.numbers[2 * i + 1], step.rule.settings, "there is no such setting")),
        step.setting_tensors[i]));
  blocks->prepare(kernel, current_stream(device));
  if (!numbers.empty()) blocks->set_numbers(numbers, current_stream(device));
  blocks->step(kernel, current_stream(device));
  for (size_t i = 0; i < here.size(); ++i)
    if (!here[i].is_same(step.states[i])) step.states[i].copy_(here[i]);
  std::vector<Tensor> written = step.written();
  for (const Tensor& x : written) x.storage().written_by("optimizer_step");
  return written;
}

}  // namespace lorry::optim
