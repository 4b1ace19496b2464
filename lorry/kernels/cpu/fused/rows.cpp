// Calls over rows: a block of rows at a time goes through all steps, each by the operator's own kernel. Pointwise steps
// that follow each other are one fused call. What a later step reads waits in an output or in a buffer; the buffers of
// a block stay in the cache, so what moves through memory is each input and each output once.

#include "lorry/kernels/cpu/fused/rows.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/fused/chain.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kBlock = 16384;  ///< elements of a register in a block: a few fit in a second-level cache
constexpr int64_t kGrain = 16384;  ///< elements worth a second thread

/// What runs as one kernel: a step that is no map, or maps of one extent as a fused call.
struct Stage {
  std::vector<size_t> steps;
  // of maps
  std::vector<int16_t> inputs, outputs;  ///< registers of the call
  std::vector<FusedStep> maps;
  std::vector<int16_t> made;  ///< registers of the call that the maps make
};

/// What is the same for all blocks of a call.
class RowPlan {
 public:
  explicit RowPlan(const RowCall& call) : call(call) {
    for (const RowInput& x : call.inputs) registers.push_back({x.dtype, x.extent});
    for (const RowStep& step : call.steps) {
      first_result.push_back(static_cast<int16_t>(registers.size()));
      registers.insert(registers.end(), step.result, step.result + step.results);
    }
    block_rows = std::clamp<int64_t>(kBlock / call.n, 1, call.rows);
    make_stages();
    place();
  }

  bool is_wide(const RowStep& step) const { return step.result[0].extent == Extent::wide; }
  int64_t bytes(int16_t r, int64_t rows) const {
    const RowStep::Result& x = registers[static_cast<size_t>(r)];
    const int64_t n = x.extent == Extent::wide ? rows * call.n : x.extent == Extent::narrow ? rows : 0;
    return n * size_of(x.dtype);
  }
  /// Calls f(register) for what a step reads.
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

  const RowCall& call;
  std::vector<RowStep::Result> registers;
  std::vector<int16_t> first_result;  ///< of each step
  std::vector<Stage> stages;
  int64_t block_rows = 1;
  /// Of each register that a step makes and that is no intermediate of a stage: the output in whose memory it is made,
  /// or where it is in the buffers; -1.
  std::vector<int> output;
  std::vector<int64_t> buffer;
  int64_t buffer_bytes = 0;
  std::vector<size_t> copied;  ///< outputs that are copied when their block is done

