// Generated kernels of fused calls. Random calls are compared with the CPU's fused kernels, which are made in another
// way: the host's compiler compiles the generated source, and each thread of each block runs in turn. That needs no
// GPU; what a GPU makes of the same sources is tested where there is one (compile/). NVRTC must take every row's
// formula.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lorry/kernels/backend.h"
#include "lorry/kernels/cuda/fused/embedded.h"
#include "lorry/kernels/cuda/fused/emit.h"
#include "lorry/kernels/cuda/fused/emit_rows.h"
#include "lorry/kernels/cuda/fused/map_arguments.h"
#include "lorry/kernels/cuda/fused/row_arguments.h"
#include "lorry/kernels/cuda/fused/runtime_compiler.h"
#include "tests/kernels/host_library.h"
#include "tests/support/scale.h"

namespace lorry::kernels::cuda::test {
namespace {

using Random = std::mt19937_64;

int below(Random& random, int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); }
bool one_in(Random& random, int n) { return below(random, n) == 0; }

/// Rows whose results are rounded once, or are sums and products of such: the same on every processor.
bool is_exact(const PointwiseRow& row) {
  static const std::set<std::string> kOthers = {
      "exp",  "exp2",      "expm1",        "log",          "log1p",    "log2",          "log10",
      "sin",  "cos",       "tan",          "asin",         "acos",     "atan",          "sinh",
      "cosh", "tanh",      "erf",          "erfc",         "sigmoid",  "gelu",          "gelu_tanh",
      "silu", "pow",       "atan2",        "elu",          "softplus", "gelu_backward", "gelu_tanh_backward",
      "fmod", "remainder", "floor_divide", "silu_backward"};
  return !kOthers.contains(row.name);
}

/// A call with the memory of its operands.
struct Sample {
  std::vector<FusedOperand> inputs;
  std::vector<FusedStep> steps;
  std::vector<FusedOutput> outputs;
  Dims sizes;
  std::vector<std::vector<char>> memory;  ///< of the inputs
  std::vector<int64_t> first;             ///< byte of each

