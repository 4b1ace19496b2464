#include "lorry/kernels/recorded_calls.h"

#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lorry/device/capture.h"
#include "lorry/device/cpu/calls.h"
#include "lorry/kernels/common/kernel_table.h"
#include "lorry/kernels/common/recorded_rule.h"
#include "lorry/kernels/optim.h"
#include "lorry/kernels/paged.h"
#include "lorry/kernels/quantize.h"
#include "lorry/kernels/tokens.h"

namespace lorry::kernels {
namespace {

// ---- the addresses in arguments -------------------------------------------------------------------------------------

void visit(AddressVisitor& v, const Array& x) { v(x.data); }
void visit(AddressVisitor& v, const IndexTerm& x) { v(x.index.data); }
void visit(AddressVisitor& v, const RandomKey& x) { x.addresses(v); }
void visit(AddressVisitor& v, const NumberSource& x) { v(x.from); }
void visit(AddressVisitor& v, const RecordedBlocks& x) { v(x.bytes); }
void visit(AddressVisitor& v, const FoldArgs& x) { v(x.out.data, x.x.data); }
void visit(AddressVisitor& v, const MomentArgs& x) { v(x.mean.data, x.variance.data, x.x.data); }
void visit(AddressVisitor& v, const RangeArgs& x) { v(x.smallest.data, x.largest.data, x.x.data); }
void visit(AddressVisitor& v, const LinearCodes& x) { v(x.codes.data, x.x.data, x.scale, x.zero_point); }
void visit(AddressVisitor& v, const BlockCodes& x) { v(x.codes.data, x.scales.data, x.x.data); }
void visit(AddressVisitor& v, const ExtremumArgs& x) { v(x.values.data, x.indices.data, x.x.data); }
void visit(AddressVisitor& v, const ScanArgs& x) { v(x.out.data, x.x.data); }
void visit(AddressVisitor& v, const NormArgs& x) {
  v(x.out.data, x.x.data, x.weight.data, x.bias.data, x.mean.data, x.rstd.data);
}
void visit(AddressVisitor& v, const NormBackwardArgs& x) {
  v(x.grad_x.data, x.grad_weight.data, x.grad_bias.data, x.grad.data, x.x.data, x.weight.data, x.mean.data, x.rstd.data,
    x.addend.data, x.sum.data);
}
void visit(AddressVisitor& v, const ClassArgs& x) { v(x.x.data, x.target.data, x.weight.data); }
void visit(AddressVisitor& v, const MatmulArgs& x) { v(x.out.data, x.a.data, x.b.data, x.c.data); }
void visit(AddressVisitor& v, const MatmulEpilogue& x) { v(x.aux, x.sums); }
void visit(AddressVisitor& v, const TakeArgs& x) { v(x.out.data, x.source.data, x.index.data); }
void visit(AddressVisitor& v, const NonzeroArgs& x) { v(x.out.data, x.x.data, x.count); }
void visit(AddressVisitor& v, const PutArgs& x) { v(x.target.data, x.source.data, x.index.data); }
void visit(AddressVisitor& v, const AttentionArgs& x) {
  v(x.q.data, x.k.data, x.v.data, x.out.data, x.logsumexp.data, x.mask.data, x.key);
}
void visit(AddressVisitor& v, const AttentionGrads& x) {
  v(x.grad_out.data, x.grad_q.data, x.grad_k.data, x.grad_v.data);
}
void visit(AddressVisitor& v, const RotaryArgs& x) { v(x.out.data, x.x.data, x.cos.data, x.sin.data); }
void visit(AddressVisitor& v, const LinearRowsArgs& x) { v(x.out.data, x.x.data, x.weight.data, x.bias.data); }
void visit(AddressVisitor& v, const LinearRowsNeighbours& x) {
  v(x.norm_weight.data, x.norm_bias.data, x.addend.data, x.cache.k_cache.data, x.cache.v_cache.data,
    x.cache.rows.block_table.data, x.cache.rows.slots.data, x.cache.rows.positions.data);
}
void visit(AddressVisitor& v, const PagedRows& x) { v(x.block_table.data, x.slots.data, x.positions.data); }
void visit(AddressVisitor& v, const PagedWrite& x) {
  v(x.k_cache.data, x.v_cache.data, x.k.data, x.v.data);
  visit(v, x.rows);
}
void visit(AddressVisitor& v, const PagedAttention& x) {
  v(x.out.data, x.q.data, x.k_cache.data, x.v_cache.data);
  visit(v, x.rows);
}
void visit(AddressVisitor& v, const TokenSampling& x) {
  v(x.out.data, x.logits.data, x.temperature.data, x.top_k.data, x.top_p.data, x.uniform.data);
}
void visit(AddressVisitor& v, const TokenPenalty& x) {
  v(x.out.data, x.logits.data, x.seen.data, x.slots.data, x.penalty.data);
}
void visit(AddressVisitor& v, const SequenceAdvance& x) {
  v(x.next.data, x.tokens.data, x.positions.data, x.slots.data, x.drawn.data, x.uniform.data, x.outputs.data,
    x.seen.data, x.limits.data, x.keys.data, x.stops.data);
}
void visit(AddressVisitor& v, const NormEnd& x) { v(x.scale, x.factor); }
void visit(AddressVisitor& v, const NormFinishCall& x) {
  v(x.sum, x.total);
  visit(v, x.end);
}
void visit(AddressVisitor& v, const List& list) {
  for (const ListEntry& entry : list.entries()) v(entry.at);
}
void visit(AddressVisitor&, const Stream&) {}
template <class T>
requires(std::is_pointer_v<T>) void visit(AddressVisitor& v, const T& address) { v(address); }
template <class T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void visit(AddressVisitor&, const T&) {}

template <class T>
concept Listed = requires(AddressVisitor& v, const T& x) {
  visit(v, x);
};

// ---- copies of arguments --------------------------------------------------------------------------------------------

/// A copy of an argument, which owns what the argument refers to but tensors' memory.
template <class T>
class Copy {
 public:
  explicit Copy(const T& x) : value_(x) {}
  const T& get() const { return value_; }
  void addresses(AddressVisitor& v) const { visit(v, value_); }

