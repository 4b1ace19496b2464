// Calls over lists at the door: each is announced as one call, and door::run makes it again with the same bits. For
// every row over lists of the operator table, in every form, and every dtype that it accepts.

#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "lorry/foreach/run_row.h"
#include "lorry/ops/dispatch/run.h"
#include "lorry/ops/pointwise_call.h"
#include "tests/foreach/support.h"
#include "tests/support/announced_calls.h"
#include "tests/support/dtypes.h"

namespace lorry::foreach::test {
namespace {

using lorry::test::Heard;
using lorry::test::heard_of;
using lorry::test::kFloatingDTypes;
using lorry::test::run_again;

/// Entries of several shapes, one of them not contiguous.
TensorList list_of(DType dtype, uint64_t seed) {
  return std::vector<Tensor>{random_tensor({3, 4}, dtype, seed), random_tensor({7}, dtype, seed + 1),
                             random_tensor({4, 5}, dtype, seed + 2).t(), random_tensor({}, dtype, seed + 3)};
}

/// f makes one call of `op`, which gives the same bits when it is made again.
template <class F>
void expect_one(Op op, const F& f) {
  std::vector<Heard> calls = heard_of(f);
  std::erase_if(calls, [&](const Heard& h) { return h.op != op; });  // making the lists is heard too
  ASSERT_EQ(calls.size(), 1u);
  const Heard& call = calls[0];
  ASSERT_TRUE(call.done);
  const std::vector<Tensor> again = run_again(call);
  ASSERT_EQ(again.size(), call.outputs.size());
  EXPECT_FALSE(again.empty());
  for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(same_bits(again[i], call.outputs[i])) << "output " << i;
}

// ---- rows of formula/pointwise.def ----------------------------------------------------------------------------------

/// What the last operand is; those before it are lists.
enum class Last { list, number, numbers, tensor_for_all, tensor_for_each };
constexpr Last kLasts[] = {Last::list, Last::number, Last::numbers, Last::tensor_for_all, Last::tensor_for_each};

/// The arguments of a row, with numbers that every row computes in every dtype.
class Operands {
 public:
  Operands(Pointwise op, DType dtype, Last last) {
    const int arity = row(op).arity;
    for (int k = 0; k + 1 < arity || k == 0; ++k)
      all_.emplace_back(list_of(op == Pointwise::where && k == 0 ? kBool : dtype, 1 + 10 * static_cast<uint64_t>(k)));
    if (arity > 1) all_.push_back(last_of(dtype, last));
  }
  const std::vector<Argument>& all() const { return all_; }

 private:
  Argument last_of(DType dtype, Last last) {
    const Scalar two = dtype == kBool ? Scalar(true) : Scalar(2), three = dtype == kBool ? Scalar(false) : Scalar(3);
    switch (last) {
      case Last::list:
        break;
      case Last::number:
        return two;
      case Last::numbers:
        return std::vector<Scalar>{two, three, two, two};
      case Last::tensor_for_all:
        return tensors_.emplace_back(random_tensor({}, dtype, 51));
      case Last::tensor_for_each:
        return tensors_.emplace_back(random_tensor({4}, dtype, 61));
    }
    return list_of(dtype, 71);
  }

  std::deque<Tensor> tensors_;  ///< arguments refer to them
  std::vector<Argument> all_;
};

/// Whether a row computes operands of the dtype: what the columns `domain` and `result` say.
bool accepts(Pointwise op, DType dtype, bool in_place) {
  if (!ops::accepts(row(op).domain, dtype)) return false;
  const DType result = row(op).result == Result::truth                         ? kBool
                       : row(op).result == Result::real && !is_floating(dtype) ? kF32
                                                                               : dtype;
  return !in_place || can_store(result, op == Pointwise::where ? kBool : dtype);
}

void expect_pointwise(Pointwise op) {
  const Op listed = foreach_of(static_cast<Op>(op));
  for (const DType dtype : kDTypes)
    for (const bool in_place : {false, true})
      for (const Last last : kLasts) {
        if (row(op).arity == 1 && last != Last::list) continue;
        SCOPED_TRACE(fmt::format("{}{}, last operand {}", dtype, in_place ? " in place" : "", static_cast<int>(last)));
        const Operands operands(op, dtype, last);
        const auto call = [&] { apply_any(op, operands.all(), in_place); };
        if (accepts(op, dtype, in_place)) {
          expect_one(listed, call);
        } else {
          EXPECT_THROW(call(), Error);
        }
      }
}

// ---- other rows -----------------------------------------------------------------------------------------------------

/// One call of a row that is no pointwise operator.
struct ListCall {
  Op op;
  std::string what;
  std::function<void()> make;
};

class ListCalls {
 public:
  ListCalls() {
    for (const DType dtype : kDTypes) add_elements(dtype);
    for (const DType dtype : kFloatingDTypes)
      for (const double ord : {1.0, 2.0, 2.5, HUGE_VAL})  // one for each way in which norms are computed
        add_norms(dtype, ord);
  }
  std::vector<ListCall> of(Op op) const {
    std::vector<ListCall> some = all_;
    std::erase_if(some, [&](const ListCall& call) { return call.op != op; });
    return some;
  }