  MapCall call() const { return MapCall(FusedCall{sizes, inputs, steps, outputs}); }
};

DType pick(Random& random, const std::vector<DType>& from) {
  return from[static_cast<size_t>(below(random, static_cast<int>(from.size())))];
}

void put_random(Random& random, DType dtype, char* to) {
  static const double kSpecial[] = {0.0, -0.0, 1, -1, 0.5, INFINITY, -INFINITY, NAN, 1e-42, 3e38, 65504, 2.5, -2.5};
  visit(dtype, [&]<class T>(Type<T>) {
    T value;
    if constexpr (std::is_same_v<T, bool>)
      value = one_in(random, 2);
    else if constexpr (std::is_integral_v<T>)
      value = static_cast<T>(one_in(random, 4) ? random() : static_cast<uint64_t>(below(random, 21) - 10));
    else
      value = static_cast<T>(
          static_cast<float>(one_in(random, 8) ? kSpecial[below(random, 13)] : (below(random, 20001) - 10000) / 512.0));
    std::memcpy(to, &value, sizeof value);
  });
}

/// A layout of the sizes whose memory is dense, broadcast, permuted or with gaps.
Layout random_layout(Random& random, const Dims& sizes) {
  Dims strides;
  for (int d = 0; d < sizes.size(); ++d) strides.push_back(0);
  std::vector<int> order;
  for (int d = sizes.size(); d-- > 0;) order.push_back(d);
  if (one_in(random, 4)) std::shuffle(order.begin(), order.end(), random);
  int64_t stride = one_in(random, 6) ? 2 : 1;
  const bool gaps = one_in(random, 5);
  for (const int d : order) {
    if (one_in(random, 6)) continue;  // broadcast
    strides[d] = stride;
    stride *= sizes[d];
    if (gaps) stride += below(random, 3);
  }
  return Layout::strided(sizes, strides);
}

void add_input(Random& random, Sample& sample, DType dtype) {
  FusedOperand x;
  x.dtype = dtype;
  sample.memory.emplace_back();
  sample.first.push_back(0);
  if (one_in(random, 5)) {
    x.layout.rank = -1;
    x.dtype = is_floating(dtype) ? kF64 : kI64;
    if (x.dtype == kF64)
      x.number.real = (below(random, 4001) - 2000) / 256.0;
    else
      x.number.whole = below(random, 11) - 5;
  } else {
    x.layout = random_layout(random, sample.sizes);
    for (const FusedOperand& other : sample.inputs)
      if (other.layout.rank >= 0 && one_in(random, 2)) x.layout = other.layout;
    const int64_t size = size_of(dtype), before = one_in(random, 3) ? below(random, 5) : 0;
    const int64_t count = before + x.layout.extent();
    sample.memory.back().resize(static_cast<size_t>(count * size));
    for (int64_t i = 0; i < count; ++i) put_random(random, dtype, sample.memory.back().data() + i * size);
    sample.first.back() = before * size;
  }
  sample.inputs.push_back(x);
}

/// One of the rows that a compute type has; operands are any registers.
FusedStep random_step(Random& random, const std::vector<DType>& registers, const std::vector<DType>& dtypes) {
  FusedStep step;
  const auto registers_count = static_cast<int>(registers.size());
  step.dtype = pick(random, dtypes);
  step.in[0] = static_cast<int16_t>(below(random, registers_count));
  if (one_in(random, 6)) {
    step.kind = FusedStep::convert;
    return step;
  }
  for (;;) {
    step.op = static_cast<Pointwise>(below(random, kPointwiseCount));
    const PointwiseRow& row = lorry::row(step.op);
    step.arity = static_cast<int8_t>(row.arity);
    for (int k = 0; k < row.arity; ++k) step.in[k] = static_cast<int16_t>(below(random, registers_count));
    bool all_whole = true, has_f64 = false;
    for (int k = 0; k < row.arity; ++k) {
      all_whole &= !is_floating(registers[static_cast<size_t>(step.in[k])]);
      has_f64 |= registers[static_cast<size_t>(step.in[k])] == kF64;
    }
    const bool whole_only = row.domain == Domain::whole || row.domain == Domain::integer;
    if (!is_exact(row) || (whole_only && !all_whole)) continue;
    step.compute = whole_only || (all_whole && row.domain != Domain::floating && row.result != Result::real)
                       ? kI64
                       : (has_f64 ? kF64 : kF32);
    step.result = row.result == Result::truth ? kBool : step.compute;
    if (step.result == kF32 && is_narrow(step.dtype)) step.result = step.dtype;
    if (step.result == kI64 && !is_floating(step.dtype)) step.result = step.dtype;
    return step;
  }
}

Sample random_sample(Random& random) {
  static const std::vector<std::vector<DType>> kDTypes = {
      {kF32}, {kF32}, {kBF16}, {kBF16, kF32}, {kF16, kF32}, {kF64, kF32}, {kI32, kI64, kBool, kU8}, {kF32, kBool}};
  Sample sample;
  std::vector<DType> dtypes = kDTypes[static_cast<size_t>(below(random, 8))];
  if (one_in(random, 6)) dtypes.assign(std::begin(lorry::kDTypes), std::end(lorry::kDTypes));
  const int rank = 1 + below(random, 4);
  int64_t left = one_in(random, 4) ? 20'000 : 3'000;
  for (int d = 0; d < rank; ++d) {
    const bool last = d + 1 == rank;
    int64_t size = last ? left : 1 + below(random, 9);
    if (one_in(random, 2)) size = std::max<int64_t>(1, size / 8 * 8);
    sample.sizes.push_back(std::max<int64_t>(1, size));
    left = std::max<int64_t>(1, left / size);
  }
  const int inputs = 1 + below(random, 4), steps = 1 + below(random, 8);
  for (int i = 0; i < inputs; ++i) add_input(random, sample, pick(random, dtypes));
  std::vector<DType> registers;
  for (const FusedOperand& x : sample.inputs) registers.push_back(x.dtype);
  for (int s = 0; s < steps; ++s) {
    sample.steps.push_back(random_step(random, registers, dtypes));
    registers.push_back(sample.steps.back().dtype);
  }
  const int outputs = 1 + below(random, std::min(3, steps));
  for (int o = 0; o < outputs; ++o) {
    FusedOutput x;
    x.from = static_cast<int16_t>(inputs + (o == 0 ? steps - 1 : below(random, steps)));
    x.to.dtype = registers[static_cast<size_t>(x.from)];
    x.to.layout = Layout::contiguous(sample.sizes);
    for (const FusedOperand& in : sample.inputs)
      if (in.layout.rank >= 0 && in.layout.is_dense() && one_in(random, 2)) x.to.layout = in.layout;
    sample.outputs.push_back(x);
  }
  return sample;
}

/// Equal bits, or both NaN.
bool is_same(DType dtype, const char* a, const char* b) {
  return visit(dtype, [&]<class T>(Type<T>) {
    T x, y;
    std::memcpy(&x, a, sizeof x), std::memcpy(&y, b, sizeof y);
    if constexpr (kFloatingType<T>)
      if (static_cast<double>(static_cast<Accumulate<T>>(x)) != static_cast<double>(static_cast<Accumulate<T>>(x)))
        return static_cast<double>(static_cast<Accumulate<T>>(y)) != static_cast<double>(static_cast<Accumulate<T>>(y));
    return std::memcmp(a, b, sizeof x) == 0;
  });
}

TEST(FusedEmit, sources_compiled_for_the_host_compute_what_the_cpus_fused_kernels_do) {
  Random random(20261123);
  std::vector<Sample> samples;
  std::vector<EmittedMap> emitted;
  for (int64_t k = 0; k < lorry::test::scaled(60); ++k) {
    samples.push_back(random_sample(random));
    const MapCall call = samples.back().call();
    emitted.push_back(emit_map(call, Walk(call)));
  }
  const HostLibrary library(emitted, "map_kernel.h", "run_threads");
  size_t vectors = 0;
  for (size_t k = 0; k < samples.size(); ++k) {
    Sample& sample = samples[k];
    const MapCall call = sample.call();
    std::vector<void*> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      inputs.push_back(sample.inputs[i].layout.rank < 0 ? nullptr : sample.memory[i].data() + sample.first[i]);
    std::vector<std::vector<char>> expected, made;
    std::vector<void*> to_expected, to_made;
    for (const FusedOutput& x : sample.outputs) {
      const auto bytes = static_cast<size_t>(x.to.layout.extent() * size_of(x.to.dtype));
      expected.emplace_back(bytes, 77), made.emplace_back(bytes, 77);
    }
    for (size_t o = 0; o < made.size(); ++o)
      to_expected.push_back(expected[o].data()), to_made.push_back(made[o].data());
    backend(kCPU)
        .fused->make({sample.sizes, sample.inputs, sample.steps, sample.outputs}, kCPU)
        ->run(inputs, to_expected, {});
    const MapArgument argument(call, Walk(call), emitted[k]);
    ArgumentWords words;
    argument.write(words, inputs, to_made);
    vectors += words[1] != 0 && emitted[k].width > 1;
    library.run(k)(words.data(), argument.blocks(), kMapBlock);
    for (size_t o = 0; o < made.size(); ++o) {
      const DType dtype = sample.outputs[o].to.dtype;
      const auto size = static_cast<size_t>(size_of(dtype));
      for (size_t i = 0; i < made[o].size(); i += size)
        ASSERT_TRUE(is_same(dtype, expected[o].data() + i, made[o].data() + i))
            << "sample " << k << " output " << o << " element " << i / size << " over " << sample.sizes << "\n"
            << emitted[k].source;
    }
  }
  EXPECT_GT(vectors, samples.size() / 8);
}

/// Steps before, of, and after an operator over rows.
struct RowSample {
  int64_t rows = 1, n = 1;
  std::vector<RowInput> inputs;
  std::vector<RowStep> steps;
  std::vector<RowOutput> outputs;
  std::vector<std::vector<char>> memory;

