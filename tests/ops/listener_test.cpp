// Listeners at the door: what they hear, and what happens when they throw, call operators, come and go.

#include "lorry/ops/dispatch/listener.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "lorry/lorry.h"

namespace lorry {
namespace {

using door::CallView;

/// What the listeners of a test do; a listener itself is functions without state.
struct Hooks {
  std::function<void(const CallView&, void*&)> before;
  std::function<bool(const CallView&, std::vector<Tensor>&)> replace;
  std::function<void(const CallView&, void*)> after;
};
template <int k>
Hooks& hooks() {
  static Hooks of_listener;
  return of_listener;
}
template <int k>
inline constexpr door::Listener kListener{
    .bit = kListenerBits[k + 1],  // before those are the bits of memory and gradients
    .before =
        [](const CallView& call, void*& note) {
          if (hooks<k>().before) hooks<k>().before(call, note);
        },
    .replace = [](const CallView& call,
                  std::vector<Tensor>& outputs) { return hooks<k>().replace && hooks<k>().replace(call, outputs); },
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

TEST_F(Listeners, hear_of_a_call_with_all_its_arguments) {
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

TEST_F(Listeners, of_four_bits_are_notified_in_order_and_back) {
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
  int heard = 0;
  hooks<1>().after = [&](const CallView& call, void*) { heard += !call.failed; };
  hooks<2>().after = [](const CallView&, void*) { throw std::logic_error("second"); };
  hooks<3>().after = [](const CallView&, void*) { throw std::runtime_error("first"); };
  const Tensor z = ones({3});
  const uint32_t version = z.version();
  {
    const door::ListenerScope tracer(kTracer), profiler(kProfiler), user(kUser);
    EXPECT_THROW(z.add_(1), std::runtime_error);
  }
  EXPECT_EQ(heard, 1) << "the others are notified";
  EXPECT_EQ(z.to_vector<float>(), (std::vector<float>{2, 2, 2})) << "the call was made";
  EXPECT_EQ(z.version(), version + 1);
}

TEST_F(Listeners, hear_that_an_operator_failed) {
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
  const ModeScope user_mode(kUserMode, 0);
  x.neg();
  EXPECT_EQ(heard, 0);
  hooks<2>().before = nullptr;
  x.neg();
  EXPECT_EQ(heard, 1);
}

TEST_F(Listeners, that_another_thread_removes_hear_of_the_end) {
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

// ---- facts ----------------------------------------------------------------------------------------------------------

struct HeardFact {
  Fact fact;
  uint64_t storage;
  int64_t bytes;
  bool has_tensor;
};
std::vector<HeardFact> g_facts;
constexpr door::Listener kFactTeller{.bit = kUserMode, .fact = [](const FactView& f) {
                                       EXPECT_FALSE(detail::facts_heard())
                                           << "nobody listens while listeners are notified";
                                       g_facts.push_back({f.fact, f.storage, f.bytes, f.tensor != nullptr});
                                     }};

/// The facts while f runs.
template <class F>
std::vector<HeardFact> facts_of(const F& f) {
  g_facts.clear();
  const door::ListenerScope listening(kFactTeller);
  f();
  return std::move(g_facts);
}

TEST(Facts, tell_of_memory_that_no_operator_made_and_of_what_goes) {
  float memory[4] = {};
  uint64_t id = 0;
  const auto facts = facts_of([&] {
    const Tensor x = from_blob(memory, {4});
    id = x.storage().id();
    const Tensor y = x.add(1);  // inside an operator: part of the call
  });
  ASSERT_EQ(facts.size(), 3u);
  EXPECT_EQ(facts[0].fact, Fact::born);
  EXPECT_EQ(facts[0].storage, id);
  EXPECT_EQ(facts[0].bytes, 16);
  EXPECT_EQ(facts[1].fact, Fact::died);  // y
  EXPECT_EQ(facts[2].fact, Fact::died);
  EXPECT_EQ(facts[2].storage, id);
}

TEST_F(Listeners, may_make_a_call_in_the_operators_place) {
  const Tensor x = ones({3}), seven = full({3}, 7);
  const door::ListenerScope tracing(kTracer), watching(kUser);
  std::vector<std::string> heard;
  hooks<1>().replace = [&](const CallView& call, std::vector<Tensor>& outputs) {
    if (call.op == Op::exp) outputs = {seven};
    if (call.op == Op::sort) outputs = {full({3}, 1), full({3}, 2, {.dtype = kI64})};
    if (call.op == Op::mul && call.in_place) call.inputs[0].tensor()->fill_(5);
    return !outputs.empty() || (call.op == Op::mul && call.in_place);
  };
  hooks<3>().replace = [&](const CallView& call, std::vector<Tensor>&) {
    heard.push_back(fmt::format("asked {}", name(call.op)));
    return false;
  };
  hooks<3>().after = [&](const CallView& call, void*) {
    heard.push_back(fmt::format("{} {}", name(call.op), call.outputs[0].to_vector<float>()));
  };
  EXPECT_EQ(x.exp().to_vector<float>(), std::vector<float>(3, 7));
  const auto [values, indices] = x.sort();
  EXPECT_EQ(values.to_vector<float>(), std::vector<float>(3, 1));
  EXPECT_EQ(indices.to_vector<int64_t>(), std::vector<int64_t>(3, 2));
  const uint32_t version = x.storage().version();
  x.mul_(3);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3, 5));
  EXPECT_GT(x.storage().version(), version) << "a write counts, whoever makes it";
  EXPECT_EQ(x.add(1).to_vector<float>(), std::vector<float>(3, 6));
  EXPECT_EQ(heard, (std::vector<std::string>{"exp [7, 7, 7]", "sort [1, 1, 1]", "mul [5, 5, 5]", "asked add",
                                             "add [6, 6, 6]"}))
      << "the first listener that makes a call ends the question";
}

TEST_F(Listeners, that_throw_instead_of_making_a_call_end_it) {
  const Tensor x = ones({3});
  const door::ListenerScope tracing(kTracer), watching(kUser);
  hooks<1>().replace = [](const CallView&, std::vector<Tensor>&) -> bool { throw std::runtime_error("no"); };
  bool failed = false;
  hooks<3>().after = [&](const CallView& call, void*) { failed = call.failed; };
  EXPECT_THROW(x.exp(), std::runtime_error);
  EXPECT_TRUE(failed);
  hooks<1>().replace = {};
  EXPECT_EQ(x.add(1).to_vector<float>(), std::vector<float>(3, 2));
}

TEST(Facts, tell_of_addresses_that_the_host_takes) {
  const Tensor x = ones({3}, {.device = kCPU});
  const auto facts = facts_of([&] {
    x.data_ptr();
    x[1].data<float>()[0] = 2;
    x.mul_(2).add(1);  // what operators do is theirs
  });
  std::vector<Fact> kinds;
  for (const HeardFact& f : facts) {
    if (f.fact != Fact::address) continue;
    kinds.push_back(f.fact);
    EXPECT_EQ(f.storage, x.storage().id());
  }
  EXPECT_EQ(kinds.size(), 2u);
}

TEST(Facts, tell_of_aliases_host_reads_gradients_and_data) {
  const Tensor x = ones({3}, {.device = kCPU}).requires_grad_(), other = zeros({3}, {.device = kCPU});
  const auto facts = facts_of([&] {
    const Tensor alias = x.detach();
    alias.sum().item();
    x.set_grad(other);
    x.set_data(other.detach());
  });
  std::vector<Fact> kinds;
  for (const HeardFact& f : facts)
    if (f.fact != Fact::died) kinds.push_back(f.fact);
  EXPECT_EQ(kinds, (std::vector<Fact>{Fact::alias, Fact::host_read, Fact::grad_set, Fact::alias, Fact::data_set}));
  const auto set = std::ranges::find(facts, Fact::data_set, &HeardFact::fact);
  EXPECT_EQ(set->storage, other.storage().id());
}

TEST(Facts, name_the_leaf_whose_gradient_a_backward_pass_sets) {
  const Tensor x = ones({3}).requires_grad_();
  const Tensor loss = x.square().sum();
  int set = 0;
  for (const HeardFact& f : facts_of([&] { loss.backward(); }))
    if (f.fact == Fact::grad_set) set += f.storage == x.storage().id() && f.has_tensor;
  EXPECT_EQ(set, 1);
}

TEST(Facts, are_not_heard_by_other_threads_or_after_the_listener_went) {
  const auto facts = facts_of([] { std::thread([] { ones({2}); }).join(); });
  EXPECT_TRUE(facts.empty());
  ones({2});
  EXPECT_TRUE(g_facts.empty());
}

TEST(Storages, have_numbers_that_are_never_used_again) {
  std::set<uint64_t> ids;
  for (int i = 0; i < 100; ++i) {
    const Tensor x = ones({16});
    EXPECT_EQ(x.storage().id(), x.view({4, 4}).storage().id());
    EXPECT_TRUE(ids.insert(x.storage().id()).second);
  }
  EXPECT_FALSE(ids.contains(0));
}

// ---- what listeners hold --------------------------------------------------------------------------------------------

TEST(Observed, references_change_no_decision_about_memory) {
  // The gradient of x is added up in place where nobody else refers to it, and taken over rather than copied.
  const auto calls_of_a_step = [](bool hold) {
    static std::vector<door::Observed> held;
    static std::vector<std::string> calls;
    static bool holds;
    holds = hold;
    static constexpr door::Listener kKeeper{.bit = kUserMode, .after = [](const CallView& call, void*) {
                                              calls.push_back(name(call.op) + std::string(call.in_place ? "_" : ""));
                                              if (!holds) return;
                                              for (const door::Input& x : call.inputs)
                                                if (x.tensor() != nullptr) held.emplace_back(*x.tensor());
                                              for (const Tensor& x : call.outputs) held.emplace_back(x);
                                            }};
    calls.clear();
    const Tensor x = arange(6, {.dtype = kF32}).requires_grad_();
    {
      const door::ListenerScope listening(kKeeper);
      (x.exp() * x + x.sin() * x).sum().backward();
      (x * 2).sum().backward();
    }
    held.clear();
    return std::pair(calls, x.grad().to_vector<float>());
  };
  const auto [calls, grads] = calls_of_a_step(false);
  const auto [held_calls, held_grads] = calls_of_a_step(true);
  EXPECT_EQ(calls, held_calls);
  EXPECT_EQ(grads, held_grads);
  EXPECT_GT(std::ranges::count(calls, "add_"), 0) << "the case that references would change";
}

TEST(Observed, is_a_tensor_over_the_same_elements) {
  const Tensor x = ones({2, 3});
  {
    const door::Observed held(x.t());
    EXPECT_EQ(held.tensor().data_ptr(), x.data_ptr());
    EXPECT_EQ(held.tensor().sizes(), (Dims{3, 2}));
    EXPECT_EQ(x.storage().users(), 1u);
    EXPECT_EQ(x.storage().owners(), 2u);
    door::Observed moved;
    EXPECT_FALSE(moved.tensor().defined());
    moved = door::Observed(x);
    EXPECT_EQ(x.storage().owners(), 3u);
    EXPECT_EQ(x.storage().users(), 1u);
  }
  EXPECT_EQ(x.storage().owners(), 1u);
  EXPECT_FALSE(door::Observed(Tensor()).tensor().defined());
}

}  // namespace
}  // namespace lorry
