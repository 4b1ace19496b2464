// Generated kernels that also sum over rows, without a GPU: the host's compiler compiles the source and every thread of
// every block runs in turn (cuda_on_host.h), against sums in f64; and NVRTC must take the sources.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "lorry/kernels/backend.h"
#include "lorry/kernels/cuda/fused/column_arguments.h"
#include "lorry/kernels/cuda/fused/embedded.h"
#include "lorry/kernels/cuda/fused/runtime_compiler.h"
#include "tests/kernels/host_library.h"

namespace lorry::kernels::cuda::test {
namespace {

/// y = x * column + row, of which the sums are wanted, z = y * number in f32, also with sums; x, column and row are
/// of one dtype. y is stored, z is not.
struct Sample {
  int64_t rows, n, stride;
  DType dtype, sum_dtype;
  std::vector<FusedOperand> inputs;
  std::vector<FusedStep> steps;
  std::vector<FusedOutput> outputs;
  std::vector<FusedSum> sums;
  std::vector<std::vector<char>> memory;

  /// Without random numbers there is no memory.
  Sample(int64_t rows_, int64_t n_, DType dtype_, DType sum_dtype_, std::mt19937_64* random = nullptr)
      : rows(rows_), n(n_), stride(n_ + kSummedRun), dtype(dtype_), sum_dtype(sum_dtype_) {
    add_input(Dims{stride, 1}, rows * stride, random), add_input(Dims{0, 1}, n, random);
    add_input(Dims{1, 0}, rows, random);
    inputs.emplace_back().layout.rank = -1;
    inputs.back().dtype = kF64, inputs.back().number.real = -0.75;
    memory.emplace_back();
    const auto add_step = [&](Pointwise op, int16_t a, int16_t b, DType to) {
      FusedStep& step = steps.emplace_back();
      step.op = op, step.arity = 2, step.in[0] = a, step.in[1] = b;
      step.compute = dtype == kF64 ? kF64 : kF32;
      step.result = step.dtype = to;
    };
    add_step(Pointwise::mul, 0, 1, dtype);
    add_step(Pointwise::add, 4, 2, dtype);
    add_step(Pointwise::mul, 5, 3, dtype == kF64 ? kF64 : kF32);
    outputs.push_back({{Layout::contiguous({rows, n}), dtype}, 5});
    sums = {{5, sum_dtype}, {6, kF32}};
  }
  MapCall call(bool with_sums = true) const {
    return MapCall(FusedCall{{rows, n}, inputs, steps, outputs, with_sums ? sums : std::vector<FusedSum>()});
  }

 private:
  void add_input(const Dims& strides, int64_t count, std::mt19937_64* random) {
    inputs.push_back({Layout::strided({rows, n}, strides), dtype});
    if (random == nullptr) return;
    memory.emplace_back(static_cast<size_t>(count * size_of(dtype)) + 64);
    std::normal_distribution<float> normal;
    visit_floating(dtype, [&]<class T>(Type<T>) {
      for (int64_t i = 0; i < count; ++i) {
        const T x(normal(*random));
        std::memcpy(address(memory.size() - 1) + static_cast<size_t>(i) * sizeof x, &x, sizeof x);
      }
    });
  }