  RowCall call() const { return {rows, n, inputs, steps, outputs}; }
  int64_t elements(Extent extent) const {
    return extent == Extent::wide ? rows * n : extent == Extent::narrow ? rows : extent == Extent::column ? n : 1;
  }
  const RowStep::Result of(int16_t r) const {
    if (static_cast<size_t>(r) < inputs.size())
      return {inputs[static_cast<size_t>(r)].dtype, inputs[static_cast<size_t>(r)].extent};
    size_t first = inputs.size();
    for (const RowStep& step : steps) {
      if (static_cast<size_t>(r) < first + static_cast<size_t>(step.results))
        return step.result[static_cast<size_t>(r) - first];
      first += static_cast<size_t>(step.results);
    }
    return {};
  }
  int16_t registers() const {
    auto count = static_cast<int16_t>(inputs.size());
    for (const RowStep& step : steps) count = static_cast<int16_t>(count + step.results);
    return count;
  }
};

class RowSampler {
 public:
  explicit RowSampler(Random& random) : random_(random) {}

  RowSample sample() {
    static const std::vector<DType> kHeld = {kF32, kF32, kBF16, kF16, kF64};
    made_ = {};
    const DType held = pick(random_, kHeld);
    const int64_t run = 16 / size_of(held);
    static const int64_t kRuns[] = {1, 2, 5, 24, 32, 33, 70, 128, 200, 700, 1024};
    made_.rows = 1 + below(random_, 9);
    made_.n = run * kRuns[below(random_, 11)];
    if (made_.n == 1) made_.n = 2;
    std::vector<int16_t> wide = {input(held, Extent::wide)};
    if (one_in(random_, 2)) wide.push_back(input(one_in(random_, 2) ? held : kF32, Extent::wide));
    const int16_t column = input(held, Extent::column), bias = input(held, Extent::column);
    const int16_t narrow = input(kF32, Extent::narrow), single = input(kF32, Extent::single);
    RowInput number{kF64, Extent::single, true};
    number.number.real = 1.25;
    made_.inputs.push_back(number), made_.memory.emplace_back();
    const auto last = static_cast<int16_t>(made_.inputs.size() - 1);
    const std::vector<int16_t> others = {column, bias, narrow, single, last};
    const auto any = [&] {
      return one_in(random_, 2) ? wide[static_cast<size_t>(below(random_, static_cast<int>(wide.size())))]
                                : others[static_cast<size_t>(below(random_, 5))];
    };
    for (int k = below(random_, 3); k-- > 0;) wide.push_back(map(wide.back(), any(), one_in(random_, 3) ? kF32 : held));
    if (made_.of(wide.back()).dtype != held) wide.push_back(map(wide.back(), last, held));
    const int16_t row = row_step(wide.back(), column, bias, held);
    const bool has_statistics = made_.steps.back().results > 1;
    if (made_.of(row).extent == Extent::narrow) {
      output(row);
      wide.push_back(map(wide.back(), row, held));
    } else {
      wide.push_back(row);
    }
    for (int k = below(random_, 3); k-- > 0;) wide.push_back(map(wide.back(), any(), held));
    output(wide.back());
    if (wide.back() != row && one_in(random_, 2)) output(row);
    if (has_statistics) {
      const auto rstd = static_cast<int16_t>(row + 1);
      output(rstd);
      output(map(rstd, narrow, kF32));
    }
    return made_;
  }

