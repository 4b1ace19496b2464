// Calls over rows. All steps are run for a block of rows before the next block, each by the operator's own kernel;
// adjacent pointwise steps are one fused call. Results for later steps are in an output or in a buffer. The buffers of
// a block stay in the cache, so each input is read from memory once, and each output written once.

#include "lorry/kernels/cpu/fused/rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/fused/map.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kBlock = 16384;  ///< elements of a register per block: a few such registers fit a second-level cache
constexpr int64_t kGrain = 16384;  ///< elements worth a second thread

/// Steps that run as one kernel: a step that is not a map, or several maps of one extent as a fused call.
struct Stage {
  std::vector<size_t> steps;
  // Of maps only:
  std::vector<int16_t> inputs, outputs;  ///< registers of the call
  std::vector<FusedStep> maps;
  std::vector<int16_t> made;                             ///< registers of the call that the maps write
  std::unique_ptr<const MapKernel> kernel, last_kernel;  ///< for whole blocks; for a last block with fewer rows
};

/// A call over rows that owns its lists.
struct OwnedRowCall {
  int64_t rows, n;
  std::vector<RowInput> inputs;
  std::vector<RowStep> steps;
  std::vector<RowOutput> outputs;
};

/// The stages of a call and the places of its registers: the same for all blocks and runs.
class RowSchedule {
 public:
  explicit RowSchedule(OwnedRowCall given) : call(std::move(given)) {
    for (const RowInput& x : call.inputs) registers.push_back({x.dtype, x.extent});
    for (const RowStep& step : call.steps) {
      first_result.push_back(static_cast<int16_t>(registers.size()));
      registers.insert(registers.end(), step.result, step.result + step.results);
    }
    block_rows = std::clamp<int64_t>(kBlock / call.n, 1, std::max<int64_t>(1, call.rows));
    make_stages();
    assign_memory();
    for (Stage& stage : stages)
      if (call.steps[stage.steps[0]].kind == RowStep::map) {
        stage.kernel = make_kernel(stage, block_rows);
        if (call.rows % block_rows != 0) stage.last_kernel = make_kernel(stage, call.rows % block_rows);
      }
  }

  bool is_wide(const RowStep& step) const { return step.result[0].extent == Extent::wide; }
  int64_t bytes(int16_t r, int64_t rows) const {
    const RowStep::Result& x = registers[static_cast<size_t>(r)];
    const int64_t n = x.extent == Extent::wide ? rows * call.n : x.extent == Extent::narrow ? rows : 0;
    return n * size_of(x.dtype);
  }
  /// Calls f(register) for each operand of a step.
  template <class F>
  static void for_each_operand(const RowStep& step, F&& f) {
    if (step.kind == RowStep::map)
      std::for_each(step.pointwise.in, step.pointwise.in + step.pointwise.arity, f);
    else
      for (const int16_t r : step.in)
        if (r >= 0) f(r);
  }

  /// The number of a register in the fused call of a stage.
  static int16_t number(const Stage& stage, int16_t r) {
    if (const auto i = std::ranges::find(stage.inputs, r); i != stage.inputs.end())
      return static_cast<int16_t>(i - stage.inputs.begin());
    return static_cast<int16_t>(stage.inputs.size() +
                                static_cast<size_t>(std::ranges::find(stage.made, r) - stage.made.begin()));
  }

  const OwnedRowCall call;
  std::vector<RowStep::Result> registers;
  std::vector<int16_t> first_result;  ///< of each step
  std::vector<Stage> stages;
  int64_t block_rows = 1;
  /// For each register that a step writes, except intermediate results within a stage: either the output in whose
  /// memory it is, or its offset in the buffers; the other one is -1.
  std::vector<int> output;
  std::vector<int64_t> buffer;
  int64_t buffer_bytes = 0;
  std::vector<size_t> copied;  ///< outputs that are copied at the end of each block

 private:
  /// Groups steps into stages. A step depends on its operands only, so maps of the same level and extent share a stage.
  void make_stages() {
    std::vector<int> level(registers.size(), 0);
    struct LevelledStep {
      int level, kind;  ///< wide maps of a level, then narrow ones, then others
      size_t step;
    };
    std::vector<LevelledStep> order;
    std::vector<int> kind(registers.size(), -1);
    for (size_t s = 0; s < call.steps.size(); ++s) {
      const RowStep& step = call.steps[s];
      LevelledStep at{0, step.kind != RowStep::map ? 2 : is_wide(step) ? 0 : 1, s};
      for_each_operand(step, [&](int16_t r) {
        const auto i = static_cast<size_t>(r);
        at.level = std::max(at.level, level[i] + (kind[i] > at.kind ? 1 : 0));
      });
      for (int k = 0; k < step.results; ++k) {
        level[static_cast<size_t>(first_result[s] + k)] = at.level;
        kind[static_cast<size_t>(first_result[s] + k)] = at.kind;
      }
      order.push_back(at);
    }
    std::ranges::stable_sort(order, [](const LevelledStep& a, const LevelledStep& b) {
      return std::pair(a.level, a.kind) < std::pair(b.level, b.kind);
    });
    for (size_t i = 0; i < order.size(); ++i) {
      const bool joins =
          i > 0 && order[i].kind < 2 && order[i].kind == order[i - 1].kind && order[i].level == order[i - 1].level;
      if (!joins) stages.emplace_back();
      stages.back().steps.push_back(order[i].step);
    }
  }