 private:
  T value_;
};

/// Copies stay where they are made: calls refer to them.
struct Fixed {
  Fixed() = default;
  Fixed(const Fixed&) = delete;
  Fixed& operator=(const Fixed&) = delete;
};

List copy_of(const List& list) {
  std::vector<DType> dtypes;
  for (int a = 0; a < list.arrays(); ++a) dtypes.push_back(list.dtype(a));
  List copy(list.device(), dtypes, list.strategy());
  for (const ListEntry& entry : list.entries()) copy.add(entry);
  return copy;
}

template <>
class Copy<List> : Fixed {
 public:
  explicit Copy(const List& list) : list_(copy_of(list)) {}
  const List& get() const { return list_; }
  void addresses(AddressVisitor& v) const { visit(v, list_); }

 private:
  const List list_;
};

template <>
class Copy<PointwiseCall> : Fixed {
 public:
  explicit Copy(const PointwiseCall& call) : call_(call) {
    own(call_.out, 0);
    for (int k = 0; k < call.arity; ++k) own(call_.in[k], k + 1);
  }
  const PointwiseCall& get() const { return call_; }
  void addresses(AddressVisitor& v) const {
    v(call_.out.data);
    for (int k = 0; k < call_.arity; ++k)
      if (call_.in[k].layout != nullptr) v(call_.in[k].data);
  }

 private:
  void own(PointwiseOperand& x, int at) {
    if (x.layout != nullptr) {
      layouts_[at] = *x.layout;
      x.layout = &layouts_[at];
    } else {
      std::memcpy(&numbers_[at], x.data, static_cast<size_t>(size_of(x.dtype)));
      x.data = &numbers_[at];
    }
  }

  PointwiseCall call_;
  Layout layouts_[5];
  FusedNumber numbers_[5] = {};
};

template <>
class Copy<ListPointwiseCall> : Fixed {
 public:
  explicit Copy(const ListPointwiseCall& call)
      : list_(call.list), call_{call.op,
                                call.compute,
                                call.arity,
                                list_.get(),
                                {call.in[0], call.in[1], call.in[2], call.in[3]},
                                call.unless_nan} {}
  const ListPointwiseCall& get() const { return call_; }
  void addresses(AddressVisitor& v) const {
    list_.addresses(v);
    v(call_.unless_nan);
    for (const ListOperand& x : call_.in)
      if (x.kind == ListOperand::Kind::values) v(x.values);
  }

 private:
  const Copy<List> list_;
  const ListPointwiseCall call_;
};

template <>
class Copy<ListNormCall> : Fixed {
 public:
  explicit Copy(const ListNormCall& call) : call_(call) {
    for (const List* list : call.lists) lists_.push_back(std::make_unique<const List>(copy_of(*list)));
    for (const auto& list : lists_) pointers_.push_back(list.get());
    call_.lists = pointers_;
  }
  const ListNormCall& get() const { return call_; }
  void addresses(AddressVisitor& v) const {
    for (const auto& list : lists_) visit(v, *list);
    v(call_.sum, call_.total, call_.per_tensor);
    visit(v, call_.end);
  }

