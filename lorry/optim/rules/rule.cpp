#include "lorry/optim/rules/rule.h"

#include <algorithm>
#include <mutex>
#include <tuple>

#include "lorry/device/capture.h"
#include "lorry/kernels/backend.h"
#include "lorry/kernels/common/recorded_rule.h"
#include "lorry/kernels/optim.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/optim/optimizer_for.h"
#include "lorry/optim/rules/typed_rule.h"

namespace lorry::optim {
namespace detail {
namespace {

/// The kernels of a rule of formula::Rules on any device.
template <class R>
struct BackendKernels {
  using Rule = R;
  static constexpr bool kOnCuda = true;
  template <class C>
  static const kernels::RuleKernels<Rule, C>& on(Device device) {
    return kernels::backend(device).optim->rules.template of<Rule>().template in<C>();
  }
  template <class C>
  static void step(formula::HyperBlock<Rule, C>* blocks, const kernels::StepCall& call, const Stream& stream) {
    on<C>(stream.device).step(blocks, call, stream);
  }
  template <class C>
  static void prepare(formula::HyperBlock<Rule, C>* blocks, const kernels::StepCall& call, const Stream& stream) {
    if (const auto prepare = on<C>(stream.device).prepare) prepare(blocks, call, stream);
  }
  template <class C>
  static void set(formula::HyperBlock<Rule, C>* blocks, std::span<const formula::HyperBlockChange<Rule>> changes,
                  const Stream& stream) {
    on<C>(stream.device).set(blocks, changes, stream);
  }
  template <class C>
  static void set_numbers(formula::HyperBlock<Rule, C>* blocks, std::span<const kernels::NumberSource> numbers,
                          const Stream& stream) {
    on<C>(stream.device).set_numbers(blocks, numbers, stream);
  }
  template <class C>
  static void advance(formula::HyperBlock<Rule, C>* blocks, int32_t count, const double* grad_factor,
                      const Stream& stream) {
    on<C>(stream.device).advance(blocks, count, grad_factor, stream);
  }
};

}  // namespace
}  // namespace detail

template <class Rule>
std::unique_ptr<detail::AnyRule> make_rule(const formula::SettingsOf<Rule>& settings) {
  return std::make_unique<detail::TypedRule<Rule>>(settings);
}

namespace detail {
/// Instantiates make_rule for every rule.
template <class Rules>
struct RuleMakers;
template <class... Rule>
struct RuleMakers<formula::RuleList<Rule...>> {
  static constexpr std::tuple kAll = {
      static_cast<std::unique_ptr<AnyRule> (*)(const formula::SettingsOf<Rule>&)>(make_rule<Rule>)...};
};
template struct RuleMakers<formula::Rules>;

HyperBlocks::HyperBlocks(Device device) : device_(device) {}
HyperBlocks::~HyperBlocks() = default;

void HyperBlocks::use_recorded(std::unique_ptr<kernels::RecordedRule> rule) { recorded_ = std::move(rule); }

kernels::RecordedBlocks HyperBlocks::recorded_blocks() const {
  return {.bytes = static_cast<std::byte*>(memory_.data_ptr())};
}

kernels::NumberSource number_source(int block, int setting, const Tensor& x) {
  kernels::NumberSource source{.block = block, .setting = setting, .dtype = x.dtype()};
  if (!x.device().is_cpu() || device::is_captured()) {  // read in each replay
    source.from = x.data_ptr();
    return source;
  }
  source.value = visit_floating(x.dtype(), [&]<class T>(Type<T>) {
    return static_cast<double>(static_cast<Accumulate<T>>(*static_cast<const T*>(x.data_ptr())));
  });
  return source;
}

namespace {
constexpr int kMostFlags = 5, kMostSettings = 12;  // every combination of them is tried
}

bool is_recordable(const AnyRule& rule) {
  const int flags = rule.flags();
  return flags == 0 || (flags > 0 && flags <= kMostFlags && rule.info().settings <= kMostSettings);
}

void require_recordable(const AnyRule& rule) {
  const int flags = rule.flags();
  require<ValueError>(is_recordable(rule),
                      "rule '{}' cannot be compiled; got a Hyper with {} and {} settings that may change; expected "
                      "numbers and at most {} bools behind them, and with bools at most {} settings; or take another "
                      "execution",
                      rule.info().name, flags < 0 ? "members of other types" : fmt::format("{} flags", flags),
                      rule.info().settings, kMostFlags, kMostSettings);
}

std::unique_ptr<kernels::RecordedRule> record_rule(const AnyRule& rule, const HyperBlocks& blocks, bool f64) {
  using kernels::recording::Node, kernels::recording::Recorder, kernels::recording::Symbol;
  const RuleInfo& info = rule.info();
  const DType compute = f64 ? kF64 : kF32;
  auto made = std::make_unique<kernels::RecordedRule>();
  made->name = info.name, made->states = info.states, made->compute = compute, made->block = blocks.layout();
  for (int k = 0; k < info.states; ++k) made->not_negative |= unsigned{!info.is_signed(k)} << k;
  for (uint32_t flags = 0; flags < 1u << made->block.flags; ++flags) {
    Recorder recorder(compute);
    recorder.share_nodes(true);
    const auto input = [&](Node::From from, int index) { return Symbol(recorder.input(from, index, compute, true)); };
    Symbol values[2 + kMaxStates];
    values[0] = input(Node::From::param, 0);
    values[1] = input(Node::From::grad, 0);
    for (int k = 0; k < info.states; ++k) values[2 + k] = input(Node::From::state, k);
    rule.record_flags(flags, values);
    kernels::RecordedUpdate update{.nodes = std::move(recorder.nodes()), .results = {values[0].term()}};
    for (int k = 0; k < info.states; ++k) update.results.push_back(values[2 + k].term());
    made->updates.push_back(std::move(update));
  }
  return made;
}

void HyperBlocks::expect(const AnyRule& rule) {
  if (recorded_ == nullptr) return;
  if (rule.flags() == 0) {
    recorded_->reachable = 1;
    return;
  }
  for (uint32_t zero = 0; zero < 1u << rule.info().settings; ++zero)
    recorded_->reachable |= 1u << rule.flags_where(zero);
}

bool HyperBlocks::prepare_recorded(const kernels::StepCall& call, const Stream& stream) {
  return recorded_ != nullptr &&
         kernels::backend(device_).optim->prepare_recorded(*recorded_, recorded_blocks(), call, stream);
}

HyperBlocks::Advance HyperBlocks::step_recorded(const kernels::StepCall& call, const Stream& stream) const {
  kernels::backend(device_).optim->step_recorded(*recorded_, recorded_blocks(), call, stream);
  return {call.first_block, call.block_count, call.grad_factor};
}

void HyperBlocks::reserve(int64_t bytes) {
  const int64_t room = memory_.defined() ? memory_.numel() / bytes : 0;
  if (count_ < room) return;
  const Tensor larger = zeros({std::max<int64_t>(8, 2 * room) * bytes}, {.dtype = kU8, .device = device_});
  if (room > 0) larger.narrow(0, 0, room * bytes).copy_(memory_);
  memory_ = larger;
}

void HyperBlocks::copy_last(int64_t bytes, int from) {
  memory_.narrow(0, count_ * bytes, bytes).copy_(memory_.narrow(0, from * bytes, bytes));
}

Tensor HyperBlocks::on_host() const { return memory_.to(kCPU); }

namespace {

/// The users' rules whose steps were announced. A rule's number is its index here, plus the number of Lorry's rules.
struct UserRules {
  std::mutex mutex;
  std::vector<const RuleInfo*> rules;  ///< null: the rule's code was unloaded