  /// Assigns memory to registers and makes the fused calls of the stages.
  void assign_memory() {
    std::vector<int> last(registers.size(), -1), made(registers.size(), -1);
    for (size_t g = 0; g < stages.size(); ++g)
      for (const size_t s : stages[g].steps) {
        for_each_operand(call.steps[s], [&](int16_t r) { last[static_cast<size_t>(r)] = static_cast<int>(g); });
        for (int k = 0; k < call.steps[s].results; ++k)
          made[static_cast<size_t>(first_result[s] + k)] = static_cast<int>(g);
      }
    output.assign(registers.size(), -1);
    buffer.assign(registers.size(), -1);
    for (size_t o = 0; o < call.outputs.size(); ++o) {
      const RowOutput& x = call.outputs[o];
      int& at = output[static_cast<size_t>(x.from)];
      if (x.may_be_an_input || at >= 0) {
        copied.push_back(o);
        last[static_cast<size_t>(x.from)] = static_cast<int>(stages.size());
      } else {
        at = static_cast<int>(o);
      }
    }
    struct Free {
      int64_t at, bytes;
      int from;  ///< the first stage that may use it
    };
    std::vector<Free> free;
    for (size_t g = 0; g < stages.size(); ++g) {
      const int now = static_cast<int>(g);
      for (const size_t s : stages[g].steps) {
        const RowStep& step = call.steps[s];
        for (int k = 0; k < step.results; ++k) {
          const auto r = static_cast<size_t>(first_result[s] + k);
          if (output[r] >= 0 || (step.kind == RowStep::map && last[r] <= now)) continue;
          const int64_t size = (bytes(static_cast<int16_t>(r), block_rows) + 63) / 64 * 64;
          const auto found =
              std::ranges::find_if(free, [&](const Free& x) { return x.bytes == size && x.from <= now; });
          const int until = std::max(last[r], now) + 1;
          if (found != free.end()) {
            buffer[r] = found->at;
            found->from = until;
          } else {
            buffer[r] = buffer_bytes;
            free.push_back({buffer_bytes, size, until});
            buffer_bytes += size;
          }
        }
      }
      if (call.steps[stages[g].steps[0]].kind == RowStep::map) make_fused(stages[g], made, now);
    }
  }

  void make_fused(Stage& stage, const std::vector<int>& made, int now) {
    const auto is_made_here = [&](int16_t r) { return made[static_cast<size_t>(r)] == now; };
    for (const size_t s : stage.steps) {
      for_each_operand(call.steps[s], [&](int16_t r) {
        if (!is_made_here(r) && std::ranges::find(stage.inputs, r) == stage.inputs.end()) stage.inputs.push_back(r);
      });
      stage.made.push_back(first_result[s]);
      if (output[static_cast<size_t>(first_result[s])] >= 0 || buffer[static_cast<size_t>(first_result[s])] >= 0)
        stage.outputs.push_back(first_result[s]);
    }
    for (const size_t s : stage.steps) {
      FusedStep& step = stage.maps.emplace_back(call.steps[s].pointwise);
      for (int k = 0; k < step.arity; ++k) step.in[k] = number(stage, step.in[k]);
    }
  }

  std::unique_ptr<const MapKernel> make_kernel(const Stage& stage, int64_t rows) const {
    const bool wide = is_wide(call.steps[stage.steps[0]]);
    std::vector<FusedOperand> inputs;
    std::vector<FusedOutput> outputs;
    for (const int16_t r : stage.inputs) inputs.push_back(operand(r, rows, wide));
    for (const int16_t r : stage.outputs) outputs.push_back({operand(r, rows, wide), number(stage, r)});
    const FusedCall maps{wide ? Dims{rows, call.n} : Dims{rows}, inputs, stage.maps, outputs};
    return std::make_unique<const MapKernel>(MapCall(maps));
  }

  FusedOperand operand(int16_t r, int64_t rows, bool wide) const {
    const RowStep::Result& x = registers[static_cast<size_t>(r)];
    FusedOperand to{{}, x.dtype};
    const bool by_row = x.extent == Extent::wide || x.extent == Extent::narrow;
    const bool by_column = x.extent == Extent::wide || x.extent == Extent::column;
    if (x.extent == Extent::single && call.inputs[static_cast<size_t>(r)].is_number) {
      to.layout.rank = -1;
      to.number = call.inputs[static_cast<size_t>(r)].number;
    } else if (wide) {
      to.layout = Layout::strided({rows, call.n}, {by_row ? (by_column ? call.n : 1) : 0, by_column ? 1 : 0});
    } else {
      to.layout = Layout::strided({rows}, {by_row ? 1 : 0});
    }
    return to;
  }
};