 private:
  std::vector<std::unique_ptr<const List>> lists_;
  std::vector<const List*> pointers_;
  ListNormCall call_;
};

template <>
class Copy<StepCall> : Fixed {
 public:
  explicit Copy(const StepCall& call)
      : list_(call.list), call_{list_.get(),     call.first_block, call.block_count, call.masters,
                                call.zero_grads, call.grad_factor, call.seed,        call.first_element} {}
  const StepCall& get() const { return call_; }
  void addresses(AddressVisitor& v) const {
    list_.addresses(v);
    v(call_.grad_factor);
  }

 private:
  const Copy<List> list_;
  const StepCall call_;
};

template <>
class Copy<CompressedCall> : Fixed {
 public:
  explicit Copy(const CompressedCall& call)
      : list_(call.list), call_{list_.get(), call.type,  call.is_signed,     call.grad_factor,
                                call.seed,   call.array, call.first_element, call.steps} {}
  const CompressedCall& get() const { return call_; }
  void addresses(AddressVisitor& v) const {
    list_.addresses(v);
    v(call_.grad_factor, call_.steps);
  }

 private:
  const Copy<List> list_;
  const CompressedCall call_;
};

template <Listed T>
class Copy<std::span<const T>> : Fixed {
 public:
  explicit Copy(std::span<const T> all) : values_(all.begin(), all.end()) {}
  std::span<const T> get() const { return values_; }
  void addresses(AddressVisitor& v) const {
    for (const T& x : values_) visit(v, x);
  }

 private:
  const std::vector<T> values_;
};

/// Without the device's cached form, which is made again.
template <>
class Copy<RecordedRule> : Fixed {
 public:
  explicit Copy(const RecordedRule& rule)
      : rule_{.name = rule.name,
              .states = rule.states,
              .not_negative = rule.not_negative,
              .compute = rule.compute,
              .block = rule.block,
              .updates = rule.updates,
              .reachable = rule.reachable} {}
  const RecordedRule& get() const { return rule_; }
  void addresses(AddressVisitor&) const {}

 private:
  const RecordedRule rule_;
};

template <class T, class... Others>
inline constexpr bool kIsAmong = (std::is_same_v<T, Others> || ...);
template <class T>
inline constexpr bool kCopied =
    Listed<T> ||
    kIsAmong<T, List, PointwiseCall, ListPointwiseCall, ListNormCall, StepCall, CompressedCall, RecordedRule>;
template <class T>
inline constexpr bool kCopied<std::span<const T>> = Listed<T>;
/// What cannot be repeated: the host sets numbers.
template <class T>
inline constexpr bool kSetsNumbers = false;
template <class Rule>
inline constexpr bool kSetsNumbers<std::span<const formula::HyperBlockChange<Rule>>> = true;

// ---- recorded calls -------------------------------------------------------------------------------------------------

bool is_same(const OutOfRange& a, const OutOfRange& b) { return a.position == b.position; }
template <class T>
bool is_same(const T& a, const T& b) {
  return a == b;
}

/// What a kernel returns to the host decides what the host does next, so it must be what it was.
template <class Result>
void require_same(const Result& was, const Result& now) {
  if (!is_same(was, now))
    raise_as<CaptureError>(running_or("replay"),
                           "a check of its operands ends otherwise than while the graph was captured; expected "
                           "operands that pass it; call the function without a graph to see what is wrong");
}

template <class Result, class... Arguments>
class KernelCall final : public lorry::cpu::Call {
 public:
  using Kernel = Result (*)(Arguments...);
  using Returned = std::conditional_t<std::is_void_v<Result>, std::tuple<>, Result>;

  KernelCall(Kernel kernel, Returned returned, const std::remove_cvref_t<Arguments>&... arguments)
      : kernel_(kernel), returned_(std::move(returned)), copies_(arguments...) {}

  void run() const override {
    std::apply(
        [&](const auto&... x) {
          if constexpr (std::is_void_v<Result>)
            kernel_(x.get()...);
          else
            require_same(returned_, kernel_(x.get()...));
        },
        copies_);
  }
  void addresses(AddressVisitor& v) const override {
    std::apply([&](const auto&... x) { (x.addresses(v), ...); }, copies_);
  }

