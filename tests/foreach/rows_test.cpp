// Every row of formula/pointwise.def over lists against the operator for each tensor, to the bit: types, forms,
// strategies, errors.

#include "lorry/ops/pointwise_call.h"
#include "tests/foreach/support.h"

namespace lorry::foreach::test {
namespace {

using Arguments = std::vector<Argument>;

/// The operator for each entry; an error's text instead where it throws.
struct Alone {
  std::vector<Tensor> results;
  std::string error;
};

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

Alone alone(Pointwise op, const Arguments& arguments, size_t n, bool in_place) {
  Alone all;
  all.error = error_of([&] {
    for (size_t e = 0; e < n; ++e) {
      Tensor holders[4];
      std::vector<Operand> x;
      for (size_t k = 0; k < arguments.size(); ++k) x.push_back(arguments[k].at(e, holders[k]));
      all.results.push_back(in_place ? ops::call_in_place(static_cast<Op>(op), *x[0].tensor(), std::span(x).subspan(1))
                                     : ops::call(static_cast<Op>(op), x));
    }
  });
  return all;
}

Alone together(Pointwise op, const Arguments& x, bool in_place) {
  Alone all;
  all.error = error_of([&] { all.results = apply_any(op, x, in_place).tensors(); });
  return all;
}

/// Both ways, out of place and in place, under every strategy.
void check(Pointwise op, const Arguments& arguments) {
  const TensorList* first = nullptr;
  for (const Argument& x : arguments)
    if (first == nullptr) first = x.list();
  const Alone want = alone(op, arguments, first->size(), false);
  for (const Strategy strategy : kAll) {
    SCOPED_TRACE(testing::Message() << row(op).name << " " << name(strategy));
    const StrategyScope scope(strategy);
    const Alone got = together(op, arguments, false);
    ASSERT_EQ(got.error, want.error);
    if (want.error.empty()) {
      ASSERT_TRUE(same_bits(TensorList(got.results), want.results));
    }
  }
  if (arguments[0].list() == nullptr) return;
  for (const Strategy strategy : {Strategy::automatic, Strategy::device_table}) {
    SCOPED_TRACE(testing::Message() << row(op).name << "_ " << name(strategy));
    const StrategyScope scope(strategy);
    const TensorList a = clones(first->tensors()), b = clones(first->tensors());
    Arguments to_a = arguments, to_b = arguments;
    to_a[0] = a, to_b[0] = b;
    const Alone wanted = alone(op, to_a, a.size(), true), got = together(op, to_b, true);
    ASSERT_EQ(got.error, wanted.error);
    if (wanted.error.empty()) {
      ASSERT_TRUE(same_bits(b, a.tensors()));
    }
  }
}

class ForeachRows : public testing::TestWithParam<int> {};

TEST_P(ForeachRows, gives_each_tensor_the_bits_of_its_operator) {
  const auto op = static_cast<Pointwise>(GetParam());
  const int arity = row(op).arity;
  for (const DType dtype : {kF32, kBF16, kF64, kF16, kI64, kI32, kU8, kBool}) {
    SCOPED_TRACE(name(dtype));
    std::vector<TensorList> lists;
    for (int k = 0; k < arity; ++k)
      lists.emplace_back(assorted(op == Pointwise::where && k == 0 ? kBool : dtype, 1'000 * static_cast<uint64_t>(k)));
    check(op, Arguments(lists.begin(), lists.end()));
    if (HasFatalFailure()) return;
    if (arity == 1) continue;
    Arguments last_number(lists.begin(), lists.end()), last_numbers = last_number, last_tensor = last_number;
    last_number.back() = 2;
    check(op, last_number);
    std::vector<Scalar> numbers;
    for (size_t e = 0; e < lists[0].size(); ++e)
      is_floating(dtype) ? numbers.emplace_back(0.25 * static_cast<double>(e) + 0.5)
                         : numbers.emplace_back(static_cast<int64_t>(e) + 1);
    last_numbers.back() = numbers;
    check(op, last_numbers);
    const Tensor zero_dim = random_tensor({}, dtype, 77);
    last_tensor.back() = zero_dim;
    check(op, last_tensor);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, ForeachRows, testing::Range(0, kPointwiseCount),
                         [](const auto& info) { return kPointwise[info.param].name; });

TEST(ForeachArguments, numbers_stand_first_too) {
  const TensorList x = assorted(kF32, 1), w = assorted(kI32, 2);
  check(Pointwise::sub, {1, x});
  check(Pointwise::pow, {2.5, x});
  check(Pointwise::div, {std::vector<double>(x.size(), 3), x});
  check(Pointwise::sub, {1.5, w});
  EXPECT_TRUE(same_bits(foreach::pow(2.5, x), apply(Pointwise::pow, {2.5, x}).tensors()));
}

TEST(ForeachArguments, a_tensor_holds_a_number_for_each) {
  const TensorList x = assorted(kF32, 1), a = assorted(kF32, 2), b = assorted(kF32, 3);
  const Tensor numbers = random_tensor({static_cast<int64_t>(x.size())}, kF32, 4), wide = numbers.to(kF64),
               whole = random_tensor({static_cast<int64_t>(x.size())}, kI64, 4);
  for (const Tensor& n : {numbers, wide, whole, numbers.to(kCPU)}) {
    check(Pointwise::mul, {x, n});
    check(Pointwise::addcmul, {x, a, b, n});
    check(Pointwise::addcdiv, {x, a, b, n});
  }
  check(Pointwise::mul, {x, random_tensor({}, kF32, 5).to(kCPU)});
  check(Pointwise::mul, {x, random_tensor({}, kF64, 5)});
}

TEST(ForeachArguments, dtypes_meet_by_the_operators_rules) {
  std::vector<Tensor> x, y;
  uint64_t seed = 1;
  for (const DType a : kDTypes)
    for (const DType b : kDTypes)
      x.push_back(random_tensor({11}, a, seed++)), y.push_back(random_tensor({11}, b, seed++));
  for (const Pointwise op : {Pointwise::add, Pointwise::mul, Pointwise::div, Pointwise::maximum, Pointwise::lt})
    check(op, {TensorList(x), TensorList(y)});
  check(Pointwise::mul, {TensorList(x), 2});
  check(Pointwise::mul, {TensorList(x), 2.5});
  check(Pointwise::add, {TensorList(x), true});
}

TEST(ForeachArguments, entries_broadcast_like_tensors) {
  const TensorList x = {random_tensor({4, 5}, kF32, 1), random_tensor({5}, kF32, 2), random_tensor({3, 1}, kF32, 3),
                        random_tensor({6}, kF32, 4)};
  const TensorList y = {random_tensor({5}, kF32, 5), random_tensor({5}, kF32, 6), random_tensor({1, 4}, kF32, 7),
                        random_tensor({}, kF32, 8)};
  const Alone want = alone(Pointwise::add, {x, y}, 4, false), got = together(Pointwise::add, {x, y}, false);
  EXPECT_EQ(got.error, want.error);
  EXPECT_TRUE(same_bits(TensorList(got.results), want.results));
}

TEST(ForeachArguments, a_power_of_two_is_a_square_among_others) {
  const TensorList x = assorted(kF32, 1);
  std::vector<double> exponents(x.size(), 2);
  exponents[3] = 3, exponents[5] = -1;
  check(Pointwise::pow, {x, exponents});
  check(Pointwise::pow, {x, 2});
  check(Pointwise::pow, {x, 3});
  check(Pointwise::pow, {x, 2.0});
}

// ---- names ----------------------------------------------------------------------------------------------------------

template <class Function, class InPlace, class F>
void check_names(const char* name, Domain domain, const Function& function, const InPlace& in_place, const F& each) {
  SCOPED_TRACE(name);
  const DType dtype = domain == Domain::whole || domain == Domain::integer ? kI32 : kF32;
  const TensorList x = {random_tensor({7}, dtype, 1), random_tensor({3, 5}, dtype, 2)},
                   y = {random_tensor({7}, dtype, 3), random_tensor({3, 5}, dtype, 4)};
  std::vector<Tensor> want;
  for (size_t e = 0; e < x.size(); ++e) want.push_back(each(x[e], y[e]));
  EXPECT_TRUE(same_bits(function(x, y), want));
  const TensorList self = clones(x.tensors());
  const uint32_t version = self[0].version();
  EXPECT_TRUE(in_place(self, y).is_same(self));
  EXPECT_GT(self[0].version(), version);
  for (size_t e = 0; e < x.size(); ++e) EXPECT_TRUE(same_bits(self[e], want[e].to(dtype)));
}

TEST(ForeachNames, every_row_has_its_functions) {
#define LORRY_UNARY(name, Formula, result, domain)                                                     \
  check_names(                                                                                         \
      #name, Domain::domain, [](const TensorList& x, const TensorList&) { return foreach::name(x); },  \
      [](const TensorList& x, const TensorList&) -> const TensorList& { return foreach::name##_(x); }, \
      [](const Tensor& x, const Tensor&) { return lorry::name(x); });
#define LORRY_BINARY(name, Formula, result, domain)                                                         \
  check_names(                                                                                              \
      #name, Domain::domain, [](const TensorList& x, const TensorList& y) { return foreach::name(x, y); },  \
      [](const TensorList& x, const TensorList& y) -> const TensorList& { return foreach::name##_(x, y); }, \
      [](const Tensor& x, const Tensor& y) { return lorry::name(x, y); });
#include "lorry/formula/pointwise.def"
}

TEST(ForeachNames, signatures_of_their_own) {
  const TensorList x = assorted(kF32, 1), y = assorted(kF32, 2), z = assorted(kF32, 3);
  const TensorList condition = lt(x, y);
  std::vector<Tensor> adds, subs, wheres, clamps, lerps, muls, divs;
  for (size_t e = 0; e < x.size(); ++e) {
    adds.push_back(lorry::add(x[e], y[e], 0.5));
    subs.push_back(lorry::sub(x[e], y[e], 2));
    wheres.push_back(lorry::where(x[e] < y[e], x[e], 0));
    clamps.push_back(lorry::clamp(x[e], -1, 0.5));
    lerps.push_back(lorry::lerp(x[e], y[e], 0.3));
    muls.push_back(lorry::addcmul(x[e], y[e], z[e], 0.1));
    divs.push_back(lorry::addcdiv(x[e], y[e], z[e], -0.1));
  }
  EXPECT_TRUE(same_bits(add(x, y, 0.5), adds));
  EXPECT_TRUE(same_bits(sub(x, y, 2), subs));
  EXPECT_TRUE(same_bits(where(condition, x, 0), wheres));
  EXPECT_TRUE(same_bits(clamp(x, -1, 0.5), clamps));
  EXPECT_TRUE(same_bits(lerp(x, y, 0.3), lerps));
  EXPECT_TRUE(same_bits(addcmul(x, y, z, 0.1), muls));
  EXPECT_TRUE(same_bits(addcdiv(x, y, z, -0.1), divs));
  const TensorList self = clones(x.tensors());
  EXPECT_TRUE(same_bits(add_(self, y, 0.5), adds));
  copy_(self, x);
  EXPECT_TRUE(same_bits(sub_(self, y, 2), subs));
  copy_(self, x);
  EXPECT_TRUE(same_bits(clamp_(self, -1, 0.5), clamps));
  copy_(self, x);
  EXPECT_TRUE(same_bits(lerp_(self, y, 0.3), lerps));
  copy_(self, x);
  EXPECT_TRUE(same_bits(addcmul_(self, y, z, 0.1), muls));
  copy_(self, x);
  EXPECT_TRUE(same_bits(addcdiv_(self, y, z, -0.1), divs));
}

}  // namespace
}  // namespace lorry::foreach::test
