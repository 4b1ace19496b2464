// What every message of an operator begins with: the name that was called, whatever the operator is composed of, in all
// forms. Each public function and method (public_calls.py reads the headers) and each row of the tables is called many
// times with arguments of its types that seldom fit: undefined tensors, wrong ranks, dtypes and sizes, dimensions and
// indices out of range, empty tensors. Whatever is thrown has to be a typed error that names the call, once, and gives
// ranges that are ranges.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "lorry/autograd/engine.h"
#include "lorry/foreach/foreach.h"
#include "lorry/foreach/norm.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/clip.h"
#include "tests/ops/operator_samples.h"
#include "tests/support/scale.h"

namespace lorry::test {
namespace {

/// Arguments of one call, and what they refer to.
class Arguments {
 public:
  explicit Arguments(uint32_t seed) : random_(seed) {}

  template <class T>
  T make();
  /// Of the tensors made.
  const std::set<int64_t>& ranks() const { return ranks_; }

 private:
  size_t below(size_t n) { return random_() % n; }
  template <class T>
  T one_of(const std::vector<T>& list) {
    return list[below(list.size())];
  }
  Tensor awkward();
  /// Remembered until the call is over.
  const Tensor& tensor() {
    tensors_.push_back(awkward());
    if (tensors_.back().defined()) ranks_.insert(tensors_.back().dim());
    return tensors_.back();
  }
  template <class T>
  std::vector<T> several(size_t most) {
    std::vector<T> list;
    for (size_t n = below(most + 1); n > 0; --n) list.push_back(make<T>());
    return list;
  }