 private:
  const Kernel kernel_;
  const Returned returned_;
  const std::tuple<Copy<std::remove_cvref_t<Arguments>>...> copies_;
};

/// A fill: the number lies in the host's memory.
template <class Target, class... Rest>
class KernelCall<void, Target, const void*, DType, Rest...> final : public lorry::cpu::Call {
 public:
  using Kernel = void (*)(Target, const void*, DType, Rest...);
  KernelCall(Kernel kernel, std::tuple<>, const std::remove_cvref_t<Target>& to, const void* value, DType dtype,
             const std::remove_cvref_t<Rest>&... rest)
      : kernel_(kernel), to_(to), dtype_(dtype), rest_(rest...) {
    std::memcpy(&number_, value, static_cast<size_t>(size_of(dtype)));
  }
  void run() const override {
    std::apply([&](const auto&... x) { kernel_(to_.get(), &number_, dtype_, x...); }, rest_);
  }
  void addresses(AddressVisitor& v) const override { to_.addresses(v); }

 private:
  const Kernel kernel_;
  const Copy<std::remove_cvref_t<Target>> to_;
  FusedNumber number_ = {};
  const DType dtype_;
  const std::tuple<std::remove_cvref_t<Rest>...> rest_;
};

/// Terms are an array in the host's memory.
template <>
class KernelCall<void, const Array&, const IndexTerm*, int, Stream> final : public lorry::cpu::Call {
 public:
  using Kernel = void (*)(const Array&, const IndexTerm*, int, Stream);
  KernelCall(Kernel kernel, std::tuple<>, const Array& out, const IndexTerm* terms, int count, Stream stream)
      : kernel_(kernel), out_(out), terms_(terms, terms + count), stream_(stream) {}
  void run() const override { kernel_(out_, terms_.data(), static_cast<int>(terms_.size()), stream_); }
  void addresses(AddressVisitor& v) const override {
    visit(v, out_);
    for (const IndexTerm& term : terms_) visit(v, term);
  }

 private:
  const Kernel kernel_;
  const Array out_;
  const std::vector<IndexTerm> terms_;
  const Stream stream_;
};

template <class T>
inline constexpr bool kIsStream = std::is_same_v<std::remove_cvref_t<T>, Stream>;

/// Calls a kernel and records the call. Functions without a stream only answer questions and are not recorded.
template <class Result, class... Arguments>
Result call_and_record(Result (*kernel)(Arguments...), Arguments... arguments) {
  using Call = KernelCall<Result, Arguments...>;
  lorry::cpu::Calls& calls = *lorry::cpu::recorded_calls();
  calls.before_call();
  const lorry::cpu::RecordCalls not_inside(nullptr);  // kernels that the kernel calls are part of it
  if constexpr (!(kIsStream<Arguments> || ...)) {
    return kernel(arguments...);
  } else if constexpr ((kSetsNumbers<std::remove_cvref_t<Arguments>> || ...)) {
    device::refuse_capture("capture", "an optimizer's settings are set on the CPU",
                           "make one step before the capture, and set numbers between replays");
  } else if constexpr (!(kCopied<std::remove_cvref_t<Arguments>> && ...)) {
    static_assert(sizeof(Call) == 0, "an argument needs a visit() above");
  } else if constexpr (std::is_void_v<Result>) {
    kernel(arguments...);
    calls.add(std::make_unique<Call>(kernel, std::tuple<>(), arguments...));
  } else {
    const Result result = kernel(arguments...);
    calls.add(std::make_unique<Call>(kernel, result, arguments...));
    return result;
  }
}

// ---- tables ---------------------------------------------------------------------------------------------------------

// A table's functions are its first members, all pointers of one size. They are read and written by number.

using AnyKernel = void (*)();

template <class Table>
const Table* g_real = nullptr;

template <class Table>
void* slot(Table& table, size_t i) {
  return reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<Table>*>(&table)) + i * sizeof(AnyKernel);
}

/// Kernel functions that call and record those of a table.
template <class Table>
struct Recording {
  template <size_t i>
  struct Slot {
    template <class Result, class... Arguments>
    using Kernel = Result (*)(Arguments...);