 public:
  /// Aligned.
  char* address(size_t input) {
    char* const at = memory[input].data();
    return at + (64 - reinterpret_cast<uintptr_t>(at) % 64) % 64;
  }
};

double value_at(DType dtype, const void* from, int64_t i) {
  return visit_floating(dtype, [&]<class T>(Type<T>) {
    T x;
    std::memcpy(&x, static_cast<const char*>(from) + static_cast<size_t>(i) * sizeof x, sizeof x);
    return static_cast<double>(static_cast<Accumulate<T>>(x));
  });
}

std::vector<Sample> samples() {
  std::mt19937_64 random(20261125);
  std::vector<Sample> all;
  for (const DType dtype : {kBF16, kF16, kF32, kF64})
    for (const auto& [rows, n] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 8}, {1, 2048}, {3, 16}, {77, 24}, {1025, 8}, {1500, 304}, {5, 4096}, {70'000, 8}})
      all.emplace_back(rows, n, dtype, rows % 2 == 0 ? kF32 : dtype, &random);
  return all;
}

TEST(ColumnEmit, sources_compiled_for_the_host_give_the_map_and_its_sums) {
  std::vector<Sample> all = samples();
  std::vector<EmittedColumns> emitted;
  for (const Sample& x : all) emitted.push_back(emit_columns(x.call()));
  const HostLibrary library(emitted, "column_kernel.h", "run_blocks");
  for (size_t k = 0; k < all.size(); ++k) {
    Sample& x = all[k];
    const ColumnTiling& tiling = emitted[k].tiling;
    SCOPED_TRACE(fmt::format("{} rows of {} {}, {} parts\n{}", x.rows, x.n, x.dtype, tiling.parts, emitted[k].source));
    const size_t elements = static_cast<size_t>(x.rows * x.n);
    std::vector<double> expected(elements), made(elements), f64(static_cast<size_t>(x.n)),
        f32(static_cast<size_t>(x.n)), cells(static_cast<size_t>(2 * tiling.parts * tiling.part_cells));
    std::vector<uint32_t> tickets(static_cast<size_t>(tiling.tiles));
    std::vector<void*> inputs{x.address(0), x.address(1), x.address(2), nullptr};
    const MapCall plain = x.call(false);
    backend(kCPU)
        .fused->make({plain.sizes, plain.inputs, plain.steps, plain.outputs}, kCPU)
        ->run(inputs, std::vector<void*>{expected.data()}, {});
    ArgumentWords words;
    const std::vector<void*> outputs{made.data(), f64.data(), f32.data()};
    const ColumnArgument argument(x.call(), emitted[k]);
    for (int turn = 0; turn < 2; ++turn) {  // the second one finds the tickets as the first one left them
      ASSERT_TRUE(argument.write(words, inputs, outputs, cells.data(), tickets.data()));
      library.run(k)(words.data(), tiling.blocks(), kMapBlock);
    }
    ASSERT_EQ(std::memcmp(made.data(), expected.data(), elements * static_cast<size_t>(size_of(x.dtype))), 0);
    const double unit = x.dtype == kF64 ? 1e-6 : x.sum_dtype == kBF16 ? 4e-3 : x.sum_dtype == kF16 ? 5e-4 : 2e-6;
    for (int64_t c = 0; c < x.n; ++c) {
      double total = 0, size = 0, scaled = 0;
      for (int64_t r = 0; r < x.rows; ++r) {
        const double y = value_at(x.dtype, expected.data(), r * x.n + c);
        total += y, size += std::abs(y), scaled += static_cast<double>(static_cast<float>(y * -0.75));
      }
      ASSERT_NEAR(value_at(x.sum_dtype, f64.data(), c), total, unit * std::abs(total) + 2e-6 * size) << c;
      ASSERT_NEAR(value_at(kF32, f32.data(), c), scaled, 3e-6 * size) << c;
    }
    EXPECT_EQ(tickets, std::vector<uint32_t>(tickets.size()));
    inputs[0] = x.address(0) + size_of(x.dtype);
    EXPECT_FALSE(argument.write(words, inputs, outputs, cells.data(), tickets.data()));
  }
}

TEST(ColumnEmit, every_element_has_a_block_and_large_shapes_fill_a_gpu) {
  for (const int64_t rows : {1, 7, 100, 8192})
    for (const int64_t n : {8, 64, 768, 3072, 16384}) {
      const ColumnTiling tiling = emit_columns(Sample(rows, n, kBF16, kBF16).call()).tiling;
      const int64_t lanes = int64_t{1} << tiling.lane_bits;
      EXPECT_GE(tiling.tiles * lanes * 8, n);
      EXPECT_LT((tiling.tiles - 1) * lanes * 8, n);
      EXPECT_LE(tiling.parts, rows);
      if (rows == 8192 && n >= 768) {
        EXPECT_GT(tiling.blocks(), 250u) << n;
      }
    }
}

TEST(ColumnEmit, nvrtc_takes_the_sources) {
  if (!Nvrtc::get().missing().empty()) GTEST_SKIP() << "no NVRTC: " << Nvrtc::get().missing();
  for (const DType dtype : {kBF16, kF16, kF32, kF64}) {
    const EmittedColumns emitted = emit_columns(Sample(100, 64, dtype, dtype).call());
    const Compiled made = Nvrtc::get().compile(emitted.source, embedded_headers(), nvrtc_flags("sm_90"));
    EXPECT_EQ(made.log, "") << emitted.source;
    EXPECT_FALSE(made.cubin.empty()) << emitted.source;
  }
}

}  // namespace
}  // namespace lorry::kernels::cuda::test