  std::mt19937 random_;
  std::deque<Tensor> tensors_;
  std::deque<std::vector<Tensor>> lists_;
  std::deque<std::vector<Index>> indices_;
  std::deque<std::vector<Operand>> operands_;
  std::set<int64_t> ranks_;
};

Tensor Arguments::awkward() {
  switch (below(24)) {
    case 0:
      return {};
    case 1:
      return full({}, 0.5, {kF32});
    case 2:
      return full({}, 1, {kI64});
    case 3:
      return ones({3});
    case 4:
      return empty({0});
    case 5:
      return empty({2, 0});
    case 6:
      return empty({0, 3});
    case 7:
      return ones({3, 2});
    case 8:
      return ones({2, 3, 4});
    case 9:
      return ones(Dims::filled(8, 1));
    case 10:
      return ones({1, 3}).expand({2, 3});
    case 11:
      return ones({2, 3}, {kF16});
    case 12:
      return ones({2, 3}, {kF64});
    case 13:
      return ones({2, 3}, {kBool});
    case 14:
      return zeros({2, 3}, {kI64});
    case 15:
      return full({2, 3}, 7, {kI64});
    case 16:
      return zeros({2}, {kI64});
    case 17:
      return full({3}, -9, {kI64});
    case 18:
      return empty({0}, {kI64});
    case 19:
      return ones({2, 3}, {kU8});
    case 20:
      return ones({2, 3}).requires_grad_();
    case 21:
      return full({3, 3}, -1.0);
    default:
      return ones({2, 3});
  }
}

template <>
Tensor Arguments::make() {
  return tensor();
}
template <>
SequenceRows Arguments::make() {
  return {tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), tensor()};
}
template <>
bool Arguments::make() {
  return below(2) == 0;
}
template <>
int64_t Arguments::make() {
  return one_of<int64_t>({-9, -3, -2, -1, 0, 0, 1, 1, 2, 3, 5, 20});
}
template <>
int Arguments::make() {
  return one_of<int>({-1, 0, 1000});
}
template <>
double Arguments::make() {
  return one_of<double>({-1, 0, 0.5, 1, 2, 10, HUGE_VAL, NAN});
}
template <>
Scalar Arguments::make() {
  return below(2) == 0 ? Scalar(one_of<int64_t>({-3, 0, 1, 2, 300})) : Scalar(one_of<double>({-1, 0.5, 2.5}));
}
template <>
Operand Arguments::make() {
  if (below(3) == 0) return make<Scalar>();
  return tensor();
}
template <>
std::optional<Operand> Arguments::make() {
  if (below(3) == 0) return {};
  return make<Operand>();
}
template <>
Dims Arguments::make() {
  Dims dims;
  for (size_t n = below(4); n > 0; --n) dims.push_back(one_of<int64_t>({-7, -1, 0, 1, 2, 3, 6}));
  return dims;
}
template <>
DType Arguments::make() {
  return one_of<DType>({kF32, kF64, kI64, kBool, static_cast<DType>(77)});
}
template <>
Device Arguments::make() {
  return kCPU;
}
template <>
Options Arguments::make() {
  return {make<DType>(), kCPU};
}
template <>
std::optional<int64_t> Arguments::make() {
  if (below(3) == 0) return {};
  return make<int64_t>();
}
template <>
std::optional<double> Arguments::make() {
  if (below(2) == 0) return {};
  return make<double>();
}
template <>
std::optional<DType> Arguments::make() {
  if (below(2) == 0) return {};
  return make<DType>();
}
template <>
std::string_view Arguments::make() {
  return one_of<std::string_view>({"floor", "sum", "mean", "add", "tanh", "none", "ij", "rounded"});
}
template <>
CodeFormat Arguments::make() {
  return one_of<CodeFormat>({CodeFormat::int8, CodeFormat::e4m3, CodeFormat::e5m2, static_cast<CodeFormat>(9)});
}
template <>
QuantScheme Arguments::make() {
  QuantScheme scheme{.kind = static_cast<QuantScheme::Kind>(below(6)), .scaled = make<bool>()};
  if (below(2) == 0) scheme.dim = make<int64_t>();
  return scheme;
}
template <>
Quantized Arguments::make() {
  return {.scheme = make<QuantScheme>(), .codes = tensor(), .scale = tensor(), .zero_point = tensor(), .dtype = kF32};
}
template <>
Reduction Arguments::make() {
  return one_of<Reduction>({Reduction::none, Reduction::mean, Reduction::sum});
}
template <>
Generator* Arguments::make() {
  return nullptr;
}
template <>
AttentionOptions Arguments::make() {
  return {.dropout = one_of<double>({0, 0, -1, 2}), .causal = make<bool>(), .enable_gqa = make<bool>()};
}
template <>
autograd::GradOptions Arguments::make() {
  return {.allow_unused = make<bool>()};
}
template <>
foreach::NormFinish Arguments::make() {
  return {.max_norm = one_of<double>({1, 1, -1}), .skip_nonfinite = make<bool>()};
}
template <>
std::vector<int64_t> Arguments::make() {
  return several<int64_t>(3);
}
template <>
std::vector<Tensor> Arguments::make() {
  return several<Tensor>(3);
}
template <>
std::span<const Tensor> Arguments::make() {
  return lists_.emplace_back(make<std::vector<Tensor>>());
}
template <>
Index Arguments::make() {
  switch (below(6)) {
    case 0:
      return make<int64_t>();
    case 1:
      return Slice(make<std::optional<int64_t>>(), {}, one_of<int64_t>({-1, 0, 1, 2}));
    case 2:
      return None;
    case 3:
      return Ellipsis;
    case 4:
      return make<bool>();
    default:
      return tensor();
  }
}
template <>
std::span<const Index> Arguments::make() {
  return indices_.emplace_back(several<Index>(4));
}
template <>
std::span<const Operand> Arguments::make() {
  return operands_.emplace_back(several<Operand>(3));
}
template <>
foreach::TensorList Arguments::make() {
  return make<std::vector<Tensor>>();
}
template <>
foreach::Argument Arguments::make() {
  switch (below(4)) {
    case 0:
      return make<Scalar>();
    case 1:
      return std::vector<double>{1, 2};
    case 2:
      return tensor();
    default:
      return make<foreach::TensorList>();
  }
}

/// A function that is called with arguments of its types.
struct PublicCall {
  std::string called;  ///< what messages begin with
  std::string shown;   ///< where the function is, and which form it is
  std::function<void(Arguments&)> call;
};

/// What is compiled for a call depends on its signature alone, and many share one.
class PublicCalls {
 public:
  template <class Lambda>
  void add(const char* called, const char* shown, Lambda lambda) {
    add(called, shown, +lambda);
  }
  template <class Result, class... Types>
  void add(const char* called, const char* shown, Result (*function)(Types...)) {
    add_with<Types...>(called, shown, function);
  }
  template <class Result, class... Types>
  void add(const char* called, const char* shown, Result (Tensor::*method)(Types...) const) {
    add_with<Tensor, Types...>(called, shown, method);
  }
  const std::vector<PublicCall>& list() const { return calls_; }

 private:
  template <class... Types, class Pointer>
  void add_with(const char* called, const char* shown, Pointer pointer) {
    calls_.push_back({called, shown, [pointer](Arguments& arguments) {
                        std::tuple<std::decay_t<Types>...> made{arguments.make<std::decay_t<Types>>()...};
                        static_cast<void>(std::apply(pointer, made));
                      }});
  }

