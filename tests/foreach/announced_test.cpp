// Calls over lists at the door: one announcement each, with all their arguments, from which they are made again.

#include <gtest/gtest.h>

#include "lorry/foreach/run_row.h"
#include "tests/foreach/support.h"
#include "tests/support/announced_calls.h"

namespace lorry::foreach::test {
namespace {

using lorry::test::Heard;
using lorry::test::heard_of;
using lorry::test::run_again;

std::vector<Tensor> again_by_foreach(const door::CallView& call) { return foreach::run(call); }

/// Lists whose entries are of several shapes and dtypes, one of them not contiguous.
TensorList list_of(DType dtype, uint64_t seed) {
  return std::vector<Tensor>{random_tensor({3, 4}, dtype, seed), random_tensor({7}, dtype, seed + 1),
                             random_tensor({4, 5}, dtype, seed + 2).t(), random_tensor({}, dtype, seed + 3)};
}

/// One call of `op` is announced; made again it gives the same bits.
template <class F>
void expect_one(Op op, const F& f) {
  SCOPED_TRACE(name(op));
  std::vector<Heard> calls = heard_of(f);
  std::erase_if(calls, [&](const Heard& h) { return h.op != op; });  // making the list is heard too
  ASSERT_EQ(calls.size(), 1u);
  const Heard& call = calls[0];
  ASSERT_TRUE(call.done);
  const std::vector<Tensor> again = run_again(call, again_by_foreach);
  ASSERT_EQ(again.size(), call.outputs.size());
  EXPECT_FALSE(again.empty());
  for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(same_bits(again[i], call.outputs[i])) << "output " << i;
}

TEST(AnnouncedLists, of_every_pointwise_operator_are_run_again) {
  const NoGrad quiet;
  for (int i = 0; i < kPointwiseCount; ++i) {
    const auto op = static_cast<Pointwise>(i);
    const Op listed = foreach_of(static_cast<Op>(op));
    for (const DType dtype : {kF32, kI64, kBool}) {
      const TensorList x = list_of(dtype, 1), y = list_of(dtype, 11), z = list_of(dtype, 21), w = list_of(dtype, 31);
      const std::vector<Argument> all{x, y, z, w};
      const auto call = [&](const std::vector<Argument>& arguments) {
        return heard_of([&] {
          try {
            switch (arguments.size()) {
              case 1:
                return void(apply(op, {arguments[0]}));
              case 2:
                return void(apply(op, {arguments[0], arguments[1]}));
              case 3:
                return void(apply(op, {arguments[0], arguments[1], arguments[2]}));
              default:
                return void(apply(op, {arguments[0], arguments[1], arguments[2], arguments[3]}));
            }
          } catch (const Error&) {  // not of this dtype
          }
        });
      };
      const std::vector<Argument> lists(all.begin(), all.begin() + row(op).arity);
      for (const Heard& h : call(lists)) {
        SCOPED_TRACE(name(h.op));
        EXPECT_EQ(h.op, listed);
        if (!h.done) continue;
        const std::vector<Tensor> again = run_again(h, again_by_foreach);
        for (size_t k = 0; k < again.size(); ++k) EXPECT_TRUE(same_bits(again[k], h.outputs[k]));
      }
    }
  }
}

TEST(AnnouncedLists, have_arguments_of_every_kind) {
  const NoGrad quiet;
  const TensorList x = list_of(kF32, 1), y = list_of(kF32, 5);
  const Tensor number = full({}, 1.5), each = tensor({1.5, 2.5, 3.5, 4.5});
  expect_one(Op::foreach_add, [&] { add(x, y); });
  expect_one(Op::foreach_mul, [&] { mul(x, 2.5); });
  expect_one(Op::foreach_mul, [&] { mul(x, std::vector<double>{1, 2, 3, 4}); });
  expect_one(Op::foreach_mul, [&] { mul(x, number); });
  expect_one(Op::foreach_mul, [&] { mul(x, each); });
  expect_one(Op::foreach_sub, [&] { sub(Scalar(1), x); });
  expect_one(Op::foreach_add_scaled, [&] { add(x, y, 0.5); });
  expect_one(Op::foreach_addcmul, [&] { addcmul(x, y, x, 0.5); });
  expect_one(Op::foreach_add, [&] { add_(list_of(kF32, 2), y); });
  expect_one(Op::foreach_mul, [&] { mul_(list_of(kBF16, 2), 0.75); });
  expect_one(Op::foreach_lerp, [&] { lerp_(list_of(kF32, 2), y, 0.25); });
  expect_one(Op::foreach_copy, [&] { copy_(list_of(kF32, 2), y); });
  expect_one(Op::foreach_fill, [&] { fill_(list_of(kF32, 2), 3); });
  expect_one(Op::foreach_fill, [&] { zero_(list_of(kI32, 2)); });
  expect_one(Op::foreach_cast, [&] { to(x, kBF16); });
}

TEST(AnnouncedLists, of_norms_are_run_again) {
  const NoGrad quiet;
  const TensorList x = list_of(kF32, 1);
  for (const double ord : {1.0, 2.0, 2.5, HUGE_VAL}) {
    expect_one(Op::norms, [&] { norms(x, ord); });
    expect_one(Op::foreach_norm, [&] { norm(x, ord); });
    expect_one(Op::foreach_norm, [&] { norm(x, ord, kF64); });
    expect_one(Op::total_norm, [&] { total_norm(x, ord); });
    expect_one(Op::power_sum, [&] { power_sum(x, ord); });
    expect_one(Op::clip_norm, [&] { clip_norm_(list_of(kF32, 3), 0.5, ord); });
  }
  const Tensor sum = power_sum(x), scale = full({}, 4, {.dtype = kF64});
  expect_one(Op::finish_norm, [&] { finish_norm(sum, {.max_norm = 0.5}); });
  expect_one(Op::finish_norm, [&] { finish_norm(sum, {.max_norm = 0.5, .scale = scale, .skip_nonfinite = true}); });
  expect_one(Op::clip_factor, [&] { clip_factor(x, {.max_norm = 0.5}); });
  expect_one(Op::clip_factor, [&] { clip_factor(x, {.ord = 3, .scale = scale, .skip_nonfinite = true}); });
  expect_one(Op::scale_norm, [&] { scale_norm_(list_of(kF32, 3), full({}, 0.25, {.dtype = kF64})); });
}

TEST(AnnouncedLists, that_are_differentiated_are_calls_of_their_entries) {
  const std::vector<Tensor> x{ones({2}).requires_grad_(), ones({3}).requires_grad_()};
  const std::vector<Heard> calls = heard_of([&] { mul(x, 2); });
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].op, Op::mul);
}

TEST(AnnouncedLists, give_the_same_bits_with_a_listener_as_without) {
  const NoGrad quiet;
  const TensorList x = list_of(kF32, 1), y = list_of(kF32, 5);
  const TensorList plain = lerp(x, y, 0.3);
  TensorList heard;
  heard_of([&] { heard = lerp(x, y, 0.3); });
  EXPECT_TRUE(same_bits(heard, plain.tensors()));
}

TEST(AnnouncedLists, refuse_what_is_not_of_the_operator) {
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
  EXPECT_TRUE(same_bits(foreach::run({.op = Op::add, .inputs = inputs})[0], x + x)) << "other rows are door::run's";
}

}  // namespace
}  // namespace lorry::foreach::test
