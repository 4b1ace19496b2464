#include "lorry/profile/apply.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lorry/lorry.h"
#include "lorry/profile/recorded_calls.h"
#include "lorry/profile/session.h"
#include "tests/support/on_cuda.h"

namespace lorry {
namespace {

using profile::apply;
using profile::ApplyOptions;
using profile::Cure;
using profile::Finding;
using profile::Trial;
using profile::TriedCure;
using test::kGPU;
using Kind = Finding::Kind;

/// Short, against ceilings that need no measuring: a call costs 0.1 us, and memory is so fast that only calls count.
ApplyOptions quick(Device device, bool everything = false) {
  profile::Ceilings known;
  known.device = device;
  known.copy_bytes_per_s = known.read_bytes_per_s = 1e12;
  known.launch_s = 1e-7;
  known.matmul_flops_per_s = {{kF32, 1e10}};
  return {.steps = 4,
          .seconds = 0.05,
          .everything = everything,
          .device = device,
          .diagnose = {.least_gain = 0.001, .ceilings = {known}}};
}

const TriedCure* find(const Trial& trial, Kind kind) {
  const auto found = std::ranges::find(trial.cures, kind, &TriedCure::kind);
  return found != trial.cures.end() ? &*found : nullptr;
}

TEST(Apply, measures_the_compiled_function_where_a_chain_was_found) {
  for (const Device device : test::all_devices()) {
    const Tensor x = rand({512, 512}, {.device = device});
    const Trial trial =
        apply([&] { return std::vector{x.mul(2).add(1).sigmoid().mul(3).tanh().add(x)}; }, quick(device));
    ASSERT_TRUE(trial.diagnosis.is_complete());
    const TriedCure* const fused = find(trial, Kind::fuse);
    ASSERT_NE(fused, nullptr) << to_string(trial.diagnosis);
    EXPECT_EQ(fused->failed, "");
    EXPECT_GE(fused->findings, 1);
    EXPECT_GT(fused->predicted_us, 0);
    EXPECT_GT(fused->now_us, 0);
    EXPECT_GT(fused->then_us, 0);
    EXPECT_LE(fused->low_us, fused->achieved_us);
    EXPECT_GE(fused->high_us, fused->achieved_us);
    EXPECT_DOUBLE_EQ(fused->ratio(), fused->achieved_us / fused->predicted_us);
    double predicted = 0;  // from the diagnosis, per step
    for (const Finding& f : trial.diagnosis.findings)
      if (f.kind == Kind::fuse) predicted += f.gain_ns / 1000 / static_cast<double>(trial.steps);
    EXPECT_NEAR(fused->predicted_us, predicted, 1e-9 * predicted);
  }
}

TEST(Apply, makes_the_loop_over_tensors_again_as_one_call_over_lists) {
  for (const Device device : test::all_devices()) {
    std::vector<Tensor> params, grads;
    for (int i = 0; i < 24; ++i) {
      params.push_back(zeros({3 + i, 5}, {.device = device}));
      grads.push_back(ones({3 + i, 5}, {.device = device}));
    }
    int steps = 0;
    const Trial trial = apply(
        [&] {
          for (size_t i = 0; i < params.size(); ++i) {
            params[i].mul_(1);
            params[i].add_(grads[i]);
          }
          ++steps;
        },
        {}, quick(device));
    const TriedCure* const cure = find(trial, Kind::foreach);
    ASSERT_NE(cure, nullptr) << to_string(trial.diagnosis);
    EXPECT_EQ(cure->failed, "");
    EXPECT_GT(cure->now_us, 0);
    EXPECT_GT(cure->then_us, 0);
    EXPECT_GE(trial.steps, 4);
    EXPECT_GE(steps, trial.steps + 3);
    EXPECT_EQ(params[0].mean().item<double>(), steps) << "the calls that were made again wrote other tensors";
  }
}

Finding finding_at_first_span(const profile::Recording& r, Kind kind) {
  const profile::SpanRecord& first = r.spans.at(0);
  return {.kind = kind,
          .path = r.paths[static_cast<size_t>(first.path)],
          .line = r.lines[static_cast<size_t>(first.line)],
          .count = 1};
}

/// The recorded calls that are made again are those of the program: as many, of the same sizes.
TEST(Apply, the_loop_that_is_made_again_has_the_calls_of_the_program) {
  std::vector<Tensor> all;
  for (int i = 0; i < 10; ++i) all.push_back(ones({4 + i}, {.device = kCPU}));
  profile::Session session;
  for (const Tensor& x : all) x.mul_(2);
  const profile::Recording recording = session.stop();
  const std::vector<profile::Ceilings> ceilings;
  const profile::ProgramView program(recording, ceilings);
  const Finding finding = finding_at_first_span(recording, Kind::foreach);
  const auto pair = profile::loop_and_list(program, finding);
  ASSERT_TRUE(pair);
  profile::Session again;
  pair->now();
  const profile::Recording loop = again.stop();
  profile::Session listed;
  pair->then();
  const profile::Recording list = listed.stop();
  EXPECT_EQ(pair->count, 1);
  ASSERT_EQ(loop.spans.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(loop.spans[i].op, Op::mul);
    EXPECT_TRUE(loop.spans[i].in_place);
    EXPECT_EQ(loop.spans[i].bytes, recording.spans[i].bytes);
  }
  ASSERT_EQ(list.spans.size(), 1u);
  EXPECT_EQ(list.spans[0].op, Op::foreach_mul);
  EXPECT_TRUE(list.spans[0].in_place);
  Finding elsewhere = finding;
  elsewhere.line = "another.cpp:1";
  EXPECT_FALSE(profile::loop_and_list(program, elsewhere));
}

TEST(Apply, copies_are_made_again_from_and_to_pinned_memory) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor large = ones({1 << 18}, {.device = kCPU}), small = ones({64}, {.device = kCPU});
  const auto copies_of = [](const profile::Recording& r) {  // bytes, and whether the memory of the host is pinned
    const std::vector<profile::Ceilings> ceilings;
    const profile::ProgramView program(r, ceilings);
    std::vector<std::pair<int64_t, bool>> found;
    for (const profile::SpanRecord& x : r.spans)
      if (const auto copy = program.link_copy(x)) found.emplace_back(profile::bytes_of(*copy->from), copy->is_pinned());
    return found;
  };
  for (const bool to_device : {true, false}) {
    const Tensor from = large.to(to_device ? kCPU : kGPU), few = small.to(from.device());
    profile::Session session;
    for (int i = 0; i < 3; ++i) from.to(to_device ? kGPU : kCPU);
    few.to(to_device ? kGPU : kCPU);  // too small to matter
    const profile::Recording recording = session.stop();
    const std::vector<profile::Ceilings> ceilings;
    const profile::ProgramView program(recording, ceilings);
    ASSERT_EQ(recording.spans.size(), 4u);
    const Finding finding = finding_at_first_span(recording, Kind::pageable);
    const auto pair = profile::pageable_and_pinned(program, finding);
    ASSERT_TRUE(pair);
    EXPECT_EQ(pair->count, 3);
    profile::Session again;
    pair->now();
    const profile::Recording now = again.stop();
    profile::Session cured;
    pair->then();
    const profile::Recording then = cured.stop();
    const std::vector<std::pair<int64_t, bool>> pageable(3, {large.nbytes(), false}), pinned(3, {large.nbytes(), true});
    EXPECT_EQ(copies_of(now), pageable);
    EXPECT_EQ(copies_of(then), pinned);
    Finding elsewhere = finding;
    elsewhere.line = "another.cpp:1";
    EXPECT_FALSE(profile::pageable_and_pinned(program, elsewhere));
  }
}

TEST(Apply, tries_the_callers_cures_and_says_which_were_not_possible) {
  const Tensor x = rand({64, 64}, {.device = kCPU});
  int made = 0, cured = 0;
  const std::vector<Cure> cures = {{.kind = Kind::optimizer,
                                    .name = "other",
                                    .make = [&]() -> std::function<void()> {
                                      ++made;
                                      return [&] { ++cured; };
                                    }},
                                   {.kind = Kind::graph, .name = "impossible", .make = []() -> std::function<void()> {
                                      raise<CaptureError>("the host reads elements");
                                    }}};
  const auto step = [&] { profile::do_not_optimize(x.mul(2)); };
  EXPECT_EQ(find(apply(step, cures, quick(kCPU)), Kind::optimizer), nullptr) << "the diagnosis found none";
  EXPECT_EQ(made, 0);
  const Trial trial = apply(step, cures, quick(kCPU, true));
  EXPECT_EQ(made, 1);
  EXPECT_GT(cured, 0);
  ASSERT_NE(find(trial, Kind::optimizer), nullptr);
  EXPECT_EQ(find(trial, Kind::optimizer)->findings, 0);
  EXPECT_EQ(find(trial, Kind::optimizer)->ratio(), 0) << "nothing was predicted";
  EXPECT_LT(find(trial, Kind::optimizer)->then_us, find(trial, Kind::optimizer)->now_us);
  ASSERT_NE(find(trial, Kind::graph), nullptr);
  EXPECT_EQ(find(trial, Kind::graph)->failed, "the host reads elements");
  const std::string text = to_string(trial);
  EXPECT_NE(text.find("not possible: the host reads elements"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(to_json(trial));
  ASSERT_EQ(json.at("cures").size(), 2u);
  EXPECT_EQ(json.at("cures")[0].at("cure"), "other");
  EXPECT_FALSE(json.at("cures")[1].contains("now_us"));
}

TEST(Apply, captures_the_function_where_a_graph_was_asked_for) {
  for (const Device device : test::all_devices()) {
    const Tensor x = rand({8}, {.device = device});
    const Trial trial = apply([&] { return std::vector{x.mul(2).add(1).tanh().mul(x)}; }, quick(device, true));
    const TriedCure* const graph = find(trial, Kind::graph);
    ASSERT_NE(graph, nullptr);
    EXPECT_EQ(graph->failed, "");
    EXPECT_GT(graph->then_us, 0);
  }
}

TEST(Apply, refuses_bad_options_and_passes_on_what_a_step_throws) {
  const auto nothing = [] {};
  EXPECT_THROW(apply(nothing, {}, {.steps = 0}), ValueError);
  EXPECT_THROW(apply(nothing, {}, {.warm_up = 0}), ValueError);
  EXPECT_THROW(apply(nothing, {}, {.seconds = 0}), ValueError);
  EXPECT_THROW(apply([] { raise<ShapeError>("as it is"); }, {}), ShapeError);
  profile::Session session;
  EXPECT_THROW(apply(nothing, {}), ValueError) << "another session records";
}

}  // namespace
}  // namespace lorry