  std::vector<PublicCall> calls_;
};

void add_declared(PublicCalls& calls) {
  using autograd::GradOptions;
  using foreach::Argument;
  using foreach::FinishedNorm;
  using foreach::NormFinish;
  using foreach::Norms;
  using foreach::TensorList;
#define LORRY_FUNCTION(called, room, name, ...) \
  calls.add(#called, #room "::" #name, static_cast<__VA_ARGS__>(room::name));
#define LORRY_METHOD(called, name, ...) calls.add(#called, "Tensor::" #name, static_cast<__VA_ARGS__>(&Tensor::name));
#include "public_calls.inc"
}

void add_rows(PublicCalls& calls) {
  using foreach::Argument;
  using foreach::TensorList;
#define LORRY_UNARY(name, Formula, result, domain)                                                       \
  calls.add(#name, #name, [](const Tensor& x) { return name(x); });                                      \
  calls.add(#name, #name "_out", [](const Tensor& out, const Tensor& x) { return name##_out(out, x); }); \
  calls.add(#name, "." #name, [](const Tensor& x) { return x.name(); });                                 \
  calls.add(#name, "." #name "_", [](const Tensor& x) { return x.name##_(); });                          \
  calls.add(#name, "foreach::" #name, [](const TensorList& x) { return foreach::name(x); });             \
  calls.add(#name, "foreach::" #name "_", [](const TensorList& x) { return foreach::name##_(x); });
#define LORRY_BINARY(name, Formula, result, domain)                                                                \
  calls.add(#name, #name, [](const Tensor& x, const Operand& y) { return name(x, y); });                           \
  calls.add(#name, #name " of a number", [](const Scalar& x, const Tensor& y) { return name(x, y); });             \
  calls.add(#name, #name "_out",                                                                                   \
            [](const Tensor& out, const Operand& x, const Operand& y) { return name##_out(out, x, y); });          \
  calls.add(#name, "." #name, [](const Tensor& x, const Operand& y) { return x.name(y); });                        \
  calls.add(#name, "." #name "_", [](const Tensor& x, const Operand& y) { return x.name##_(y); });                 \
  calls.add(#name, "foreach::" #name, [](const TensorList& x, const Argument& y) { return foreach::name(x, y); }); \
  calls.add(#name, "foreach::" #name "_",                                                                          \
            [](const TensorList& x, const Argument& y) { return foreach::name##_(x, y); });
#include "lorry/formula/pointwise.def"
#define LORRY_TOTAL(name, fold, map, finish, result)                                                               \
  calls.add(#name, #name, [](const Tensor& x, const Dims& dims, bool keepdim, const std::optional<DType>& dtype) { \
    return lorry::name(x, dims, keepdim, dtype);                                                                   \
  });
#include "lorry/formula/reduce.def"
#define LORRY_REDUCTION(name, fold, map, finish, result)                                           \
  calls.add(#name, #name, [](const Tensor& x, const Dims& dims) { return lorry::name(x, dims); }); \
  calls.add(#name, "." #name, [](const Tensor& x, const Dims& dims) { return x.name(dims); });     \
  calls.add(#name, #name "_out",                                                                   \
            [](const Tensor& out, const Tensor& x, const Dims& dims) { return name##_out(out, x, dims); });
#include "lorry/formula/reduce.def"
#define LORRY_LIST_REDUCTION(name, ...) \
  calls.add(#name, "foreach::" #name, [](const TensorList& x) { return foreach::name(x); });
#include "lorry/formula/list.def"
}

#define LORRY_AFTER_X(...) __VA_OPT__(, ) __VA_ARGS__

void add_aliases(PublicCalls& calls) {
#define LORRY_ALIAS(alias, original, parameters, arguments)                                             \
  calls.add(#alias, #alias,                                                                             \
            [](const Tensor& x LORRY_AFTER_X parameters) { return alias(x LORRY_AFTER_X arguments); }); \
  calls.add(#alias, "." #alias, [](const Tensor& x LORRY_AFTER_X parameters) { return x.alias arguments; });
#define LORRY_ALIAS_IN_PLACE(alias, original, parameters, arguments) \
  calls.add(#alias, "." #alias "_", [](const Tensor& x LORRY_AFTER_X parameters) { return x.alias##_ arguments; });
#define LORRY_ALIAS_OUT(alias, original, parameters, arguments)                                      \
  calls.add(#alias, #alias "_out", [](const Tensor& out, const Tensor& x LORRY_AFTER_X parameters) { \
    return alias##_out(out, x LORRY_AFTER_X arguments);                                              \
  });
#define LORRY_ALIAS_LIST(alias, original, parameters, arguments)        \
  calls.add(#alias, #alias, [] parameters { return alias arguments; }); \
  calls.add(#alias, #alias "_out",                                      \
            [](const Tensor& out LORRY_AFTER_X parameters) { return alias##_out(out LORRY_AFTER_X arguments); });
#include "lorry/tensor/aliases.def"
}

/// What no header declares as a plain function.
void add_others(PublicCalls& calls) {
  calls.add("to_vector", "Tensor::to_vector", [](const Tensor& x) { return x.to_vector<float>(); });
  calls.add("assignment",
            "Tensor::operator=", [](const Tensor& x, const Tensor& y) { static_cast<void>(Tensor(x) = y); });
  calls.add("select", "Tensor::operator[]", [](const Tensor& x, int64_t i) { return x[i]; });
  calls.add("embed", "embed", [](const Tensor& x) { return embed(x, {3}, {Layout::contiguous({2}), 0}); });
  calls.add("add", "foreach::apply", [](const foreach::TensorList& x) { return foreach::apply(Pointwise::add, {x}); });
}

const PublicCalls& public_calls() {
  static const PublicCalls* const calls = [] {
    auto* const made = new PublicCalls;
    add_declared(*made);
    add_rows(*made);
    add_aliases(*made);
    add_others(*made);
    return made;
  }();
  return *calls;
}

/// What is wrong with a message, or nothing.
std::string fault(const std::string& text, const std::string& called, const std::set<int64_t>& ranks) {
  if (!text.starts_with(called + ": ")) return "does not begin with the name called";
  const std::string rest = text.substr(called.size() + 2);
  const size_t word = rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
  if (word != std::string::npos && word > 0 && rest.compare(word, 2, ": ") == 0) return "names two operators";
  if (rest.find("{}") != std::string::npos) return "was not formatted";
  for (size_t at = 0; (at = rest.find("expected ", at)) != std::string::npos; ++at) {
    long long low = 0, high = 0;
    if (std::sscanf(rest.c_str() + at, "expected %lld to %lld", &low, &high) == 2 && low > high)
      return "gives an empty range";
  }
  long long dim = 0, rank = 0, low = 0, high = 0;
  if (std::sscanf(rest.c_str(), "dimension out of range; got dim %lld of a tensor of rank %lld; expected %lld to %lld",
                  &dim, &rank, &low, &high) == 4) {
    const long long n = std::max(rank, 1LL);
    if (low != -n || high != n - 1 || (dim >= low && dim <= high)) return "gives a wrong range";
    if (!ranks.contains(rank)) return "gives a rank that no tensor has";
  }
  if (std::sscanf(
          rest.c_str(),
          "dimension out of range; got dim %lld for one more dimension of a tensor of rank %lld; expected %lld to %lld",
          &dim, &rank, &low, &high) == 4) {
    if (low != -rank - 1 || high != rank || (dim >= low && dim <= high)) return "gives a wrong range";
    if (!ranks.contains(rank)) return "gives a rank that no tensor has";
  }
  return "";
}

TEST(Messages, begin_with_the_name_that_was_called) {
  if (!default_device().is_cpu()) GTEST_SKIP() << "on a GPU an index out of range is reported by a later call";
  uint32_t seed = 1;
  for (const PublicCall& c : public_calls().list()) {
    std::map<std::string, std::string> faults;  // the first message of each kind
    int thrown = 0;
    for (int64_t trial = 0; trial < scaled(150); ++trial) {
      Arguments arguments(++seed);
      try {
        c.call(arguments);
      } catch (const Error& error) {
        ++thrown;
        if (const std::string kind = fault(error.what(), c.called, arguments.ranks()); !kind.empty())
          faults.emplace(kind, error.what());
      } catch (const std::exception& other) {
        faults.emplace("is no lorry::Error", other.what());
      }
    }
    EXPECT_GT(thrown, 0) << c.shown << " never failed";
    for (const auto& [kind, text] : faults) ADD_FAILURE() << c.shown << ": a message " << kind << ": " << text;
  }
}

TEST(Messages, of_every_row_of_the_table_name_a_public_function) {
  std::set<std::string> names;
  for (const PublicCall& c : public_calls().list()) names.insert(c.called);
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (row(op).kind == OpKind::pointwise) continue;
    for (const Sample* sample : samples_of(op)) {
      if (sample->internal) continue;
      for (size_t k = 0; k < sample->inputs.size(); ++k) {
        if (sample->inputs[k].optional) continue;
        Tensors inputs = make_inputs(*sample, kF32);
        inputs[k] = Tensor();
        try {
          sample->call(inputs);
          ADD_FAILURE() << name(op) << ": nothing was thrown for an undefined input " << k;
        } catch (const Error& error) {
          const std::string text = error.what(), called = text.substr(0, text.find(": "));
          EXPECT_TRUE(names.contains(called)) << name(op) << ": " << text;
        }
      }
    }
  }
}

TEST(Messages, an_operator_inside_another_leaves_the_name_as_it_was) {
  EXPECT_EQ(t_operator, nullptr);
  {
    const Running outer("outer");
    EXPECT_THROW(static_cast<void>(ones({2}).reshape({3})), ShapeError);
    EXPECT_STREQ(t_operator, "outer");
  }
  EXPECT_EQ(t_operator, nullptr);
}

}  // namespace
}  // namespace lorry::test
