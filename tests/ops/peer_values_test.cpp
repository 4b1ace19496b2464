// Operators against what PyTorch answered (tests/data/op_values.json, made by tests/peers/make_op_values.py). Every
// input is handed over twice: contiguous, and as a transposed view of a padded copy.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "lorry/ops/ops.h"

namespace lorry {
namespace {

using nlohmann::json;
using Tensors = std::vector<Tensor>;
using Call = std::function<Tensors(const Tensors&, const json&)>;

double number(const json& v) {
  if (v.is_boolean()) return v.get<bool>() ? 1 : 0;
  if (v.is_string()) return v == "nan" ? std::nan("") : v == "inf" ? INFINITY : -INFINITY;
  return v.get<double>();
}

Dims dims(const json& list) {
  Dims d;
  for (const json& v : list) d.push_back(v.get<int64_t>());
  return d;
}

Tensor tensor_of(const json& stored) {
  std::vector<double> data;
  for (const json& v : stored.at("data")) data.push_back(number(v));
  return from_data(data, dims(stored.at("shape"))).to(parse_dtype(stored.at("dtype").get<std::string>()));
}

/// The same values with other strides: every second element of a transposed buffer.
Tensor scattered(const Tensor& x) {
  if (x.dim() < 1) return x;
  Dims reversed;
  for (int i = static_cast<int>(x.dim()) - 1; i >= 0; --i) reversed.push_back(x.size(i));
  reversed[reversed.size() - 1] *= 2;
  Dims order;
  for (int i = static_cast<int>(x.dim()) - 1; i >= 0; --i) order.push_back(i);
  const Tensor view = zeros(reversed, x.options()).slice(-1, 0, {}, 2).permute(order);
  view.copy_(x);
  return view;
}

Reduction reduction(const json& a) {
  const std::string r = a.at("reduction");
  return r == "none" ? Reduction::none : r == "mean" ? Reduction::mean : Reduction::sum;
}

Tensor longs(const json& list) {
  std::vector<int64_t> v = list.get<std::vector<int64_t>>();
  return from_data(v, {static_cast<int64_t>(v.size())});
}

/// The index lists of make_op_values.py, by name.
Tensor indexed(const Tensors& t, const std::string& kind) {
  const Tensor& x = t[0];
  const Tensor i = tensor({{0, 3}, {-1, 2}}), j = tensor({1, 4}), j3 = j.remainder(3);
  if (kind == "i") return x.index({i});
  if (kind == "i:j") return x.index({i, Slice(), j3});
  if (kind == ":ij") return x.index({Slice(), i, j3});
  if (kind == "m1:j") return x.index({tensor({true, false, true, false}), Slice(), j3});
  if (kind == "i0") return x.index({i, 0});
  if (kind == "0:j") return x.index({0, Slice(), j3});
  if (kind == "None i") return x.index({None, i});
  if (kind == "...j") return x.index({Ellipsis, j3});
  if (kind == "1:3 j") return x.index({Slice(1, 3), j});
  if (kind == "m") return x.index({t[1]});
  if (kind == "True i") return x.index({true, i});
  return {};
}

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Operand&);

// Long: a table, a row an operator.
const std::map<std::string, Call>& calls() {
  static const std::map<std::string, Call> kCalls = [] {
    std::map<std::string, Call> m;
#define LORRY_UNARY(name, Formula, result, domain) \
  m[#name] = [](const Tensors& t, const json&) { return Tensors{static_cast<Unary>(lorry::name)(t[0])}; };
#define LORRY_BINARY(name, Formula, result, domain) \
  m[#name] = [](const Tensors& t, const json&) { return Tensors{static_cast<Binary>(lorry::name)(t[0], t[1])}; };
#include "lorry/formula/pointwise.def"
    const auto pair = [](std::tuple<Tensor, Tensor> p) { return Tensors{std::get<0>(p), std::get<1>(p)}; };
    m["div_mode"] = [](const Tensors& t, const json& a) {
      return Tensors{div(t[0], t[1], a.at("mode").get<std::string>())};
    };
    m["pow_scalar"] = [](const Tensors& t, const json& a) {
      return Tensors{a.at("exponent").is_number_float() ? t[0].pow(a.at("exponent").get<double>())
                                                        : t[0].pow(a.at("exponent").get<int64_t>())};
    };
    m["clamp"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].clamp(a.at("min").get<int64_t>(), a.at("max").get<int64_t>())};
    };
    m["softplus"] = [](const Tensors& t, const json&) { return Tensors{softplus(t[0])}; };
    m["lerp"] = [](const Tensors& t, const json& a) { return Tensors{t[0].lerp(t[1], a.at("weight").get<double>())}; };
    m["addcmul"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].addcmul(t[1], t[2], a.at("value").get<double>())};
    };
    m["addcdiv"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].addcdiv(t[1], t[2], a.at("value").get<double>())};
    };
    m["nan_to_num"] = [](const Tensors& t, const json&) { return Tensors{t[0].nan_to_num()}; };
    m["sum"] = [](const Tensors& t, const json& a) { return Tensors{t[0].sum(dims(a.at("dims")), a.at("keepdim"))}; };
    m["mean"] = [](const Tensors& t, const json& a) { return Tensors{t[0].mean(dims(a.at("dims")), a.at("keepdim"))}; };
    m["amax"] = [](const Tensors& t, const json& a) { return Tensors{t[0].amax(dims(a.at("dims")), a.at("keepdim"))}; };
    m["amin"] = [](const Tensors& t, const json& a) { return Tensors{t[0].amin(dims(a.at("dims")), a.at("keepdim"))}; };
    m["logsumexp"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].logsumexp(dims(a.at("dims")), a.at("keepdim"))};
    };
    m["var"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].var(dims(a.at("dims")), a.at("correction").get<double>(), a.at("keepdim"))};
    };
    m["norm"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].norm(number(a.at("p")), dims(a.at("dims")), a.at("keepdim"))};
    };
    m["prod"] = [](const Tensors& t, const json& a) { return Tensors{t[0].prod(a.at("dim").get<int64_t>())}; };
    m["argmax"] = [](const Tensors& t, const json& a) { return Tensors{t[0].argmax(a.at("dim").get<int64_t>())}; };
    m["argmin"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].argmin(a.at("dim").get<int64_t>(), a.at("keepdim"))};
    };
    m["max_dim"] = [pair](const Tensors& t, const json& a) { return pair(t[0].max(a.at("dim").get<int64_t>())); };
    m["cumsum"] = [](const Tensors& t, const json& a) { return Tensors{t[0].cumsum(a.at("dim"))}; };
    m["cumprod"] = [](const Tensors& t, const json& a) { return Tensors{t[0].cumprod(a.at("dim"))}; };
    m["any"] = [](const Tensors& t, const json& a) { return Tensors{t[0].any(dims(a.at("dims")))}; };
    m["all"] = [](const Tensors& t, const json& a) { return Tensors{t[0].all(dims(a.at("dims")))}; };
    m["sort"] = [pair](const Tensors& t, const json& a) { return pair(t[0].sort(a.at("dim"), a.at("descending"))); };
    m["topk"] = [pair](const Tensors& t, const json& a) {
      return pair(t[0].topk(a.at("k"), a.at("dim"), a.at("largest")));
    };
    m["unique"] = [](const Tensors& t, const json&) {
      const Unique u = unique(t[0], true, true, true);
      return Tensors{u.values, u.inverse, u.counts};
    };
    m["softmax"] = [](const Tensors& t, const json& a) { return Tensors{t[0].softmax(a.at("dim"))}; };
    m["log_softmax"] = [](const Tensors& t, const json& a) { return Tensors{t[0].log_softmax(a.at("dim"))}; };
    m["layer_norm"] = [](const Tensors& t, const json& a) {
      return Tensors{layer_norm(t[0], dims(a.at("shape")), t[1], t[2], 1e-5)};
    };
    m["rms_norm"] = [](const Tensors& t, const json& a) {
      return Tensors{rms_norm(t[0], dims(a.at("shape")), t[1], 1e-6)};
    };
    m["cross_entropy"] = [](const Tensors& t, const json& a) {
      return Tensors{
          cross_entropy(t[0], longs(a.at("target")), t[1], -100, reduction(a), a.at("smoothing").get<double>())};
    };
    m["bce_logits"] = [](const Tensors& t, const json& a) {
      return Tensors{binary_cross_entropy_with_logits(t[0], t[1], {}, reduction(a), t[2])};
    };
    m["mse_loss"] = [](const Tensors& t, const json& a) { return Tensors{mse_loss(t[0], t[1], reduction(a))}; };
    m["smooth_l1"] = [](const Tensors& t, const json& a) {
      return Tensors{smooth_l1_loss(t[0], t[1], reduction(a), a.at("beta").get<double>())};
    };
    m["index"] = [](const Tensors& t, const json& a) { return Tensors{indexed(t, a.at("kind"))}; };
    m["gather"] = [](const Tensors& t, const json&) {
      return Tensors{t[0].gather(1, tensor({{{0, 1, 2}}, {{4, 4, 0}}}))};
    };
    m["scatter_add"] = [](const Tensors& t, const json&) {
      return Tensors{t[0].scatter_add(0, tensor({{0, 1, 2}, {1, 1, 3}}), t[1])};
    };
    m["index_add"] = [](const Tensors& t, const json&) {
      return Tensors{t[0].index_add(1, tensor({0, 2, 0}), t[1], 2)};
    };
    m["take_along_dim"] = [](const Tensors& t, const json&) {
      return Tensors{t[0].take_along_dim(tensor({{{2}}, {{-1}}, {{0}}, {{1}}}), 1)};
    };
    m["nonzero"] = [](const Tensors& t, const json&) { return Tensors{t[0].nonzero()}; };
    m["masked_select"] = [](const Tensors& t, const json&) { return Tensors{t[0].masked_select(t[1])}; };
    m["cat"] = [](const Tensors& t, const json& a) { return Tensors{cat(t, a.at("dim"))}; };
    m["stack"] = [](const Tensors& t, const json& a) { return Tensors{stack(t, a.at("dim"))}; };
    m["roll"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].roll(dims(a.at("shifts")), dims(a.at("dims")))};
    };
    m["flip"] = [](const Tensors& t, const json& a) { return Tensors{t[0].flip(dims(a.at("dims")))}; };
    m["repeat"] = [](const Tensors& t, const json& a) { return Tensors{t[0].repeat(dims(a.at("repeats")))}; };
    m["tile"] = [](const Tensors& t, const json& a) { return Tensors{t[0].tile(dims(a.at("repeats")))}; };
    m["tril"] = [](const Tensors& t, const json& a) { return Tensors{t[0].tril(a.at("diagonal"))}; };
    m["triu"] = [](const Tensors& t, const json& a) { return Tensors{t[0].triu(a.at("diagonal"))}; };
    m["diagonal"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].diagonal(a.at("offset"), a.at("dim1"), a.at("dim2"))};
    };
    m["unfold"] = [](const Tensors& t, const json& a) {
      return Tensors{t[0].unfold(a.at("dim"), a.at("size"), a.at("step"))};
    };
    m["arange"] = [](const Tensors&, const json& a) {
      std::vector<Scalar> s;
      for (const json& v : a.at("args"))
        s.push_back(v.is_number_float() ? Scalar(v.get<double>()) : Scalar(v.get<int64_t>()));
      return Tensors{s.size() == 1 ? arange(s[0]) : arange(s[0], s[1], s[2])};
    };
    m["linspace"] = [](const Tensors&, const json& a) { return Tensors{linspace(-1, 2, a.at("steps"))}; };
    m["matmul"] = [](const Tensors& t, const json&) { return Tensors{matmul(t[0], t[1])}; };
    m["addmm"] = [](const Tensors& t, const json& a) {
      return Tensors{addmm(t[0], t[1], t[2], a.at("beta").get<double>(), a.at("alpha").get<double>())};
    };
    m["attention"] = [](const Tensors& t, const json& a) {
      AttentionOptions options;
      options.causal = a.at("causal");
      options.enable_gqa = a.value("gqa", false);
      return Tensors{scaled_dot_product_attention(t[0], t[1], t[2], {}, options)};
    };
    m["attention_mask"] = [](const Tensors& t, const json&) {
      return Tensors{scaled_dot_product_attention(t[0], t[1], t[2], t[3])};
    };
    m["view"] = [](const Tensors& t, const json& a) { return Tensors{t[0].contiguous().view(dims(a.at("sizes")))}; };
    return m;
  }();
  return kCalls;
}

