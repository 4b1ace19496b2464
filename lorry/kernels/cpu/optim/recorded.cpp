#include "lorry/kernels/cpu/optim/recorded.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "lorry/formula/clip.h"
#include "lorry/kernels/common/recorded_rule.h"
#include "lorry/kernels/cpu/optim/step.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"

namespace lorry::kernels::cpu {
namespace {

using recording::Node;
using recording::Term;

constexpr int64_t kBytes = 2048;  ///< of a value of a block: about ten of them fill half of the first-level cache

/// A recorded update as a list of function calls.
struct Code {
  /// The memory of a value.
  struct Operand {
    enum Kind : uint8_t {
      array,  ///< of the call: the parameter, the gradient, the states
      slot,   ///< a value of this block
      number  ///< one value for all elements, repeated to fill a vector
    } kind = number;
    int index = 0;
    bool operator==(const Operand&) const = default;
  };
  struct Operation {
    BlockFunction function = nullptr;  ///< null: in[0] is copied
    int arity = 1;
    Operand in[kMaxArity] = {};
    Operand out = {};
  };
  /// A number: a constant, or one of the hyper block's numbers (of_hyper: its index; -1: a constant).
  struct Number {
    double constant = 0;
    int of_hyper = -1;
  };
  std::vector<Number> given;          ///< the first numbers; operations compute the others
  std::vector<Operation> of_numbers;  ///< done once for a run of elements
  std::vector<Operation> of_arrays;   ///< done for every block
  std::vector<Operand> results;       ///< the parameter, then the states; an array if it does not change
  int numbers = 0, slots = 0;
};

/// Makes the code of an update. Number 0 is the factor of the gradients.
class CodeMaker {
 public:
  CodeMaker(const RecordedRule& rule, const RecordedUpdate& update) : rule_(rule), update_(update) {}

  Code make() {
    code_.given.push_back({});
    where_.resize(update_.nodes.size());
    needed_ = update_.needed();
    const std::vector<size_t> last = last_uses();
    for (size_t n = 0; n < update_.nodes.size(); ++n)
      if (needed_[n]) add(n, last);
    add_results();
    code_.numbers = static_cast<int>(code_.given.size());
    for (Code::Operation& x : code_.of_numbers) number_operands(x);
    for (Code::Operation& x : code_.of_arrays) number_operands(x);
    for (Code::Operand& x : code_.results) number_operand(x);
    code_.numbers += made_numbers_;
    return std::move(code_);
  }

 private:
  using Operand = Code::Operand;
  /// Numbers that operations compute are counted from here until the number of given ones is known.
  static constexpr int kMade = 1 << 20;

  /// The last node that reads each node; results are read at the end.
  std::vector<size_t> last_uses() const {
    std::vector<size_t> last(update_.nodes.size(), 0);
    for (size_t n = 0; n < update_.nodes.size(); ++n)
      if (needed_[n])
        for (int k = 0; k < update_.nodes[n].arity; ++k)
          if (const Term& x = update_.nodes[n].in[static_cast<size_t>(k)]; !x.is_constant())
            last[static_cast<size_t>(x.node)] = n;
    for (const Term& x : update_.results)
      if (!x.is_constant()) last[static_cast<size_t>(x.node)] = update_.nodes.size();
    return last;
  }

  void add(size_t n, const std::vector<size_t>& last) {
    const Node& node = update_.nodes[n];
    switch (node.from) {
      case Node::From::param:
        where_[n] = {Operand::array, 0};
        return;
      case Node::From::grad: {  // multiplied by the factor first
        where_[n] = new_slot(last[n]);
        code_.of_arrays.push_back(
            {function(Pointwise::mul), 2, {{Operand::array, 1}, {Operand::number, 0}}, where_[n]});
        return;
      }
      case Node::From::state:
        where_[n] = {Operand::array, 2 + node.index};
        return;
      case Node::From::hyper:
        where_[n] = given({0, node.index});
        return;
      default:
        break;
    }
    Code::Operation x{.function = function(node.op), .arity = node.arity};
    for (int k = 0; k < node.arity; ++k) x.in[k] = operand(node.in[static_cast<size_t>(k)]);
    if (node.array) {
      free_slots(n);
      x.out = new_slot(last[n]);
    } else {
      x.out = {Operand::number, kMade + made_numbers_++};
    }
    where_[n] = x.out;
    (node.array ? code_.of_arrays : code_.of_numbers).push_back(x);
  }