/// One thread's share of a call.
class RowWorker {
 public:
  RowWorker(const RowSchedule& plan, const Addresses& at, Stream stream)
      : plan_(plan),
        call_(plan.call),
        at_(at),
        stream_(stream),
        memory_(scratch<char>(Scratch::rows, plan.buffer_bytes)) {}

  void run(int64_t first, int64_t rows) {
    first_ = first;
    rows_ = rows;
    for (const Stage& stage : plan_.stages) {
      const size_t s = stage.steps[0];
      const RowStep& step = call_.steps[s];
      if (step.kind == RowStep::map)
        run_maps(stage);
      else
        run_step(step, plan_.first_result[s]);
    }
    for (const size_t o : plan_.copied) {
      const RowOutput& x = call_.outputs[o];
      const auto bytes = static_cast<size_t>(plan_.bytes(x.from, rows_));
      std::memcpy(static_cast<char*>(at_.outputs[o]) + plan_.bytes(x.from, first_), address(x.from), bytes);
    }
  }

 private:
  char* address(int16_t r) {
    const auto i = static_cast<size_t>(r);
    if (i < call_.inputs.size()) return static_cast<char*>(at_.inputs[i]) + plan_.bytes(r, first_);
    if (const int o = plan_.output[i]; o >= 0)
      return static_cast<char*>(at_.outputs[static_cast<size_t>(o)]) + plan_.bytes(r, first_);
    return memory_ + plan_.buffer[i];
  }

  void run_maps(const Stage& stage) {
    const bool whole = rows_ == plan_.block_rows;
    addresses_.clear();
    for (const int16_t r : stage.inputs) addresses_.push_back(address(r));
    for (const int16_t r : stage.outputs) addresses_.push_back(address(r));
    const std::span<void* const> all = addresses_;
    (whole ? stage.kernel : stage.last_kernel)
        ->run_here(all.first(stage.inputs.size()), all.subspan(stage.inputs.size()));
  }

  /// A register as the row kernels expect it: wide [rows, n], narrow [rows, 1], column [n].
  Array array(int16_t r) {
    if (r < 0) return {};
    const RowStep::Result& x = plan_.registers[static_cast<size_t>(r)];
    Array to{address(r), x.dtype, {}};
    if (x.extent == Extent::wide) to.layout = Layout::contiguous({rows_, call_.n});
    if (x.extent == Extent::narrow) to.layout = Layout::contiguous({rows_, 1});
    if (x.extent == Extent::column) to.layout = Layout::contiguous({call_.n});
    return to;
  }

  void run_step(const RowStep& step, int16_t result) {
    const Array to = array(result), x = array(step.in[0]);
    switch (step.kind) {
      case RowStep::fold: {
        const formula::FoldRow& row = step.reduction;
        return reduce_kernels().fold({to, x, row.fold, row.map, row.finish, step.parameter}, stream_);
      }
      case RowStep::softmax:
        return softmax_kernels().softmax(to, x, 1, step.log, stream_);
      case RowStep::softmax_backward:
        return softmax_kernels().softmax_backward(to, x, array(step.in[1]), 1, step.log, stream_);
      case RowStep::norm: {
        const auto rstd = static_cast<int16_t>(result + 1), mean = static_cast<int16_t>(result + 2);
        return norm_kernels().layer_norm({to, x, array(step.in[1]), array(step.in[2]),
                                          step.centred ? array(mean) : Array{}, array(rstd), step.parameter},
                                         stream_);
      }
      case RowStep::map:
        break;
    }
  }

  const RowSchedule& plan_;
  const OwnedRowCall& call_;
  const Addresses& at_;
  const Stream stream_;
  char* memory_;  ///< the buffers
  int64_t first_ = 0, rows_ = 0;
  std::vector<void*> addresses_;
};

class RowKernel final : public FusedKernel {
 public:
  explicit RowKernel(OwnedRowCall call) : plan_(std::move(call)) {}

  bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const override {
    const int64_t rows = plan_.call.rows, block_rows = plan_.block_rows;
    const Addresses at{inputs, outputs};
    const int64_t blocks = (rows + block_rows - 1) / block_rows;
    const int64_t grain = std::max<int64_t>(1, kGrain / (block_rows * plan_.call.n));
    lorry::cpu::parallel_for(blocks, grain, [&](int64_t begin, int64_t end) {
      RowWorker worker(plan_, at, stream);
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * block_rows;
        worker.run(first, std::min(block_rows, rows - first));
      }
    });
    return true;
  }

 private:
  const RowSchedule plan_;
};

}  // namespace

std::unique_ptr<const FusedKernel> make_rows(const RowCall& call, Device) {
  return std::make_unique<RowKernel>(OwnedRowCall{call.rows,
                                                  call.n,
                                                  {call.inputs.begin(), call.inputs.end()},
                                                  {call.steps.begin(), call.steps.end()},
                                                  {call.outputs.begin(), call.outputs.end()}});
}

}  // namespace lorry::kernels::cpu
