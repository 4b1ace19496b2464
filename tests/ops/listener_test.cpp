// Listeners at the door: what they are told, and what happens when they throw, call operators, come and go.

#include "lorry/ops/dispatch/listener.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "lorry/lorry.h"

namespace lorry {
namespace {

using door::CallView;

/// What the listeners of a test do; a listener itself is functions without state.
struct Hooks {
  std::function<void(const CallView&, void*&)> before;
  std::function<void(const CallView&, void*)> after;
};
template <int k>
Hooks& hooks() {
  static Hooks of_listener;
  return of_listener;
}
template <int k>
inline constexpr door::Listener kListener{.bit = kListenerBits[k],
                                          .before =
                                              [](const CallView& call, void*& note) {
                                                if (hooks<k>().before) hooks<k>().before(call, note);
                                              },
                                          .after =
                                              [](const CallView& call, void* note) {
                                                if (hooks<k>().after) hooks<k>().after(call, note);
                                              }};
constexpr const door::Listener& kTracer = kListener<1>;
constexpr const door::Listener& kProfiler = kListener<2>;
constexpr const door::Listener& kUser = kListener<3>;

class Listeners : public testing::Test {
 protected:
  void TearDown() override {
    hooks<1>() = hooks<2>() = hooks<3>() = {};
    for (const door::Listener* l : {&kTracer, &kProfiler, &kUser}) door::remove_listener(*l);
  }
};

TEST_F(Listeners, are_told_of_a_call_with_all_its_arguments) {
  std::vector<std::string> heard;
  hooks<3>().before = [&](const CallView& call, void*& note) {
    EXPECT_TRUE(call.outputs.empty());
    heard.push_back(name(call.op));
    note = &heard;
  };
  const Tensor x = ones({2, 3});
  hooks<3>().after = [&](const CallView& call, void* note) {
    EXPECT_EQ(note, &heard);
    EXPECT_FALSE(call.failed);
    ASSERT_TRUE(call.inputs[0].tensor()->is_same(x));
    ASSERT_EQ(call.outputs.size(), 1u);
    if (call.op == Op::sum) {
      EXPECT_EQ(std::get<Dims>(call.attributes[0]), Dims{1});
      EXPECT_TRUE(std::get<bool>(call.attributes[1]));
      EXPECT_EQ(call.outputs[0].sizes(), (Dims{2, 1}));
    }
    if (call.op == Op::mul) {
      EXPECT_EQ(call.inputs[1].scalar()->to<double>(), 2);
    }
    EXPECT_EQ(call.in_place, call.op == Op::add);
    if (call.in_place) {
      EXPECT_TRUE(call.outputs[0].is_same(x));
    }
  };
  const door::ListenerScope listening(kUser);
  x.sum(1, true);
  x.mul(2);
  x.add_(1);
  x.t();
  EXPECT_EQ(heard, (std::vector<std::string>{"sum", "mul", "add", "transpose"}));
}

TEST_F(Listeners, that_keep_nothing_change_no_owner_and_no_memory) {
  const Tensor x = ones({64}), y = ones({64});
  const auto measure = [&] {
    memory::reset_peak(x.device());
    const int64_t start = memory::stats(x.device()).allocated;
    const Tensor z = (x + y) * 2;
    return memory::stats(x.device()).peak_allocated - start;
  };
  measure();
  const int64_t unheard = measure();
  const uint32_t owners = x.node()->owners(), of_storage = x.storage().owners();
  int calls = 0;
  hooks<3>().before = [&](const CallView&, void*&) {
    EXPECT_EQ(x.node()->owners(), owners);
    EXPECT_EQ(x.storage().owners(), of_storage);
    ++calls;
  };
  const door::ListenerScope listening(kUser);
  EXPECT_EQ(measure(), unheard);
  EXPECT_EQ(calls, 2);
}

TEST_F(Listeners, of_four_bits_are_told_in_order_and_back) {
  std::string order;
  const auto note_order = [&](Hooks& of, char name) {
    of.before = [&order, name](const CallView&, void*&) { order += name; };
    of.after = [&order, name](const CallView&, void*) { order += name; };
  };
  note_order(hooks<1>(), 't');
  note_order(hooks<2>(), 'p');
  note_order(hooks<3>(), 'u');
  const door::ListenerScope user(kUser), profiler(kProfiler), tracer(kTracer);
  const Tensor x = ones({3}).requires_grad_();  // the fourth listens
  order.clear();
  const Tensor y = x * 2;
  EXPECT_EQ(order, "tpuupt");
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
}

TEST_F(Listeners, of_one_bit_are_one) {
  static constexpr door::Listener kOther{.bit = kUserMode}, kNobody{.bit = kInferenceMode};
  const door::ListenerScope listening(kUser);
  EXPECT_THROW(door::add_listener(kOther), ValueError);
  EXPECT_THROW(door::add_listener(kUser), ValueError);
  EXPECT_THROW(door::add_listener(kNobody), ValueError);
  EXPECT_THROW(door::ListenerScope{kOther}, ValueError);
  door::remove_listener(kOther);  // changes nothing
  EXPECT_THROW(door::add_listener(kOther), ValueError);
}

TEST_F(Listeners, that_throw_before_refuse_the_call) {
  int ended = 0;
  hooks<1>().after = [&](const CallView& call, void*) { ended += call.failed; };
  hooks<3>().before = [](const CallView&, void*&) { throw std::runtime_error("no"); };
  const Tensor x = ones({3}).requires_grad_(), z = ones({3});
  {
    const door::ListenerScope tracer(kTracer), user(kUser);
    EXPECT_THROW(z.add_(1), std::runtime_error);
    EXPECT_THROW(x.mul(2), std::runtime_error);
  }
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(z.to_vector<float>(), (std::vector<float>{1, 1, 1})) << "it was not run";
  EXPECT_EQ((x * 3).sum().item<float>(), 9) << "the next call works";
}

TEST_F(Listeners, that_throw_after_lose_nothing) {
  int told = 0;
  hooks<1>().after = [&](const CallView& call, void*) { told += !call.failed; };
  hooks<2>().after = [](const CallView&, void*) { throw std::logic_error("second"); };
  hooks<3>().after = [](const CallView&, void*) { throw std::runtime_error("first"); };
  const Tensor z = ones({3});
  const uint32_t version = z.version();
  {
    const door::ListenerScope tracer(kTracer), profiler(kProfiler), user(kUser);
    EXPECT_THROW(z.add_(1), std::runtime_error);
  }
  EXPECT_EQ(told, 1) << "the others are told";
  EXPECT_EQ(z.to_vector<float>(), (std::vector<float>{2, 2, 2})) << "the call was made";
  EXPECT_EQ(z.version(), version + 1);
}

TEST_F(Listeners, are_told_that_an_operator_failed) {
  bool failed = false;
  hooks<3>().after = [&](const CallView& call, void*) {
    failed = call.failed;
    EXPECT_TRUE(call.outputs.empty());
  };
  const Tensor x = ones({3}).requires_grad_(), wrong = ones({4});
  const door::ListenerScope listening(kUser);
  EXPECT_THROW(x.mul(wrong), ShapeError);
  EXPECT_TRUE(failed);
  EXPECT_EQ(t_modes & kUserMode, kUserMode) << "it goes on listening";
}

TEST_F(Listeners, may_call_operators_which_nobody_hears) {
  int calls = 0;
  hooks<3>().before = [&](const CallView& call, void*&) {
    ++calls;
    EXPECT_FALSE((*call.inputs[0].tensor() * 2).requires_grad());
  };
  hooks<3>().after = [&](const CallView& call, void*) { call.outputs[0].sum().item<float>(); };
  const Tensor x = ones({3}).requires_grad_();
  const door::ListenerScope listening(kUser);
  const Tensor y = x + 1;
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(y.requires_grad());
}

TEST_F(Listeners, may_add_others_for_the_calls_to_come) {
  int heard = 0;
  hooks<2>().before = [](const CallView&, void*&) { EXPECT_NO_THROW(door::add_listener(kUser)); };
  hooks<3>().before = [&](const CallView&, void*&) { ++heard; };
  const Tensor x = ones({3});
  const door::ListenerScope listening(kProfiler);
  const ModeScope wanted(kUserMode, 0);
  x.neg();
  EXPECT_EQ(heard, 0);
  hooks<2>().before = nullptr;
  x.neg();
  EXPECT_EQ(heard, 1);
}

TEST_F(Listeners, that_another_thread_removes_are_told_of_the_end) {
  bool ended = false;
  hooks<3>().before = [](const CallView&, void*&) { std::thread([] { door::remove_listener(kUser); }).join(); };
  hooks<3>().after = [&](const CallView&, void*) { ended = true; };
  const door::ListenerScope listening(kUser);
  const Tensor x = ones({3});
  x.neg();
  EXPECT_TRUE(ended);
  ended = false;
  x.neg();
  EXPECT_FALSE(ended);
}

TEST_F(Listeners, hear_only_threads_with_their_bit) {
  int heard = 0;
  hooks<3>().before = [&](const CallView&, void*&) { ++heard; };
  const door::ListenerScope listening(kUser);
  std::thread([] { ones({3}).neg(); }).join();
  EXPECT_EQ(heard, 0);
}

TEST_F(Listeners, see_long_lists_of_inputs) {
  std::vector<Tensor> parts(40, ones({1}));
  size_t inputs = 0;
  hooks<3>().before = [&](const CallView& call, void*&) {
    inputs = call.inputs.size();
    EXPECT_EQ(call.inputs[39].tensor(), &parts[39]);
  };
  const door::ListenerScope listening(kUser);
  cat(parts);
  EXPECT_EQ(inputs, 40u);
}

}  // namespace
}  // namespace lorry
