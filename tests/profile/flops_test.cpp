// What calls compute, as a session counts it, against torch.utils.flop_counter (tests/data/flop_values.json, made by
// tests/peers/make_flop_values.py). PyTorch counts matrix products and attention only, so the rows of those kinds are
// compared, exactly. It counts causal attention whole; Lorry counts the half that is computed (ops/dispatch/table.h).

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lorry/lorry.h"
#include "lorry/nn/gpt.h"
#include "lorry/ops/dispatch/table.h"
#include "lorry/profile/session.h"
#include "tests/support/on_cuda.h"

namespace lorry {
namespace {

using nlohmann::json;
using profile::Recording;
using Tensors = std::vector<Tensor>;

const json& stored() {
  static const json values = json::parse(std::ifstream(LORRY_TEST_DATA "/flop_values.json"));
  return values;
}

/// Operations of products, and of attention.
struct Operations {
  int64_t products = 0, attention = 0;
  bool operator==(const Operations&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Operations& x) {
  return out << x.products << " in products, " << x.attention << " in attention";
}

Operations counted(const Recording& r) {
  Operations sum;
  for (const profile::SpanRecord& span : r.spans) {
    if (span.kind != SpanKind::call) continue;
    const Flops::Kind kind = row(span.op).flops.kind;
    if (kind == Flops::product) sum.products += span.flops;
    if (kind == Flops::attention || kind == Flops::attention_backward) sum.attention += span.flops;
  }
  return sum;
}

/// What PyTorch counted, by Lorry's rule for causal attention.
Operations expected(const json& counts, bool causal) {
  const auto all = counts.at("all").get<int64_t>(), attention = counts.at("attention").get<int64_t>();
  return {all - attention, causal ? attention / 2 : attention};
}

struct Counts {
  Operations forward, both;
};
Counts count(const std::function<Tensor()>& run) {
  profile::Session forward;
  const Tensor out = run();
  const Operations first = counted(forward.stop());
  profile::Session backward;
  out.sum().backward();
  const Operations second = counted(backward.stop());
  return {first, {first.products + second.products, first.attention + second.attention}};
}

bool is_causal(const json& c) { return c.at("attributes").value("causal", false); }

const std::map<std::string, std::function<Tensor(const Tensors&, const json&)>>& calls() {
  static const std::map<std::string, std::function<Tensor(const Tensors&, const json&)>> all = {
      {"matmul", [](const Tensors& x, const json&) { return matmul(x[0], x[1]); }},
      {"mm", [](const Tensors& x, const json&) { return mm(x[0], x[1]); }},
      {"bmm", [](const Tensors& x, const json&) { return bmm(x[0], x[1]); }},
      {"addmm", [](const Tensors& x, const json&) { return addmm(x[0], x[1], x[2]); }},
      {"baddbmm", [](const Tensors& x, const json&) { return baddbmm(x[0], x[1], x[2]); }},
      {"linear", [](const Tensors& x, const json&) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); }},
      {"attention",
       [](const Tensors& x, const json& c) {
         return scaled_dot_product_attention(x[0], x[1], x[2], {}, {.causal = is_causal(c)});
       }},
      {"packed_attention",
       [](const Tensors& x, const json& c) {
         return packed_attention(x[0], c.at("attributes").at("heads").get<int64_t>(), {.causal = is_causal(c)});
       }},
      {"add", [](const Tensors& x, const json&) { return add(x[0], x[1]); }},
      {"mul", [](const Tensors& x, const json&) { return mul(x[0], x[1]); }},
      {"relu", [](const Tensors& x, const json&) { return relu(x[0]); }},
      {"gelu", [](const Tensors& x, const json&) { return gelu(x[0]); }},
      {"sigmoid", [](const Tensors& x, const json&) { return sigmoid(x[0]); }},
      {"softmax", [](const Tensors& x, const json&) { return softmax(x[0], -1); }},
      {"log_softmax", [](const Tensors& x, const json&) { return log_softmax(x[0], -1); }},
      {"layer_norm", [](const Tensors& x, const json&) { return layer_norm(x[0], {x[0].size(-1)}, x[1], x[2]); }},
      {"sum", [](const Tensors& x, const json&) { return sum(x[0]); }},
      {"mean", [](const Tensors& x, const json&) { return mean(x[0]); }},
      {"cumsum", [](const Tensors& x, const json&) { return cumsum(x[0], -1); }},
      {"transpose", [](const Tensors& x, const json&) { return x[0].transpose(0, 1); }},
  };
  return all;
}

TEST(Flops, are_those_of_pytorch_for_each_operator) {
  std::set<std::string> seen;
  for (const Device device : test::all_devices())
    for (const json& c : stored().at("calls")) {
      Tensors inputs;
      for (const json& shape : c.at("shapes")) {
        Dims sizes;
        for (const json& size : shape) sizes.push_back(size.get<int64_t>());
        inputs.push_back(rand(sizes, {.device = device}).requires_grad_());
      }
      const auto name = c.at("call").get<std::string>();
      const Counts found = count([&] { return calls().at(name)(inputs, c); });
      EXPECT_EQ(found.forward, expected(c.at("forward"), is_causal(c))) << c.dump() << " on " << to_string(device);
      EXPECT_EQ(found.both, expected(c.at("both"), is_causal(c))) << c.dump() << " on " << to_string(device);
      seen.insert(name);
    }
  EXPECT_EQ(seen.size(), calls().size()) << "every call has a case";
  EXPECT_GE(seen.size(), 20u);
}

TEST(Flops, are_those_of_pytorch_for_a_gpt) {
  for (const Device device : test::all_devices())
    for (const json& c : stored().at("gpts")) {
      nn::GPT model(nn::gpt_preset(c.at("preset").get<std::string>()), {.device = device});
      const Tensor tokens = randint(0, model.config().vocab,
                                    {c.at("batch").get<int64_t>(), c.at("context").get<int64_t>()}, {kI64, device});
      const Counts found = count([&] { return model.loss(tokens, tokens); });
      EXPECT_GT(found.forward.attention, 0);
      EXPECT_EQ(found.forward, expected(c.at("forward"), true)) << c.dump() << " on " << to_string(device);
      EXPECT_EQ(found.both, expected(c.at("both"), true)) << c.dump() << " on " << to_string(device);
    }
}

}  // namespace
}  // namespace lorry