  /// A result that is another array or a number is copied into a slot first: the array may be overwritten by another
  /// result.
  void add_results() {
    free_slots(update_.nodes.size() - 1);
    for (size_t k = 0; k < update_.results.size(); ++k) {
      Operand from = operand(update_.results[k]);
      const Operand own{Operand::array, k == 0 ? 0 : static_cast<int>(k) + 1};
      const bool is_other_array = from.kind == Operand::array && !(from == own);
      if (is_other_array || from.kind == Operand::number) {
        const Operand copy = new_slot(update_.nodes.size());
        code_.of_arrays.push_back({nullptr, 1, {from}, copy});
        from = copy;
      }
      code_.results.push_back(from);
    }
  }

  Operand operand(const Term& x) {
    return x.is_constant() ? given({x.constant, -1}) : where_[static_cast<size_t>(x.node)];
  }
  Operand given(const Code::Number& number) {
    code_.given.push_back(number);
    return {Operand::number, static_cast<int>(code_.given.size()) - 1};
  }
  void number_operand(Operand& x) const {
    if (x.kind == Operand::number && x.index >= kMade) x.index += code_.numbers - kMade;
  }
  void number_operands(Code::Operation& x) const {
    for (int k = 0; k < x.arity; ++k) number_operand(x.in[k]);
    number_operand(x.out);
  }

  /// A slot until node `last` has read it. It may be that of an operand of the operation that writes it.
  Operand new_slot(size_t last) {
    const auto free = std::ranges::find(busy_until_, kFree);
    const auto at = static_cast<int>(free - busy_until_.begin());
    if (free == busy_until_.end()) busy_until_.push_back(kFree);
    busy_until_[static_cast<size_t>(at)] = last;
    code_.slots = static_cast<int>(busy_until_.size());
    return {Operand::slot, at};
  }
  void free_slots(size_t n) {
    for (size_t& last : busy_until_)
      if (last != kFree && last <= n) last = kFree;
  }

  BlockFunction function(Pointwise op) const {
    const BlockFunctions& row = block_functions()[static_cast<size_t>(op)];
    return rule_.compute == kF64 ? row.f64 : row.f32;
  }

  static constexpr size_t kFree = static_cast<size_t>(-1);
  const RecordedRule& rule_;
  const RecordedUpdate& update_;
  Code code_;
  std::vector<bool> needed_;
  std::vector<Operand> where_;
  std::vector<size_t> busy_until_;  ///< of each slot: the last node that reads it
  int made_numbers_ = 0;
};

/// The codes of a rule's updates, as far as hyper blocks may need them.
struct Codes final : RecordedRule::OnDevice {
  std::vector<Code> of_update;
  uint32_t made = 0;  ///< bit u: the code of update u is there
};

/// The codes of a rule. Makes those that are reachable and missing.
const std::vector<Code>& codes_of(const RecordedRule& rule) {
  if (rule.on_device == nullptr) rule.on_device = std::make_unique<Codes>();
  auto& codes = static_cast<Codes&>(*rule.on_device);
  codes.of_update.resize(rule.updates.size());
  for (size_t u = 0; codes.made != rule.reachable && u < rule.updates.size(); ++u) {
    const uint32_t bit = 1u << u;
    if ((rule.reachable & ~codes.made & bit) == 0) continue;
    codes.of_update[u] = CodeMaker(rule, rule.updates[u]).make();
    codes.made |= bit;
  }
  return codes.of_update;
}

template <class C>
class RecordedRun final : public formula::RuleRun {
 public:
  RecordedRun(const RecordedRule& rule, RecordedBlocks blocks)
      : RuleRun(rule.states, rule.not_negative), rule_(rule), blocks_(blocks.bytes), codes_(codes_of(rule)) {}

