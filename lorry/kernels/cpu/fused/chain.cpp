// Fused calls of f32 over contiguous memory as threaded code (threaded.h).
//
// One value travels in registers. A step whose operand travels takes it from there; other operands are read from the
// inputs, from outputs already stored, or from a slot: four registers' worth of memory that stays in the first-level
// cache. A result that is read later than by the next step is stored when it is made.

#include "lorry/kernels/cpu/fused/chain.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/fused/threaded.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_threaded(ThreadedFunctions& table))

const ThreadedFunctions& threaded_functions() {
  static const ThreadedFunctions all = [] {
    ThreadedFunctions made;
    LORRY_SIMD_CHOOSE(fill_threaded)(made);
    return made;
  }();
  return all;
}

namespace {

constexpr int64_t kGrain = 16384;  ///< elements worth a second thread
constexpr int64_t kWidest = 64;    ///< elements of four of the widest registers

struct alignas(64) Slot {
  float elements[kWidest];
};

/// The steps of one thread: its slots are its own.
class Chain {
 public:
  explicit Chain(const FusedCall& call)
      : call_(call), table_(threaded_functions()), slots_(call.inputs.size() + call.steps.size()) {
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      const FusedOperand& x = call_.inputs[i];
      if (x.layout.rank < 0) converter(x.dtype, kF32)(x.data, 0, slots_[i].elements, 1, kWidest);
    }
    for (size_t s = 0; s < call_.steps.size(); ++s) add(s);
    for (const FusedOutput& x : call_.outputs)
      if (!is_stored_at_once(x)) {
        move(table_.load, slot(static_cast<size_t>(x.from)), 0);
        move(table_.store, static_cast<float*>(x.to.data), -1);
      }
    code_.push_back({.function = table_.end});
  }

  void run(int64_t begin, int64_t end) const { table_.run(code_.data(), begin, end); }

 private:
  float* slot(size_t r) { return slots_[r].elements; }

  /// An output whose memory is an input's is written when nothing reads that any more: at the end.
  bool is_stored_at_once(const FusedOutput& x) const {
    return std::ranges::none_of(call_.inputs, [&](const FusedOperand& in) { return in.data == x.to.data; });
  }
  const FusedOutput* output_of(size_t r) const {
    const auto found = std::ranges::find_if(
        call_.outputs, [&](const FusedOutput& x) { return static_cast<size_t>(x.from) == r && is_stored_at_once(x); });
    return found == call_.outputs.end() ? nullptr : &*found;
  }

  void move(void (*function)(), float* at, int64_t mask) {
    ThreadedStep step;
    step.function = function;
    step.in[0] = at;
    step.mask[0] = mask;
    code_.push_back(step);
  }

  /// Where a register can be read when it does not travel.
  std::pair<float*, int64_t> place(size_t r) {
    if (r < call_.inputs.size() && call_.inputs[r].layout.rank >= 0)
      return {static_cast<float*>(call_.inputs[r].data), -1};
    if (const FusedOutput* x = output_of(r)) return {static_cast<float*>(x->to.data), -1};
    return {slot(r), 0};
  }

  void add(size_t s) {
    const FusedStep& step = call_.steps[s];
    const auto row = table_.rows[static_cast<int>(step.op)];
    int at = -1;
    for (int k = 0; k < step.arity && at < 0; ++k)
      if (step.in[k] == travelling_ && row[k] != nullptr) at = k;
    if (at < 0) {
      at = 0;
      const auto [from, mask] = place(static_cast<size_t>(step.in[0]));
      move(table_.load, from, mask);
    }
    ThreadedStep made;
    made.function = row[at];
    for (int k = 0, next = 0; k < step.arity; ++k) {
      if (k == at) continue;
      std::tie(made.in[next], made.mask[next]) = place(static_cast<size_t>(step.in[k]));
      ++next;
    }
    code_.push_back(made);
    const size_t r = call_.inputs.size() + s;
    travelling_ = static_cast<int16_t>(r);
    if (is_read_from_memory(s, static_cast<int16_t>(r)) || output_of(r) != nullptr) {
      const auto [to, mask] = place(r);
      move(table_.store, to, mask);
    }
    for (const FusedOutput& x : call_.outputs)  // the same value a second time
      if (static_cast<size_t>(x.from) == r && is_stored_at_once(x) && &x != output_of(r))
        move(table_.store, static_cast<float*>(x.to.data), -1);
  }

  /// Whether a result is read otherwise than by the next step, once, as the operand that travels.
  bool is_read_from_memory(size_t s, int16_t r) const {
    for (const FusedOutput& x : call_.outputs)
      if (x.from == r && !is_stored_at_once(x)) return true;
    for (size_t t = s + 1; t < call_.steps.size(); ++t) {
      const FusedStep& step = call_.steps[t];
      const auto reads = std::count(step.in, step.in + step.arity, r);
      if (reads == 0) continue;
      if (t > s + 1 || reads > 1) return true;
      for (int k = 0; k < step.arity; ++k)
        if (step.in[k] == r && table_.rows[static_cast<int>(step.op)][k] == nullptr) return true;
    }
    return false;
  }

  const FusedCall& call_;
  const ThreadedFunctions& table_;
  std::vector<Slot> slots_;
  std::vector<ThreadedStep> code_;
  int16_t travelling_ = -1;
};

bool is_run(const FusedOperand& x) { return x.layout.rank < 0 || x.layout.is_contiguous(); }

}  // namespace

bool is_chain(const FusedCall& call) {
  const auto& rows = threaded_functions().rows;
  return std::ranges::all_of(
             call.inputs, [](const FusedOperand& x) { return is_run(x) && (x.layout.rank < 0 || x.dtype == kF32); }) &&
         std::ranges::all_of(call.steps,
                             [&](const FusedStep& s) {
                               return s.kind == FusedStep::formula && s.compute == kF32 && s.result == kF32 &&
                                      s.dtype == kF32 && rows[static_cast<int>(s.op)][0] != nullptr;
                             }) &&
         std::ranges::all_of(call.outputs, [](const FusedOutput& x) { return is_run(x.to); });
}

int64_t run_chain(const FusedCall& call) {
  const int64_t width = threaded_functions().width;
  int64_t n = 1;
  for (const int64_t size : call.sizes) n *= size;
  const int64_t groups = n / width;
  lorry::cpu::parallel_for(groups, std::max<int64_t>(1, kGrain / width),
                           [&](int64_t begin, int64_t end) { Chain(call).run(begin * width, end * width); });
  return groups * width;
}

}  // namespace lorry::kernels::cpu