/// Two roundings of the dtype apart, or what a different order of summation makes of a result.
double tolerance(DType dtype) {
  return visit(dtype, []<class T>(Type<T>) {
    if constexpr (kNarrowType<T>) return std::ldexp(2.0, 1 - std::numeric_limits<T>::digits);
    return std::is_same_v<T, float> ? 3e-6 : 1e-12;
  });
}

std::string compare(const Tensor& got, const json& want) {
  if (name(got.dtype()) != want.at("dtype").get<std::string>())
    return fmt::format("dtype {} where PyTorch has {}", got.dtype(), want.at("dtype").get<std::string>());
  if (got.sizes() != dims(want.at("shape")))
    return fmt::format("shape {} where PyTorch has {}", got.sizes(), dims(want.at("shape")));
  const std::vector<double> values = got.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double a = values[i], b = number(want.at("data")[i]);
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) ||
                      std::abs(a - b) <= tolerance(got.dtype()) * std::max(1.0, std::abs(b));
    if (!same) return fmt::format("element {} is {} where PyTorch has {}", i, a, b);
  }
  return "";
}

const json& stored() {
  static const json kStored = json::parse(std::ifstream(LORRY_TEST_DATA "/op_values.json"));
  return kStored;
}

TEST(PeerValues, every_stored_call_answers_as_pytorch_does_whatever_the_strides) {
  int failures = 0;
  for (const json& c : stored().at("cases")) {
    const std::string op = c.at("op");
    ASSERT_TRUE(calls().contains(op)) << op;
    for (const bool strided : {false, true}) {
      Tensors inputs;
      for (const json& i : c.at("inputs")) inputs.push_back(strided ? scattered(tensor_of(i)) : tensor_of(i));
      std::string problem;
      try {
        const Tensors got = calls().at(op)(inputs, c.at("args"));
        if (c.contains("error")) {
          problem = "answered where PyTorch refuses";
        } else {
          for (size_t i = 0; i < got.size() && problem.empty(); ++i) problem = compare(got[i], c.at("outputs")[i]);
        }
      } catch (const Error& e) {
        if (!c.contains("error")) problem = e.what();
      }
      if (problem.empty()) continue;
      std::string operands;
      for (const Tensor& x : inputs) operands += " " + describe(x);
      ADD_FAILURE() << op << " " << c.at("args").dump() << operands << (strided ? " strided" : "") << ": " << problem;
      if (++failures == 40) FAIL() << "and more";
    }
  }
}

TEST(PeerValues, types_are_promoted_as_pytorch_does) {
  for (const auto& [op, rows] : stored().at("promotions").items()) {
    for (const json& r : rows) {
      const Tensor a = ones(Dims::filled(r[1], 2), {parse_dtype(r[0].get<std::string>())});
      const std::string kind = r[2];
      const Tensor b = r[3] < 0 ? Tensor() : ones(Dims::filled(r[3], 2), {parse_dtype(kind)});
      const Operand other = b.defined() ? Operand(b)
                                        : Operand(kind == "bool"  ? Scalar(true)
                                                  : kind == "int" ? Scalar(1)
                                                                  : Scalar(1.5));
      const Tensor c = op == "add"   ? a.add(other)
                       : op == "div" ? a.div(other)
                       : op == "eq"  ? a.eq(other)
                                     : a.maximum(other);
      EXPECT_EQ(name(c.dtype()), r[4].get<std::string>()) << op << " " << r.dump();
    }
  }
}

}  // namespace
}  // namespace lorry
