#pragma once

// What listeners hear of calls, held so that each call can be made again.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/cost.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/ops/dispatch/run.h"

namespace lorry::test {

/// The same elements in the same layout, in memory of its own: what x was before a call wrote it.
inline Tensor duplicate(const Tensor& x) {
  if (!x.defined()) return x;
  const NoGrad quiet;
  Tensor copy;
  if (x.layout().has_internal_overlap()) {
    copy = x.detach();  // is never written
  } else {
    copy = empty_strided(x.sizes(), x.strides(), x.options());
    copy.copy_(x.detach());
  }
  copy.node()->wrapped_number = x.node()->wrapped_number;
  return copy;
}

/// All that was announced of a call, and what came of it.
struct Heard {
  Op op{};
  bool in_place = false, out = false, done = false;
  std::vector<Tensor> tensors;       ///< the inputs; undefined for a number
  std::map<size_t, Scalar> numbers;  ///< those that are numbers, by position
  std::vector<door::Attribute> attributes;
  door::RunCall run = nullptr;
  std::vector<Tensor> given, outputs;
};
inline std::vector<Heard> g_heard;

inline void before_call(const door::CallView& call, void*& note) {
  Heard h;
  h.op = call.op, h.in_place = call.in_place, h.out = call.out, h.run = call.run;
  for (const door::Input& x : call.inputs) {
    if (x.scalar() != nullptr) h.numbers.emplace(h.tensors.size(), *x.scalar());
    h.tensors.push_back(x.tensor() != nullptr ? duplicate(*x.tensor()) : Tensor());
  }
  h.attributes.assign(call.attributes.begin(), call.attributes.end());
  for (const Tensor& x : call.outputs) h.given.push_back(duplicate(x));
  g_heard.push_back(std::move(h));
  note = reinterpret_cast<void*>(g_heard.size());
}

inline void after_call(const door::CallView& call, void* note) {
  Heard& h = g_heard[reinterpret_cast<size_t>(note) - 1];
  h.done = !call.failed;
  for (const Tensor& x : call.outputs) h.outputs.push_back(duplicate(x));
  const door::Cost cost = door::cost(call);
  EXPECT_GE(cost.bytes, 0);
  EXPECT_GE(cost.flops, 0);
}

inline constexpr door::Listener kRecorder{.bit = kUserMode, .before = before_call, .after = after_call};

/// What f calls, all of it.
template <class F>
std::vector<Heard> heard_of(const F& f) {
  g_heard.clear();
  {
    const door::ListenerScope listening(kRecorder);
    f();
  }
  return std::move(g_heard);
}

/// Makes a call again.
inline std::vector<Tensor> run_again(const Heard& h, door::RunCall run = door::run) {
  std::map<size_t, Operand> numbers;  // inputs refer to them
  for (const auto& [position, number] : h.numbers) numbers.emplace(position, number);
  std::vector<door::Input> inputs;
  for (size_t i = 0; i < h.tensors.size(); ++i) {
    const auto number = numbers.find(i);
    inputs.push_back(number != numbers.end() ? door::Input(number->second) : door::Input(&h.tensors[i]));
  }
  return run(door::CallView{.op = h.op,
                            .in_place = h.in_place,
                            .out = h.out,
                            .inputs = inputs,
                            .outputs = h.given,
                            .attributes = h.attributes,
                            .run = h.run});
}

}  // namespace lorry::test