  void step(uint32_t block, void* param, const void* grad, void* const* states, int64_t n,
            double factor) const override {
    const Code& code = codes_[update_of(block)];
    Run run{.code = code, .arrays = {param, const_cast<void*>(grad)}};
    std::copy(states, states + rule_.states, run.arrays + 2);
    thread_local std::vector<Splat> numbers;
    thread_local std::vector<Slot> slots;
    numbers.resize(static_cast<size_t>(code.numbers));
    slots.resize(static_cast<size_t>(code.slots));
    run.numbers = numbers.data(), run.slots = slots.data();
    compute_numbers(run, block, factor);
    for (int64_t begin = 0; begin < n; begin += kLength) run_block(run, begin, std::min(kLength, n - begin));
  }
  double steps(uint32_t block) const override { return read<double>(block, rule_.block.next_steps); }
  void advance(int32_t, int32_t, const double*) const override {}

 private:
  using Operand = Code::Operand;
  static constexpr int64_t kLength = kBytes / static_cast<int64_t>(sizeof(C)),
                           kSplat = kSplatBytes / static_cast<int64_t>(sizeof(C));
  struct alignas(64) Splat {
    C values[kSplat];
  };
  struct alignas(64) Slot {
    C values[kLength];
  };
  struct Run {
    const Code& code;
    void* arrays[kMaxArrays] = {};
    Splat* numbers = nullptr;
    Slot* slots = nullptr;

    C* at(const Operand& x, int64_t begin) const {
      const auto i = static_cast<size_t>(x.index);
      if (x.kind == Operand::array) return static_cast<C*>(arrays[i]) + begin;
      return x.kind == Operand::slot ? slots[i].values : numbers[i].values;
    }
  };

  template <class T>
  T read(uint32_t block, int64_t offset) const {
    T value;
    std::memcpy(&value, blocks_ + block * rule_.block.bytes + offset, sizeof(T));
    return value;
  }
  size_t update_of(uint32_t block) const {
    const formula::detail::HyperBlockLayout& layout = rule_.block;
    const int64_t flags = layout.hyper + layout.numbers * int64_t{sizeof(C)};
    size_t update = 0;
    for (int k = 0; k < layout.flags; ++k) update |= size_t{read<bool>(block, flags + k)} << k;
    return update;
  }

  void compute_numbers(const Run& run, uint32_t block, double factor) const {
    for (size_t k = 0; k < run.code.given.size(); ++k) {
      const Code::Number& x = run.code.given[k];
      const C value = k == 0            ? formula::multiplier(static_cast<C>(factor))
                      : x.of_hyper >= 0 ? read<C>(block, rule_.block.hyper + x.of_hyper * int64_t{sizeof(C)})
                                        : static_cast<C>(x.constant);
      std::ranges::fill(run.numbers[k].values, value);
    }
    for (const Code::Operation& x : run.code.of_numbers) apply(run, x, 0, kSplat);
  }

  static void apply(const Run& run, const Code::Operation& x, int64_t begin, int64_t n) {
    const void* in[kMaxArity] = {};
    int64_t step[kMaxArity] = {};
    for (int k = 0; k < x.arity; ++k) {
      in[k] = run.at(x.in[k], begin);
      step[k] = x.in[k].kind == Operand::number && x.out.kind != Operand::number ? 0 : 1;
    }
    C* const out = run.at(x.out, begin);
    if (x.function != nullptr) return x.function(in, step, out, n);
    const auto* const from = static_cast<const C*>(in[0]);
    for (int64_t i = 0; i < n; ++i) out[i] = from[step[0] * i];
  }

  void run_block(const Run& run, int64_t begin, int64_t n) const {
    for (const Code::Operation& x : run.code.of_arrays) apply(run, x, begin, n);
    for (size_t k = 0; k < run.code.results.size(); ++k)
      if (const Operand& x = run.code.results[k]; x.kind == Operand::slot)
        std::memcpy(static_cast<C*>(run.arrays[k == 0 ? 0 : k + 1]) + begin, run.at(x, 0),
                    static_cast<size_t>(n) * sizeof(C));
  }

  const RecordedRule& rule_;
  const std::byte* blocks_;
  const std::vector<Code>& codes_;
};

}  // namespace

bool prepare_recorded(const RecordedRule& rule, RecordedBlocks, const StepCall&, const Stream&) {
  codes_of(rule);
  return true;
}

void step_recorded(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call, const Stream&) {
  if (rule.compute == kF64)
    step_list(call, RecordedRun<double>(rule, blocks));
  else
    step_list(call, RecordedRun<float>(rule, blocks));
}

}  // namespace lorry::kernels::cpu