 private:
  int16_t input(DType dtype, Extent extent) {
    made_.inputs.push_back({dtype, extent});
    std::vector<char>& memory = made_.memory.emplace_back(static_cast<size_t>(made_.elements(extent) * size_of(dtype)));
    for (int64_t i = 0; i < made_.elements(extent); ++i)
      visit(dtype, [&]<class T>(Type<T>) {
        const T value = static_cast<T>(static_cast<float>((below(random_, 2001) - 1000) / 400.0));
        std::memcpy(memory.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
      });
    return static_cast<int16_t>(made_.inputs.size() - 1);
  }
  int16_t map(int16_t a, int16_t b, DType dtype) {
    static const Pointwise kOps[] = {Pointwise::mul, Pointwise::add, Pointwise::sub, Pointwise::maximum};
    RowStep step;
    step.pointwise.op = kOps[below(random_, 4)];
    step.pointwise.compute = dtype == kF64 ? kF64 : kF32;
    step.pointwise.result = step.pointwise.dtype = dtype;
    step.pointwise.arity = 2;
    step.pointwise.in[0] = a, step.pointwise.in[1] = b;
    step.result[0] = {dtype, made_.of(a).extent};
    made_.steps.push_back(step);
    return static_cast<int16_t>(made_.registers() - 1);
  }
  int16_t row_step(int16_t x, int16_t weight, int16_t bias, DType held) {
    RowStep step;
    step.in[0] = x;
    step.result[0] = {held, Extent::wide};
    const DType statistic = is_narrow(held) ? kF32 : held;
    switch (below(random_, 4)) {
      case 3:
        step.kind = RowStep::fold;
        step.reduction = formula::kFoldRows[below(random_, formula::kFoldRowCount)];
        step.parameter = static_cast<double>(made_.n);
        step.result[0] = {step.reduction.result == formula::FoldResult::truth ? kBool : held, Extent::narrow};
        break;
      case 0:
        step.kind = RowStep::softmax;
        step.log = one_in(random_, 2);
        break;
      case 1:
        step.kind = RowStep::softmax_backward;
        step.log = one_in(random_, 2);
        step.in[1] = 0;
        break;
      default:
        step.kind = RowStep::norm;
        step.centred = one_in(random_, 2);
        step.parameter = 1e-5;
        if (one_in(random_, 2)) step.in[1] = weight;
        if (one_in(random_, 2)) step.in[2] = bias;
        step.results = step.centred ? 3 : 2;
        step.result[1] = step.result[2] = {statistic, Extent::narrow};
    }
    made_.steps.push_back(step);
    return static_cast<int16_t>(made_.registers() - step.results);
  }
  void output(int16_t r) { made_.outputs.push_back({r}); }

  Random& random_;
  RowSample made_;
};

double value_at(DType dtype, const char* at) {
  return visit(dtype, [&]<class T>(Type<T>) {
    T x;
    std::memcpy(&x, at, sizeof x);
    return static_cast<double>(static_cast<Accumulate<T>>(x));
  });
}

// Sums run in another order than on the CPU.
TEST(FusedEmit, row_sources_compiled_for_the_host_compute_what_the_cpus_fused_kernels_do) {
  Random random(77);
  std::vector<RowSample> samples;
  std::vector<EmittedRows> emitted;
  for (int64_t k = 0; k < lorry::test::scaled(25); ++k) {
    samples.push_back(RowSampler(random).sample());
    emitted.push_back(emit_rows(samples.back().call()));
  }
  const HostLibrary library(emitted, "row_kernel.h", "run_blocks");
  for (size_t k = 0; k < samples.size(); ++k) {
    RowSample& sample = samples[k];
    std::vector<void*> inputs;
    for (auto& memory : sample.memory) inputs.push_back(memory.data());
    std::vector<std::vector<char>> expected, made;
    std::vector<void*> to_expected, to_made;
    for (const RowOutput& x : sample.outputs) {
      const auto [dtype, extent] = sample.of(x.from);
      const auto bytes = static_cast<size_t>(sample.elements(extent) * size_of(dtype));
      expected.emplace_back(bytes, 77), made.emplace_back(bytes, 77);
    }
    for (size_t o = 0; o < made.size(); ++o)
      to_expected.push_back(expected[o].data()), to_made.push_back(made[o].data());
    ASSERT_TRUE(backend(kCPU).fused->make_rows(sample.call(), kCPU)->run(inputs, to_expected, {}));
    const RowArgument argument(sample.call(), emitted[k]);
    ArgumentWords words;
    ASSERT_TRUE(argument.write(words, inputs, to_made));
    library.run(k)(words.data(), emitted[k].plan.grid(sample.rows), static_cast<unsigned>(emitted[k].plan.block()));
    for (size_t o = 0; o < made.size(); ++o) {
      const auto [dtype, extent] = sample.of(sample.outputs[o].from);
      const double tolerance = dtype == kF64 ? 1e-11 : dtype == kF32 ? 3e-4 : dtype == kF16 ? 4e-3 : 3e-2;
      const auto size = static_cast<size_t>(size_of(dtype));
      for (size_t i = 0; i < made[o].size(); i += size) {
        const double want = value_at(dtype, expected[o].data() + i), got = value_at(dtype, made[o].data() + i);
        if (got == want) continue;  // infinities among them
        ASSERT_NEAR(got, want, tolerance * (1 + std::abs(want)))
            << "sample " << k << " output " << o << " element " << i / size << " of " << sample.rows << " rows of "
            << sample.n << "\n"
            << emitted[k].source;
      }
    }
  }
}

TEST(FusedEmit, rows_that_no_kernel_takes_say_why) {
  std::string why;
  RowStep step;
  step.kind = RowStep::fold;
  EXPECT_FALSE(plan_of(step, kF32, 1 << 15, why));
  EXPECT_EQ(why, "its rows are longer than registers hold");
  EXPECT_FALSE(plan_of(step, kI64, 1024, why));
  EXPECT_EQ(why, "its elements are no floats");
  EXPECT_TRUE(plan_of(step, kF32, 1 << 14, why));
  step.kind = RowStep::softmax;
  EXPECT_FALSE(plan_of(step, kF32, 1023, why));
  EXPECT_EQ(why, "its rows are no whole runs of 16 bytes");
  EXPECT_FALSE(plan_of(step, kF32, 1 << 20, why));
  EXPECT_EQ(why, "its rows are longer than registers hold");
  EXPECT_FALSE(plan_of(step, kI32, 1024, why));
  for (const DType t : {kF32, kF64, kBF16, kF16}) EXPECT_TRUE(plan_of(step, t, 1024, why));
}

class FusedEmitNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    if (!Nvrtc::get().missing().empty()) GTEST_SKIP() << "no NVRTC: " << Nvrtc::get().missing();
  }
  static std::string refusal(const MapCall& call) { return refusal(emit_map(call, Walk(call)).source); }
  static std::string refusal(const std::string& source) {
    const Compiled made = Nvrtc::get().compile(source, embedded_headers(), nvrtc_flags("sm_90"));
    return made.log.empty() && !made.cubin.empty() ? "" : made.log + "\n" + source;
  }
};