 private:
  void add(Op op, std::string what, std::function<void()> make) { all_.push_back({op, std::move(what), make}); }

  void add_elements(DType dtype) {
    const std::string text(name(dtype));
    for (const DType other : kDTypes) {
      const std::string both = text + " and " + std::string(name(other));
      add(Op::foreach_copy, both, [=] { copy_(list_of(dtype, 1), list_of(other, 5)); });
      add(Op::foreach_cast, both, [=] { to(list_of(dtype, 1), other); });
    }
    const Scalar number = is_floating(dtype) ? Scalar(2.5) : dtype == kBool ? Scalar(true) : Scalar(3);
    add(Op::foreach_fill, text, [=] { fill_(list_of(dtype, 1), number); });
    add(Op::foreach_fill, text + " with 0", [=] { zero_(list_of(dtype, 1)); });
#define LORRY_LIST_REDUCTION(name, ...)                                \
  if (is_accepted([&] { lorry::name(random_tensor({3}, dtype, 1)); })) \
    add(Op::foreach_##name, text, [=] { foreach::name(list_of(dtype, 1)); });
#include "lorry/formula/list.def"
  }

  void add_norms(DType dtype, double ord) {
    const std::string text = fmt::format("{} of order {}", dtype, ord);
    add(Op::norms, text, [=] { norms(list_of(dtype, 1), ord); });
    add(Op::foreach_norm, text, [=] { norm(list_of(dtype, 1), ord); });
    for (const DType result : kFloatingDTypes)
      add(Op::foreach_norm, fmt::format("{} as {}", text, result), [=] { norm(list_of(dtype, 1), ord, result); });
    add(Op::total_norm, text, [=] { total_norm(list_of(dtype, 1), ord); });
    add(Op::power_sum, text, [=] { power_sum(list_of(dtype, 1), ord); });
    for (const bool checks : {false, true})
      add(Op::clip_norm, text, [=] { clip_norm_(list_of(dtype, 1), 0.5, ord, checks); });
    for (const double factor : {0.25, 1.0, HUGE_VAL})
      add(Op::scale_norm, fmt::format("{} by {}", dtype, factor),
          [=] { scale_norm_(list_of(dtype, 1), full({}, factor, {.dtype = kF64})); });
    for (const bool scaled : {false, true})
      for (const bool skips : {false, true}) {
        const std::string how = fmt::format("{}, scaled {}, skips {}", text, scaled, skips);
        const auto finish = [=] {
          const Tensor scale = scaled ? full({}, 4, {.dtype = kF64}) : Tensor();
          return NormFinish{.ord = ord, .max_norm = 0.5, .scale = scale, .skip_nonfinite = skips};
        };
        add(Op::clip_factor, how, [=] { clip_factor(list_of(dtype, 1), finish()); });
        add(Op::finish_norm, how, [=] { finish_norm(power_sum(list_of(dtype, 1), ord), finish()); });
      }
  }

  template <class F>
  static bool is_accepted(const F& f) {
    try {
      f();
    } catch (const DTypeError&) {
      return false;
    }
    return true;
  }

  std::vector<ListCall> all_;
};

// ---- the rows -------------------------------------------------------------------------------------------------------

class AnnouncedLists : public testing::TestWithParam<int> {};

TEST_P(AnnouncedLists, are_one_call_that_is_run_again) {
  const NoGrad quiet;
  const Op op = static_cast<Op>(GetParam());
  for (int p = 0; p < kPointwiseCount; ++p)
    if (foreach_of(static_cast<Op>(p)) == op) return expect_pointwise(static_cast<Pointwise>(p));
  static const ListCalls all;
  const std::vector<ListCall> calls = all.of(op);
  EXPECT_FALSE(calls.empty()) << "no call is listed for the row";
  for (const ListCall& call : calls) {
    SCOPED_TRACE(call.what);
    expect_one(op, call.make);
  }
}

/// All rows over lists but those with tests of their own: the step of an optimizer (tests/optim/announced_test.cpp)
/// and collectives (tests/parallel/collectives_test.cpp).
std::vector<int> rows_over_lists() {
  std::vector<int> rows;
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const bool has_own = op == Op::optimizer_step || (op >= Op::all_reduce && op <= Op::barrier);
    if (kOps[i].kind == OpKind::list && !has_own) rows.push_back(i);
  }
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Rows, AnnouncedLists, testing::ValuesIn(rows_over_lists()),
                         [](const auto& info) { return std::string(kOps[info.param].name); });

// ---- what is announced ----------------------------------------------------------------------------------------------

TEST(AnnouncedListCalls, may_have_numbers_first) {
  const NoGrad quiet;
  const TensorList x = list_of(kF32, 1);
  expect_one(Op::foreach_sub, [&] { sub(Scalar(1), x); });
  expect_one(Op::foreach_pow, [&] { apply(Pointwise::pow, {std::vector<double>{1, 2, 3, 4}, x}); });
}

TEST(AnnouncedListCalls, that_are_differentiated_are_calls_of_their_entries) {
  const std::vector<Tensor> x{ones({2}).requires_grad_(), ones({3}).requires_grad_()};
  const std::vector<Heard> calls = heard_of([&] { mul(x, 2); });
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].op, Op::mul);
}

