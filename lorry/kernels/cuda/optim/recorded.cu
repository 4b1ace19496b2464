// Steps by recorded rules. Their kernels are generated (emit_rule.h), compiled before the first step, and launched like
// the kernels of Lorry's own rules.

#include <map>
#include <tuple>

#include "lorry/kernels/cuda/fused/runtime_compiler.h"
#include "lorry/kernels/cuda/optim/emit_rule.h"
#include "lorry/kernels/cuda/optim/optim.h"
#include "lorry/kernels/cuda/optim/rule.h"

namespace lorry::kernels::cuda {
namespace {

/// Stands for any rule with this number of states, where only the types of kernel arguments matter.
template <int kStateCount>
struct StandIn {
  static constexpr int kStates = kStateCount;
  struct Settings {};
  struct Progress {};
  template <class V>
  struct Hyper {};
};

template <class Body>
struct BodyName;
template <class Rule, class C>
struct BodyName<StepUniform<Rule, C>> {
  static constexpr const char* kText =
      std::is_same_v<C, double> ? "StepUniform<Rule, double>" : "StepUniform<Rule, float>";
};
template <class T>
constexpr const char* type_text() {
  return std::is_same_v<T, float> ? "float" : std::is_same_v<T, Float16> ? "Float16" : "BFloat16";
}
template <class Rule, class T, class G>
struct BodyName<StepNarrow<Rule, T, G>> {
  static inline const std::string kText = fmt::format("StepNarrow<Rule, {}, {}>", type_text<T>(), type_text<G>());
};
template <class Rule, class T, StateTypes kTypes>
struct BodyName<StepCompressed<Rule, T, kTypes>> {
  static constexpr const char* kTypeTexts[] = {"f32", "bf16", "q8", "mixed"};
  static inline const std::string kText =
      fmt::format("StepCompressed<Rule, {}, StateTypes::{}>", type_text<T>(), kTypeTexts[static_cast<int>(kTypes)]);
};

/// The kernels that were compiled for a rule, by body, source, reachable updates and device.
struct RuleKernelsOnDevice final : RecordedRule::OnDevice {
  std::map<std::tuple<std::string, const char*, uint32_t, int>, std::shared_ptr<const RuntimeKernel>> kernels;

  const RuntimeKernel& of(const RecordedRule& rule, const std::string& body, const char* source, int device) {
    auto& kernel = kernels[{body, source, rule.reachable, device}];
    if (kernel == nullptr) {
      const std::string name = "compiled_step";
      kernel =
          RuntimeCompiler::get().kernel({name, emit_step(rule, name, body, source)}, architecture_of(device), device);
    }
    return *kernel;
  }
};

RuleKernelsOnDevice& on_device(const RecordedRule& rule) {
  if (rule.on_device == nullptr) rule.on_device = std::make_unique<RuleKernelsOnDevice>();
  return static_cast<RuleKernelsOnDevice&>(*rule.on_device);
}

/// The template of list.h by which the tiles of a list reach its kernels.
const char* source_of(const CudaList& list) {
  switch (list.strategy()) {
    case Strategy::kernel_args_4k:
      return list.count() == 0 ? "Table" : "Arguments4K";
    case Strategy::kernel_args_32k:
      return list.count() == 0 ? "Table" : "Arguments32K";
    default:
      return "Table";
  }
}

/// Calls use(body) with the body that steps the call's list. `states`: the rule's.
template <int kStates = 0, class Use>
void with_body(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call, const Use& use) {
  if constexpr (kStates < 3)
    if (rule.states != kStates) return with_body<kStates + 1>(rule, blocks, call, use);
  using Rule = StandIn<kStates>;
  if (rule.compute == kF64)
    RuleOnCuda<Rule, double>::with_body(reinterpret_cast<formula::HyperBlock<Rule, double>*>(blocks.bytes), call, use);
  else
    RuleOnCuda<Rule, float>::with_body(reinterpret_cast<formula::HyperBlock<Rule, float>*>(blocks.bytes), call, use);
}

template <class Body>
const RuntimeKernel& kernel_of(const RecordedRule& rule, const Body& body, const StepCall& call, const Stream& stream) {
  const CudaList& list = CudaList::of(call.list, geometry_of(body), stream);
  return on_device(rule).of(rule, BodyName<Body>::kText, source_of(list), stream.device.index);
}

}  // namespace

bool prepare_recorded(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call, const Stream& stream) {
  bool compiled = false;
  with_body(rule, blocks, call, [&]<class Body>(const Body& body) {
    const RuntimeKernel& kernel = kernel_of(rule, body, call, stream);
    kernel.wait();
    compiled = kernel.function() != nullptr;
    if (compiled) CudaList::of(call.list, geometry_of(body), stream).ticket(stream);
  });
  return compiled;
}

void step_recorded(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call, const Stream& stream) {
  with_body(rule, blocks, call, [&]<class Body>(const Body& body) {
    const void* const function = kernel_of(rule, body, call, stream).function();
    const CompiledTileKernels<Body::kArrays, Body> kernels{{function}, {function}, {function}};
    over_list(call.list, geometry_of(body), body, kernels, true, stream);
  });
}

}  // namespace lorry::kernels::cuda