 private:
  /// Steps wait for nothing but their operands: maps that can run together do.
  void make_stages() {
    std::vector<int> level(registers.size(), 0);
    struct Placed {
      int level, kind;  ///< wide maps of a level, then narrow ones, then others
      size_t step;
    };
    std::vector<Placed> order;
    std::vector<int> kind(registers.size(), -1);
    for (size_t s = 0; s < call.steps.size(); ++s) {
      const RowStep& step = call.steps[s];
      Placed at{0, step.kind != RowStep::map ? 2 : is_wide(step) ? 0 : 1, s};
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
    std::ranges::stable_sort(order, [](const Placed& a, const Placed& b) {
      return std::pair(a.level, a.kind) < std::pair(b.level, b.kind);
    });
    for (size_t i = 0; i < order.size(); ++i) {
      const bool joins =
          i > 0 && order[i].kind < 2 && order[i].kind == order[i - 1].kind && order[i].level == order[i - 1].level;
      if (!joins) stages.emplace_back();
      stages.back().steps.push_back(order[i].step);
    }
  }

  /// Where registers lie, and the fused calls of the stages.
  void place() {
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
      const bool is_input = std::ranges::any_of(call.inputs, [&](const RowInput& in) { return in.data == x.data; });
      int& at = output[static_cast<size_t>(x.from)];
      if (is_input || at >= 0) {
        copied.push_back(o);
        last[static_cast<size_t>(x.from)] = static_cast<int>(stages.size());
      } else {
        at = static_cast<int>(o);
      }
    }
    struct Free {
      int64_t at, bytes;
      int from;  ///< the stage from which on it can be taken
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
};

/// One thread's share of a call.
class RowWorker {
 public:
  RowWorker(const RowPlan& plan, Stream stream)
      : plan_(plan),
        call_(plan.call),
        stream_(stream),
        memory_(scratch<char>(Scratch::rows, plan.buffer_bytes)),
        prepared_(plan.stages.size()) {}

  void run(int64_t first, int64_t rows) {
    first_ = first;
    rows_ = rows;
    for (size_t g = 0; g < plan_.stages.size(); ++g) {
      const size_t s = plan_.stages[g].steps[0];
      const RowStep& step = call_.steps[s];
      if (step.kind == RowStep::map)
        run_maps(g, plan_.is_wide(step));
      else
        run_step(step, plan_.first_result[s]);
    }
    for (const size_t o : plan_.copied) {
      const RowOutput& x = call_.outputs[o];
      const auto bytes = static_cast<size_t>(plan_.bytes(x.from, rows_));
      std::memcpy(static_cast<char*>(x.data) + plan_.bytes(x.from, first_), address(x.from), bytes);
    }
  }

 private:
  char* address(int16_t r) {
    const auto i = static_cast<size_t>(r);
    if (i < call_.inputs.size()) return static_cast<char*>(call_.inputs[i].data) + plan_.bytes(r, first_);
    if (const int o = plan_.output[i]; o >= 0)
      return static_cast<char*>(call_.outputs[static_cast<size_t>(o)].data) + plan_.bytes(r, first_);
    return memory_ + plan_.buffer[i];
  }

  FusedOperand operand(int16_t r, bool wide) {
    const RowStep::Result& x = plan_.registers[static_cast<size_t>(r)];
    FusedOperand to{address(r), {}, x.dtype};
    const bool by_row = x.extent != Extent::column, by_column = x.extent != Extent::narrow;
    if (x.extent == Extent::single)
      to.layout.rank = -1;
    else if (wide)
      to.layout = Layout::strided({rows_, call_.n}, {by_row ? (by_column ? call_.n : 1) : 0, by_column ? 1 : 0});
    else
      to.layout = Layout::contiguous({rows_});
    return to;
  }

  /// The fused call of a stage, for blocks of one size.
  struct Prepared {
    int64_t rows = 0;
    std::vector<FusedOperand> inputs;
    std::vector<FusedOutput> outputs;
    FusedCall call;
    std::optional<Walk> walk;
    std::optional<Chain> chain;
  };

  void prepare(Prepared& p, const Stage& stage, bool wide) {
    p.rows = rows_;
    p.inputs.clear();
    p.outputs.clear();
    for (const int16_t r : stage.inputs) p.inputs.push_back(operand(r, wide));
    for (const int16_t r : stage.outputs) p.outputs.push_back({operand(r, wide), RowPlan::number(stage, r)});
    p.call = {wide ? Dims{rows_, call_.n} : Dims{rows_}, p.inputs, stage.maps, p.outputs};
    p.walk.emplace(p.call);
    p.chain.reset();
    if (is_chain(p.call, *p.walk)) p.chain.emplace(p.call, *p.walk);
  }

  void run_maps(size_t g, bool wide) {
    const Stage& stage = plan_.stages[g];
    Prepared& p = prepared_[g];
    if (p.rows != rows_) prepare(p, stage, wide);
    for (size_t i = 0; i < p.inputs.size(); ++i) p.inputs[i].data = address(stage.inputs[i]);
    for (size_t o = 0; o < p.outputs.size(); ++o) p.outputs[o].to.data = address(stage.outputs[o]);
    if (p.chain)
      p.chain->run(0, Chain::tasks(*p.walk));
    else
      fused_kernels().run(p.call, stream_);
  }

  /// A register as the kernels of rows take it: [rows, n], or [rows, 1] and [n] where those are vectors.
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
        return softmax_kernels().softmax(to, x, step.log, stream_);
      case RowStep::softmax_backward:
        return softmax_kernels().softmax_backward(to, x, array(step.in[1]), step.log, stream_);
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

  const RowPlan& plan_;
  const RowCall& call_;
  const Stream stream_;
  char* memory_;  ///< the buffers
  int64_t first_ = 0, rows_ = 0;
  std::vector<Prepared> prepared_;  ///< of each stage
};

}  // namespace

void run_rows(const RowCall& call, Stream stream) {
  if (call.rows == 0) return;
  const RowPlan plan(call);
  const int64_t blocks = (call.rows + plan.block_rows - 1) / plan.block_rows;
  const int64_t grain = std::max<int64_t>(1, kGrain / (plan.block_rows * call.n));
  lorry::cpu::parallel_for(blocks, grain, [&](int64_t begin, int64_t end) {
    RowWorker worker(plan, stream);
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * plan.block_rows;
      worker.run(first, std::min(plan.block_rows, call.rows - first));
    }
  });
}

}  // namespace lorry::kernels::cpu