TEST(AnnouncedListCalls, give_the_same_bits_with_a_listener_as_without) {
  const NoGrad quiet;
  const TensorList x = list_of(kF32, 1), y = list_of(kF32, 5);
  const TensorList plain = lerp(x, y, 0.3);
  TensorList heard;
  heard_of([&] { heard = lerp(x, y, 0.3); });
  EXPECT_TRUE(same_bits(heard, plain.tensors()));
}

TEST(AnnouncedListCalls, refuse_what_is_not_of_the_operator) {
  const NoGrad quiet;
  const Tensor x = ones({2});
  const door::Input inputs[] = {&x, &x};
  const auto refused = [](const door::CallView& call, const char* why) {
    const std::string said = message<ValueError>([&] { foreach::run(call); });
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  const auto counts = [](std::vector<int64_t> numbers) { return door::Attribute(std::move(numbers)); };
  const door::Attribute one_each[] = {counts({1, 1})}, too_many[] = {counts({1, 5})}, less[] = {counts({1})},
                        negative[] = {counts({1, -1})}, huge[] = {counts({1, INT64_MAX})}, other[] = {true};
  EXPECT_TRUE(same_bits(foreach::run({.op = Op::foreach_add, .inputs = inputs, .attributes = one_each})[0], x + x));
  for (const door::Attribute* wrong : {too_many, less, negative, huge})
    refused({.op = Op::foreach_add, .inputs = inputs, .attributes = {wrong, 1}}, "counts");
  refused({.op = Op::foreach_add, .inputs = inputs, .attributes = other}, "another kind");
  refused({.op = Op::foreach_add, .inputs = inputs}, "number of attributes");
  refused({.op = Op::foreach_neg, .inputs = inputs, .attributes = one_each}, "number of arguments");
  refused({.op = Op::foreach_copy, .inputs = inputs, .attributes = one_each}, "no such form");
  refused({.op = Op::clip_norm, .inputs = inputs, .attributes = one_each}, "no such form");
  refused({.op = Op::total_norm, .inputs = inputs, .attributes = one_each}, "another kind");
  const door::Attribute norm_of[] = {2.0, std::string("f17")};
  refused({.op = Op::foreach_norm, .inputs = inputs, .attributes = norm_of}, "no such dtype");
}

TEST(AnnouncedListCalls, reach_their_function_through_door_run) {
  const NoGrad quiet;
  const Tensor x = ones({2});
  const door::Input inputs[] = {&x, &x};
  const door::Attribute one_each[] = {std::vector<int64_t>{1, 1}};
  door::CallView call{.op = Op::foreach_add, .inputs = inputs, .attributes = one_each};
  const std::string said = message<ValueError>([&] { door::run(call); });
  EXPECT_NE(said.find("run: foreach_add is a call over lists"), std::string::npos) << said;
  EXPECT_NE(said.find("expected foreach::run"), std::string::npos) << said;
  call.run = door::run;
  EXPECT_THROW(door::run(call), ValueError) << "which would call itself";
  call.run = foreach::run;
  EXPECT_TRUE(same_bits(door::run(call)[0], x + x));
  EXPECT_TRUE(same_bits(foreach::run({.op = Op::add, .inputs = inputs})[0], x + x)) << "other rows are door::run's";
  const std::string step =
      message<ValueError>([&] { foreach::run({.op = Op::optimizer_step, .in_place = true, .inputs = inputs}); });
  EXPECT_NE(step.find("run: optimizer_step is a row of another room; expected door::run"), std::string::npos) << step;
}

}  // namespace
}  // namespace lorry::foreach::test