    template <class Result, class... Arguments>
    constexpr operator Kernel<Result, Arguments...>() const {
      return [](Arguments... arguments) -> Result {
        Kernel<Result, Arguments...> kernel;
        std::memcpy(&kernel, slot(*g_real<Table>, i), sizeof kernel);
        return call_and_record<Result, Arguments...>(kernel, arguments...);
      };
    }
  };
};

/// The table with recording functions in the place of those that it has.
template <class Table>
Table recording(const Table& real) {
  g_real<Table> = &real;
  Table result = real;
  const Table recorded = filled<Table, Recording<Table>::template Slot>();
  for (size_t i = 0; i < function_count<Table, Recording<Table>::template Slot>(); ++i) {
    AnyKernel kernel;
    std::memcpy(&kernel, slot(real, i), sizeof kernel);
    if (kernel != nullptr) std::memcpy(slot(result, i), slot(recorded, i), sizeof kernel);
  }
  return result;
}

template <class Table>
const Table* recorded_form(const Table* real) {
  static const Table kTable = recording(*real);
  return &kTable;
}

/// Steps of optimizers: tables for each rule, then functions of all rules.
struct RulesApart {
  void (*step_rule)(const StepCall&, const formula::RuleRun&);
  void (*decompress)(const CompressedCall&, const Stream&);
  void (*compress)(const CompressedCall&, const Stream&);
  bool (*prepare_recorded)(const RecordedRule&, RecordedBlocks, const StepCall&, const Stream&);
  void (*step_recorded)(const RecordedRule&, RecordedBlocks, const StepCall&, const Stream&);
};

const OptimKernels& recording_optim(const OptimKernels& real) {
  static const RulesApart kReal{real.step_rule, real.decompress, real.compress, real.prepare_recorded,
                                real.step_recorded};
  static const OptimKernels kTable = [&] {
    OptimKernels made = real;
    formula::Rules::each([&]<class Rule>() {
      RuleTable<Rule>& rule = made.rules.of<Rule>();
      rule.f32 = recording(real.rules.of<Rule>().f32);
      rule.f64 = recording(real.rules.of<Rule>().f64);
    });
    const RulesApart apart = recording(kReal);
    made.step_rule = apart.step_rule, made.decompress = apart.decompress, made.compress = apart.compress;
    made.prepare_recorded = apart.prepare_recorded, made.step_recorded = apart.step_recorded;
    return made;
  }();
  return kTable;
}

class FusedCallAgain final : public lorry::cpu::Call {
 public:
  FusedCallAgain(std::shared_ptr<const FusedKernel> kernel, std::span<void* const> inputs,
                 std::span<void* const> outputs, Stream stream)
      : kernel_(std::move(kernel)),
        inputs_(inputs.begin(), inputs.end()),
        outputs_(outputs.begin(), outputs.end()),
        stream_(stream) {}
  void run() const override { kernel_->run(inputs_, outputs_, stream_); }
  void addresses(AddressVisitor& v) const override {
    for (void* const& x : inputs_) v(x);
    for (void* const& x : outputs_) v(x);
  }

 private:
  const std::shared_ptr<const FusedKernel> kernel_;
  const std::vector<void*> inputs_, outputs_;
  const Stream stream_;
};

}  // namespace

const Backend& cpu::recording_table() {
  static const Backend kTable = [] {
    Backend made = table();
    // A family that is added does not compile without being recorded.
    auto& [attention, copy, creation, foreach, fused, indexing, list_norm, loss, matmul, norm, optim, paged, pointwise,
           quantize, random, reduce, rotary, softmax, sort, tokens] = made;
    const auto record = [](auto*&... families) { ((families = recorded_form(families)), ...); };
    record(attention, copy, creation, foreach, indexing, list_norm, loss, matmul, norm, paged, pointwise, quantize,
           random, reduce, rotary, softmax, sort, tokens);
    optim = &recording_optim(*optim);
    static_cast<void>(fused);  // run() records these
    return made;
  }();
  return kTable;
}

bool run(const std::shared_ptr<const FusedKernel>& kernel, std::span<void* const> inputs,
         std::span<void* const> outputs, Stream stream) {
  lorry::cpu::Calls* const calls = lorry::cpu::recorded_calls();
  if (calls != nullptr) calls->before_call();
  {
    const lorry::cpu::RecordCalls not_inside(nullptr);  // kernels that the kernel calls are part of it
    if (!kernel->run(inputs, outputs, stream)) return false;
  }
  if (calls != nullptr && stream.device.is_cpu())
    calls->add(std::make_unique<FusedCallAgain>(kernel, inputs, outputs, stream),
               static_cast<int64_t>(inputs.size_bytes() + outputs.size_bytes()));
  return true;
}

}  // namespace lorry::kernels
