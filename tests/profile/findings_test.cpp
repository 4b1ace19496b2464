// Findings in recordings that are made by hand.

#include "lorry/profile/diagnose.h"

#include <gtest/gtest.h>

#include <array>

#include "lorry/base/error.h"
#include "tests/profile/made_recording.h"

namespace lorry::profile {
namespace {

using test::find;
using test::kMicro;
using test::options;
using Maker = test::RecordingMaker;

/// Round i of a loop: a transposed tensor is made contiguous for a sum, at the same line each time. Returns both calls.
std::array<int32_t, 2> copy_and_sum(Maker& m, uint64_t i) {
  const int64_t at = static_cast<int64_t>(i) * 300 * kMicro;
  const int32_t copy = m.call(Op::clone, at, at + 200 * kMicro, 100 * kMicro);
  m.operands(copy, {{10 * i + 1, {100, 100}, false}}, {{10 * i + 2, {100, 100}}});
  const int32_t sum = m.call(Op::sum, at + 200 * kMicro, at + 300 * kMicro, 40 * kMicro);
  m.operands(sum, {{10 * i + 2, {100, 100}}}, {{10 * i + 3, {100}}});
  return {copy, sum};
}

TEST(Findings, at_one_place_are_joined) {
  Maker m;
  for (const uint64_t i : {0, 1}) copy_and_sum(m, i);
  const Diagnosis d = diagnose(m.recording(), options());
  const Finding* found = find(d, Finding::Kind::contiguous);
  ASSERT_NE(found, nullptr) << to_string(d);
  EXPECT_EQ(std::ranges::count(d.findings, Finding::Kind::contiguous, &Finding::kind), 1);
  EXPECT_EQ(found->count, 2);
  EXPECT_DOUBLE_EQ(found->time_ns, 400 * kMicro);
  EXPECT_EQ(found->gain_bytes, 2 * 100 * 100 * 4);
}

TEST(Findings, of_layers_share_a_path_with_stars_where_their_paths_differ) {
  for (const bool differ : {false, true}) {
    Maker m;
    Recording& r = m.recording();
    r.paths.insert(r.paths.end(), {"block3.mlp", "block4.mlp"});
    for (const uint64_t i : {0, 1})
      for (const int32_t x : copy_and_sum(m, i)) r.spans[static_cast<size_t>(x)].path = differ && i == 1 ? 2 : 1;
    const Diagnosis d = diagnose(r, options());
    const Finding* found = find(d, Finding::Kind::contiguous);
    ASSERT_NE(found, nullptr) << to_string(d);
    EXPECT_EQ(found->count, 2);
    EXPECT_EQ(found->path, differ ? "block*.mlp" : "block3.mlp");
  }
}

TEST(Findings, of_alignment_judge_the_matrices_that_are_multiplied) {
  struct Case {
    Op op;
    std::vector<test::Operand> inputs;
    bool is_found;
  };
  for (const Case& c : {Case{Op::matmul, {{1, {64, 64}}, {2, {64, 64}}}, false},
                        {Op::matmul, {{1, {64, 65}}, {2, {65, 64}}}, true},
                        {Op::matmul, {{1, {7, 64, 64}}, {2, {7, 64, 64}}}, false},      // a batch of any size
                        {Op::addmm, {{4, {65}}, {1, {64, 64}}, {2, {64, 64}}}, false},  // what is added is none
                        {Op::addmm, {{4, {64, 65}}, {1, {64, 64}}, {2, {64, 65}}}, true}}) {
    Maker m;
    const int32_t call = m.call(c.op, 0, 10 * kMicro, 40'000, 200 * kMicro);
    m.operands(call, c.inputs, {{3, {64, 64}}});
    m.kernel(call, 5 * kMicro, 10 * kMicro, 1000 * kMicro);
    const Diagnosis d = diagnose(m.recording(), options());
    EXPECT_EQ(find(d, Finding::Kind::alignment) != nullptr, c.is_found) << name(c.op) << "\n" << to_string(d);
  }
}

TEST(Findings, with_little_gain_are_left_out) {
  Maker m;
  const int32_t copy = m.call(Op::clone, 0, 10 * kMicro, 80'000);
  m.operands(copy, {{1, {100, 100}, false}}, {{2, {100, 100}}});
  const int32_t sum = m.call(Op::sum, 10 * kMicro, 1000 * kMicro, 40 * kMicro);
  m.operands(sum, {{2, {100, 100}}}, {{3, {100}}});
  EXPECT_EQ(find(diagnose(m.recording(), options(0.02)), Finding::Kind::contiguous), nullptr);
  EXPECT_NE(find(diagnose(m.recording(), options(0.005)), Finding::Kind::contiguous), nullptr);
  EXPECT_THROW(diagnose(m.recording(), options(-1)), ValueError);
}

TEST(Findings, of_a_slow_dtype_name_the_rates) {
  Maker m;
  const int32_t product = m.call(Op::matmul, 0, 100 * kMicro, 100, 80 * kMicro);
  m.operands(product, {{1, {64, 64}}, {2, {64, 64}}}, {{3, {64, 64}}});
  DiagnoseOptions with = options();
  with.ceilings[0].matmul_flops_per_s[kF64] = 2e9;
  const Diagnosis d = diagnose(m.recording(), with);
  const Finding* found = find(d, Finding::Kind::dtype);
  ASSERT_NE(found, nullptr) << to_string(d);
  EXPECT_DOUBLE_EQ(found->gain_ns, 50 * kMicro);
  EXPECT_NE(found->what.find("f64"), std::string::npos) << found->what;
  EXPECT_EQ(find(diagnose(m.recording(), options()), Finding::Kind::dtype), nullptr);
}

TEST(Findings, of_batches_need_small_products_that_are_independent) {
  struct Case {
    int64_t n;
    bool depends, is_found;
  };
  for (const Case c : {Case{8, false, true}, {8, true, false}, {64, false, false}}) {
    Maker m;
    const int64_t least = 2 * c.n * c.n * c.n, each = 3 * least;
    for (uint64_t i = 0; i < 10; ++i) {
      const auto at = static_cast<int64_t>(i) * 2 * each;
      const uint64_t left = c.depends ? 10 * i : 10 * i + 1;
      m.operands(m.call(Op::matmul, at, at + each, 12 * c.n * c.n, least), {{left, {c.n, c.n}}, {7, {c.n, c.n}}},
                 {{10 * i + 10, {c.n, c.n}}});
    }
    const Diagnosis d = diagnose(m.recording(), options(0));
    const Finding* found = find(d, Finding::Kind::batch);
    ASSERT_EQ(found != nullptr, c.is_found) << to_string(d);
    if (found == nullptr) continue;
    EXPECT_EQ(found->count, 10);
    EXPECT_DOUBLE_EQ(found->time_ns, 10.0 * 3 * 1024);
    // A batch takes 1.3 of the ceiling, two calls of 100, and the price of 4 calls for each product.
    EXPECT_NEAR(found->gain_ns, 10 * 3 * 1024 - (1.3 * 10 * 1024 + 200 + 10 * 400), 1e-6);
  }
}

// Elements of a tensor, selected by views and written or only read.
TEST(Findings, of_single_elements_count_what_views_select) {
  for (const bool writes : {true, false}) {
    Maker m(200);
    for (int64_t i = 0; i < 100; ++i) {
      const int32_t view = m.call(Op::select, 2000 * i, 2000 * i + 300);
      m.operands(view, {{1, {100}}}, {{1, {}}});
      if (writes) m.operands(m.call(Op::fill, 2000 * i + 1000, 2000 * i + 1300, 4), {{1, {}}});
    }
    const Diagnosis d = diagnose(m.recording(), options());
    const Finding* found = find(d, Finding::Kind::elements);
    ASSERT_NE(found, nullptr) << to_string(d);
    EXPECT_EQ(found->count, 100);
    // Each call and what follows it, without the 200 of recording: 100 times 2 x (1000 - 200) or 2000 - 200. Nothing
    // follows the last call, and the cure is two calls of 100.
    EXPECT_DOUBLE_EQ(found->gain_ns, writes ? 100 * 1600 - 500 - 200 : 100 * 1800 - 1500 - 200);
    EXPECT_EQ(find(d, Finding::Kind::graph), nullptr) << "the calls are claimed";
  }
}

TEST(Findings, of_loops_need_rounds_that_are_independent) {
  for (const bool depends : {false, true}) {
    Maker m;
    for (uint64_t i = 0; i < 40; ++i) {
      // z = x * y, then z + 1; in the dependent form the next round multiplies that.
      const auto at = static_cast<int64_t>(4000 * i);
      const uint64_t x = depends && i > 0 ? 10 * i + 2 : 10 * i + 11;
      m.operands(m.call(Op::mul, at, at + 500, 600), {{x, {50}}, {5, {50}}}, {{10 * i + 13, {50}}});
      m.operands(m.call(Op::add, at + 2000, at + 2500, 600), {{10 * i + 13, {50}}, {}}, {{10 * i + 12, {50}}});
    }
    const Diagnosis d = diagnose(m.recording(), options());
    EXPECT_EQ(find(d, Finding::Kind::foreach) != nullptr, !depends) << to_string(d);
  }
}

TEST(Findings, of_chains_gain_what_lies_between) {
  Maker m;
  constexpr int64_t kBytes = int64_t{4} << 20;  // of 2^20 floats
  // y = x * 2, z = y + 1: each reads and writes 8 MB in 10 ms.
  m.operands(m.call(Op::mul, 0, 10'000 * kMicro, 2 * kBytes), {{1, {1 << 20}}}, {{2, {1 << 20}}});
  m.operands(m.call(Op::add, 10'000 * kMicro, 20'000 * kMicro, 2 * kBytes), {{2, {1 << 20}}}, {{3, {1 << 20}}});
  const Diagnosis d = diagnose(m.recording(), options());
  const Finding* found = find(d, Finding::Kind::fuse);
  ASSERT_NE(found, nullptr) << to_string(d);
  EXPECT_DOUBLE_EQ(found->time_ns, 20'000 * kMicro);
  EXPECT_DOUBLE_EQ(found->gain_ns, 10'000 * kMicro + 100) << "y is neither written nor read, and a call is saved";
  EXPECT_EQ(find(d, Finding::Kind::out_of_place), nullptr) << "the calls are claimed";
}

TEST(Findings, of_chains_gain_no_arithmetic) {
  Maker m;
  constexpr int64_t kBytes = int64_t{4} << 20;
  // Two calls that move 8 MB, for which 8.4 ms are enough, and compute for 100 ms.
  m.operands(m.call(Op::exp, 0, 100'000 * kMicro, 2 * kBytes), {{1, {1 << 20}}}, {{2, {1 << 20}}});
  m.operands(m.call(Op::tan, 100'000 * kMicro, 200'000 * kMicro, 2 * kBytes), {{2, {1 << 20}}}, {{3, {1 << 20}}});
  const Diagnosis d = diagnose(m.recording(), options());
  const Finding* found = find(d, Finding::Kind::fuse);
  ASSERT_NE(found, nullptr) << to_string(d);
  EXPECT_DOUBLE_EQ(found->time_ns, 200'000 * kMicro);
  EXPECT_DOUBLE_EQ(found->gain_ns, 2 * kBytes / 0.3 + 100)
      << "no more than what a call that moves bytes takes for them";
}

TEST(Findings, of_chains_leave_out_loops_over_one_call) {
  Maker m;
  for (uint64_t i = 0; i < 8; ++i) {
    const auto at = static_cast<int64_t>(i) * 10'000 * kMicro;
    m.operands(m.call(Op::add, at, at + 10'000 * kMicro, 8 << 20), {{i + 1, {1 << 20}}}, {{i + 2, {1 << 20}}});
  }
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(find(d, Finding::Kind::fuse), nullptr) << to_string(d);
  const Finding* found = find(d, Finding::Kind::out_of_place);
  ASSERT_NE(found, nullptr) << to_string(d);
  EXPECT_EQ(found->count, 7) << "the first tensor was not made here";
  EXPECT_DOUBLE_EQ(found->gain_ns, 7 * 10'000 * kMicro / 3.0);
  EXPECT_EQ(found->gain_bytes, 4 << 20);
}

TEST(Findings, of_new_tensors_leave_out_those_that_are_given) {
  Maker m;
  // y = f(x); y = g(y), written to the same tensor by an out= form.
  m.operands(m.call(Op::tan, 0, 10'000 * kMicro, 8 << 20), {{1, {1 << 20}}}, {{2, {1 << 20}}});
  m.gap(10'000 * kMicro, 20'000 * kMicro, 10'000 * kMicro);
  m.operands(m.call(Op::exp, 20'000 * kMicro, 30'000 * kMicro, 8 << 20), {{2, {1 << 20}}}, {{2, {1 << 20}}});
  const Diagnosis d = diagnose(m.recording(), options());
  EXPECT_EQ(find(d, Finding::Kind::out_of_place), nullptr) << to_string(d);
  EXPECT_EQ(find(d, Finding::Kind::fuse), nullptr) << "the program slept between the two";
}

TEST(Findings, of_steps_gain_the_time_between_calls) {
  for (const bool replays : {false, true}) {
    Maker m(200);
    constexpr int64_t kCalls = 50;
    const Op ops[] = {Op::add, Op::mul, Op::matmul, Op::sub, Op::div};
    for (int64_t i = 0; i < kCalls; ++i) {
      const int32_t call = m.call(ops[i % 5], 2000 * i, 2000 * i + 1000, 400);
      if (replays) m.recording().spans[static_cast<size_t>(call)].kind = SpanKind::replayed;
    }
    const Diagnosis d = diagnose(m.recording(), options());
    const Finding* found = find(d, Finding::Kind::graph);
    ASSERT_EQ(found != nullptr, !replays) << to_string(d);
    if (replays) continue;
    EXPECT_EQ(found->count, 10);
    // 49 times 1000 between two calls, without the 200 of recording each call; and 1.5 calls of 100 for each.
    EXPECT_NEAR(found->gain_ns, 49 * 1000 - 50 * 200 + 50 * 150, 1e-6);
  }
}

TEST(Findings, of_chains_and_graphs_on_a_gpu_gain_different_time) {
  Maker m(200);
  // 10 steps of 5 calls that read 80 KB and write as much, each 200 us of a GPU and 1000 of the host.
  const Op ops[] = {Op::add, Op::mul, Op::exp, Op::sub, Op::div};
  for (uint64_t i = 0; i < 50; ++i) {
    const int64_t at = static_cast<int64_t>(i) * 1000 * kMicro;
    const int32_t call = m.call(ops[i % 5], at, at + 900 * kMicro, 160'000);
    m.operands(call, {{i % 5 == 0 ? 1 : 100 + i, {20'000}}}, {{101 + i, {20'000}}});
    m.kernel(call, at + 100 * kMicro, at + 500 * kMicro, at + 700 * kMicro);
  }
  const Diagnosis d = diagnose(m.recording(), options());
  const Finding *fuse = find(d, Finding::Kind::fuse), *graph = find(d, Finding::Kind::graph);
  ASSERT_NE(fuse, nullptr) << to_string(d);
  ASSERT_NE(graph, nullptr) << to_string(d);
  EXPECT_LE(fuse->gain_ns, d.busy_ns);
  // From the first call to the end of the last, without the work of 50 kernels and the recording of 50 calls.
  EXPECT_NEAR(graph->gain_ns, (50'000 - 100 - 50 * 200) * kMicro - 50 * 200, 1);
}

TEST(Findings, of_steps_count_no_time_that_other_programs_took) {
  Maker m(200);
  const Op ops[] = {Op::add, Op::mul, Op::matmul, Op::sub, Op::div};
  for (int64_t i = 0; i < 50; ++i) m.call(ops[i % 5], 2000 * i, 2000 * i + 1000, 400);
  const double alone = find(diagnose(m.recording(), options()), Finding::Kind::graph)->gain_ns;
  m.recording().threads[0].cpu_ns = m.recording().duration / 4;
  EXPECT_NEAR(find(diagnose(m.recording(), options()), Finding::Kind::graph)->gain_ns, alone / 4, 1);
}

TEST(Findings, together_gain_no_more_than_the_program_takes) {
  Maker m;
  // Steps in which elements are written, a list is stepped in a loop, and a chain follows.
  for (uint64_t step = 0; step < 6; ++step) {
    int64_t at = static_cast<int64_t>(step) * 1'000'000;
    for (int i = 0; i < 80; ++i, at += 2000) {
      m.operands(m.call(Op::select, at, at + 300), {{1, {100}}}, {{1, {}}});
      m.operands(m.call(Op::fill, at + 1000, at + 1300, 4), {{1, {}}});
    }
    for (uint64_t i = 0; i < 80; ++i, at += 2000)
      m.operands(m.call(Op::sub, at, at + 500, 600), {{100 + i, {50}}, {5, {50}}});
    for (uint64_t i = 0; i < 6; ++i, at += 20'000)
      m.operands(m.call(i % 2 == 0 ? Op::exp : Op::mul, at, at + 15'000, 80'000), {{200 + i, {10'000}}},
                 {{201 + i, {10'000}}});
  }
  const Diagnosis d = diagnose(m.recording(), options(0));
  double gain = 0;
  for (const Finding& x : d.findings) gain += x.gain_ns;
  EXPECT_NE(find(d, Finding::Kind::elements), nullptr) << to_string(d);
  EXPECT_NE(find(d, Finding::Kind::foreach), nullptr) << to_string(d);
  EXPECT_NE(find(d, Finding::Kind::fuse), nullptr) << to_string(d);
  EXPECT_LT(gain, static_cast<double>(d.duration_ns)) << to_string(d);
}

}  // namespace
}  // namespace lorry::profile