TEST_F(FusedEmitNvrtc, every_row_compiles_in_every_type_of_computation) {
  for (const DType compute : {kF32, kF64, kI64}) {
    FusedOperand x;
    x.layout = Layout::contiguous({64});
    x.dtype = compute;
    const std::vector<FusedOperand> inputs(4, x);
    std::vector<FusedStep> steps;
    std::vector<FusedOutput> outputs;
    const auto flush = [&] {
      EXPECT_EQ(refusal(MapCall(FusedCall{{64}, inputs, steps, outputs})), "");
      steps.clear(), outputs.clear();
    };
    for (int op = 0; op < kPointwiseCount; ++op) {
      const PointwiseRow& row = lorry::row(static_cast<Pointwise>(op));
      const bool whole_only = row.domain == Domain::whole || row.domain == Domain::integer;
      if (compute == kI64 ? row.domain == Domain::floating || row.result == Result::real : whole_only) continue;
      FusedStep step;
      step.op = static_cast<Pointwise>(op);
      step.compute = compute;
      step.result = step.dtype = row.result == Result::truth ? kBool : compute;
      step.arity = static_cast<int8_t>(row.arity);
      for (int16_t k = 0; k < step.arity; ++k) step.in[k] = k;
      FusedOutput out{{x.layout, step.dtype}, static_cast<int16_t>(4 + steps.size())};
      steps.push_back(step), outputs.push_back(out);
      if (steps.size() == 30) flush();
    }
    flush();
  }
}

TEST_F(FusedEmitNvrtc, rows_compile) {
  Random random(5);
  for (int k = 0; k < 12; ++k) EXPECT_EQ(refusal(emit_rows(RowSampler(random).sample().call()).source), "");
}

TEST_F(FusedEmitNvrtc, conversions_between_all_dtypes_compile) {
  FusedOperand x;
  x.layout = Layout::contiguous({64});
  std::vector<FusedOperand> inputs;
  std::vector<FusedStep> steps;
  std::vector<FusedOutput> outputs;
  for (const DType from : kDTypes) inputs.emplace_back(x).dtype = from;
  for (const DType to : kDTypes) {
    steps.clear(), outputs.clear();
    for (int16_t i = 0; i < kDTypeCount; ++i) {
      FusedStep& step = steps.emplace_back();
      step.kind = FusedStep::convert;
      step.dtype = to;
      step.in[0] = i;
      outputs.push_back({{x.layout, to}, static_cast<int16_t>(kDTypeCount + i)});
    }
    EXPECT_EQ(refusal(MapCall(FusedCall{{64}, inputs, steps, outputs})), "");
  }
}

}  // namespace
}  // namespace lorry::kernels::cuda::test
