// A whole training step of a GPT as one graph: forward, backward, clip and step.

#include <gtest/gtest.h>

#include "lorry/memory/memory.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

struct Training {
  nn::GPT model;
  optim::AdamW optimizer;
  bool set_to_none;
  Tensor rate = {};  ///< in place of a number, and falls with every step

  explicit Training(bool none)
      : model((manual_seed(3), nn::GPTConfig{.vocab = 64, .context = 16, .layers = 2, .heads = 2, .width = 32})),
        optimizer(model.named_parameters(), {.lr = 1e-2}),
        set_to_none(none) {}

  Tensors step(const Tensors& x) {
    optimizer.zero_grad(set_to_none);
    const Tensor loss = cross_entropy(model(x[0]).flatten(0, 1), x[1].flatten());
    loss.backward();
    if (set_to_none) {
      optim::clip_grad_norm_(model.parameters(), 0.5);
      optimizer.step();
    } else {
      optimizer.step({.max_norm = 0.5, .skip_nonfinite = true});
    }
    if (rate.defined()) rate.mul_(0.75);
    return {loss.detach()};
  }
};

Tensors batch(uint64_t seed) {
  manual_seed(seed);
  return {randint(64, {4, 16}), randint(64, {4, 16})};
}

class TraceTraining : public testing::TestWithParam<bool> {};

/// Two trainings alike, of which one goes on by the graph of its third step.
void expect_the_graph_goes_on(Training& plain, Training& traced) {
  std::optional<trace::Graph> graph;
  for (uint64_t k = 0; k < 6; ++k) {
    SCOPED_TRACE(k);
    const Tensors expected = plain.step(batch(k)), arguments = batch(k);
    Tensors got;
    if (k < 2) {
      got = traced.step(arguments);
    } else if (k == 2) {
      trace::Recorder recorder(arguments);
      got = traced.step(arguments);
      graph = trace::functionalise(recorder.finish(got));
    } else {
      got = trace::interpret(*graph, arguments);
    }
    EXPECT_EQ(bits_of(got[0]), bits_of(expected[0]));
    const auto a = traced.model.named_parameters(), b = plain.model.named_parameters();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(bits_of(a[i].second), bits_of(b[i].second)) << a[i].first;
  }
}

TEST_P(TraceTraining, goes_on_from_the_graph_to_the_bit) {
  Training plain(GetParam()), traced(GetParam());
  expect_the_graph_goes_on(plain, traced);
}

TEST_P(TraceTraining, reads_and_writes_a_rate_in_a_tensor_by_the_graph) {
  Training plain(GetParam()), traced(GetParam());
  for (Training* const x : {&plain, &traced}) x->optimizer.set_lr(x->rate = full({}, 0.02));
  expect_the_graph_goes_on(plain, traced);
  EXPECT_EQ(bits_of(traced.rate), bits_of(plain.rate));
  EXPECT_LT(plain.rate.item<float>(), 0.02f * 0.2f);
}

TEST_P(TraceTraining, recording_changes_neither_bits_nor_calls_nor_memory) {
  std::vector<std::string> bits[2], calls[2];
  int64_t peak[2] = {};
  for (const bool recorded : {false, false, true}) {  // the first run leaves memory that later ones find
    bits[recorded].clear(), calls[recorded].clear();
    Training training(GetParam());
    training.step(batch(0));
    const Tensors arguments = batch(1);
    static std::vector<std::string>* heard;
    heard = &calls[recorded];
    static constexpr door::Listener kCalls{
        .bit = kUserMode, .after = [](const door::CallView& call, void*) { heard->push_back(name(call.op)); }};
    const door::ListenerScope listening(kCalls);
    memory::reset_peak(default_device());
    std::optional<trace::Recorder> recorder;
    if (recorded) recorder.emplace(arguments);
    const Tensors loss = training.step(arguments);
    if (recorded) recorder->finish(loss);
    peak[recorded] = memory::stats(default_device()).peak_allocated;
    bits[recorded].push_back(bits_of(loss[0]));
    for (const Tensor& x : training.model.parameters()) bits[recorded].push_back(bits_of(x));
  }
  EXPECT_EQ(bits[0], bits[1]);
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_LE(peak[1], peak[0] + peak[0] / 20);
}

INSTANTIATE_TEST_SUITE_P(Gradients, TraceTraining, testing::Bool(),
                         [](const auto& info) { return info.param ? "set_to_none" : "zeroed"; });

}  // namespace
}  // namespace lorry::test