  /// Is never destroyed: a RuleInfo, which is static, may be destroyed later.
  static UserRules& get() {
    static UserRules* const rules = new UserRules();
    return *rules;
  }
};

constexpr int kLorrysRules = formula::Rules::kCount;

const RuleInfo& built_in_rule(int index) {
  const RuleInfo* found = nullptr;
  formula::Rules::each([&]<class Rule>() {
    if (formula::Rules::index<Rule>() == index) found = &TypedRule<Rule>(formula::SettingsOf<Rule>()).info();
  });
  return *found;
}

}  // namespace

RuleInfo::~RuleInfo() {
  UserRules& users = UserRules::get();
  const std::scoped_lock lock(users.mutex);
  std::ranges::replace(users.rules, static_cast<const RuleInfo*>(this), nullptr);
}

int rule_number(const RuleInfo& rule) {
  int built_in = -1;
  formula::Rules::each([&]<class Rule>() {
    if (&TypedRule<Rule>(formula::SettingsOf<Rule>()).info() == &rule) built_in = formula::Rules::index<Rule>();
  });
  if (built_in >= 0) return built_in;
  UserRules& users = UserRules::get();
  const std::scoped_lock lock(users.mutex);
  const auto known = std::ranges::find(users.rules, &rule);
  const auto index = static_cast<int>(known - users.rules.begin());
  if (known == users.rules.end()) users.rules.push_back(&rule);
  return kLorrysRules + index;
}

const RuleInfo& rule_of(int number) {
  if (number >= 0 && number < kLorrysRules) return built_in_rule(number);
  UserRules& users = UserRules::get();
  const std::scoped_lock lock(users.mutex);
  const auto index = static_cast<size_t>(std::max(number, 0)) - kLorrysRules;
  require<ValueError>(number >= 0 && index < users.rules.size() && users.rules[index] != nullptr,
                      "run: no rule has this number; got {}; expected that of a step that this process announced",
                      number);
  return *users.rules[index];
}

bool can_run_again(const AnyRule& rule, const HyperBlocks& blocks, Device device) {
  return blocks.has_kernels() || (is_recordable(rule) && kernels::backend(device).optim->compiles());
}

std::unique_ptr<HyperBlocks> make_blocks_to_run_again(const RuleInfo& rule, Device device, bool f64) {
  auto blocks = rule.make_blocks(device, f64);
  if (blocks->has_kernels()) return blocks;
  const auto any_settings = rule.make();
  require_recordable(*any_settings);
  auto recorded = record_rule(*any_settings, *blocks, f64);
  for (size_t u = 0; u < recorded->updates.size(); ++u)
    recorded->reachable |= 1u << u;  // hyper blocks may have any flags
  blocks->use_recorded(std::move(recorded));
  return blocks;
}

std::unique_ptr<HyperBlocks> make_built_in_blocks(int index, Device device, bool f64) {
  std::unique_ptr<HyperBlocks> blocks;
  formula::Rules::each([&]<class Rule>() {
    if (formula::Rules::index<Rule>() != index) return;
    if (f64)
      blocks = std::make_unique<TypedHyperBlocks<BackendKernels<Rule>, double>>(device);
    else
      blocks = std::make_unique<TypedHyperBlocks<BackendKernels<Rule>, float>>(device);
  });
  return blocks;
}

}  // namespace detail
}  // namespace lorry::optim
