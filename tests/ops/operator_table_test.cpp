// Every row of the operator table through its samples: dtypes, layouts, in-place and out forms, undefined operands,
// empty tensors and all ranks. Pointwise rows have tests of their own, generated from formula/pointwise.def.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

constexpr Memory kStrided[] = {Memory::transposed, Memory::sliced};  // sliced: every second element

/// The results of low precision are rounded once; integers and positions are exact.
double allowed(DType dtype) {
  return is_narrow(dtype) ? 4 * tolerance(dtype) : dtype == kF32 ? 1e-5 : dtype == kF64 ? 1e-12 : 0;
}

testing::AssertionResult agree(const Tensors& got, const Tensors& want) {
  if (got.size() != want.size())
    return testing::AssertionFailure() << got.size() << " results instead of " << want.size();
  for (size_t k = 0; k < got.size(); ++k) {
    if (got[k].sizes() != want[k].sizes())
      return testing::AssertionFailure() << "result " << k << " is " << describe(got[k]) << ", not "
                                         << describe(want[k]);
    std::vector<double> numbers = elements(want[k]);
    if (got[k].dtype() == kBool)
      std::replace_if(
          numbers.begin(), numbers.end(), [](double v) { return v != 0; }, 1.0);
    if (const auto result = near(got[k], numbers, allowed(got[k].dtype())); !result)
      return testing::AssertionFailure() << "result " << k << " " << describe(got[k]) << ": " << result.message();
  }
  return testing::AssertionSuccess();
}

bool same_dtypes(const Tensors& got, const Tensors& want) {
  for (size_t k = 0; k < got.size(); ++k)
    if (got[k].dtype() != want[k].dtype()) return false;
  return true;
}

/// Whether the dtype under test reaches the operator at all.
bool follows_dtype(const Sample& sample) {
  for (const SampleInput& input : sample.inputs)
    if (input.role != SampleInput::Role::position) return true;
  return false;
}

/// Runs `check(sample, dtype)` for all samples of the row and all dtypes that each accepts.
class Operators : public testing::TestWithParam<int> {
 protected:
  static Op op() { return static_cast<Op>(GetParam()); }

  template <class Check>
  void for_each_case(const Check& check) {
    for (const Sample* sample : samples_of(op()))
      for (const DType dtype : kDTypes) {
        if (!sample->accepts(dtype) || (!follows_dtype(*sample) && dtype != kF64)) continue;
        SCOPED_TRACE("sample " + std::to_string(sample - samples_of(op())[0]) + " in " + std::string(name(dtype)));
        check(*sample, dtype);
      }
  }
};

// Rows with at least one sample of the kind.
class OperatorsOfSomeDtypes : public Operators {};
class OperatorsInPlace : public Operators {};
class OperatorsWithOut : public Operators {};
class OperatorsOfUsers : public Operators {};
class OperatorsOfEmpties : public Operators {};
class OperatorsOfAnyRank : public Operators {};

TEST_P(Operators, have_samples) {
  EXPECT_FALSE(samples_of(op()).empty()) << "a new row needs a sample in one of tests/ops/*_samples.cpp";
}

TEST_P(OperatorsOfUsers, give_in_f64_what_plain_loops_give) {
  ASSERT_FALSE(samples_of(op()).empty());
  const Sample& first = *samples_of(op())[0];
  const Tensors inputs = make_inputs(first, kF64);
  if (first.holds != nullptr) {
    EXPECT_TRUE(first.holds(elements(first.call(inputs)[0])));
    return;
  }
  const std::optional<std::vector<double>> want = oracle(first, inputs);
  ASSERT_TRUE(want.has_value()) << "a new row needs an oracle in tests/ops/operator_oracles.cpp";
  EXPECT_TRUE(near(first.call(inputs)[0], *want, 1e-13));
}

TEST_P(Operators, give_in_every_dtype_what_f64_gives) {
  for_each_case([](const Sample& sample, DType dtype) {
    const Tensors inputs = make_inputs(sample, dtype), got = sample.call(inputs);
    if (sample.holds == nullptr) {
      EXPECT_TRUE(agree(got, sample.call(in_f64(inputs))));
    } else {
      EXPECT_TRUE(sample.holds(elements(got[0])));
      EXPECT_TRUE(agree(sample.call(inputs), got)) << "one state of the generator gives one result";
    }
  });
}

TEST_P(OperatorsOfSomeDtypes, refuse_every_other_dtype_with_a_dtype_error) {
  for (const Sample* sample : samples_of(op()))
    for (const DType dtype : kDTypes)
      if (!sample->accepts(dtype) && !sample->internal) {
        EXPECT_THROW(sample->call(make_inputs(*sample, dtype)), DTypeError) << name(dtype);
      }
}

TEST_P(Operators, do_not_depend_on_the_layout_of_their_operands) {
  for_each_case([](const Sample& sample, DType dtype) {
    if (sample.by_memory) return;
    const Tensors want = sample.call(make_inputs(sample, dtype));
    for (const Memory memory : kStrided) EXPECT_TRUE(agree(sample.call(make_inputs(sample, dtype, memory)), want));
  });
}

TEST_P(OperatorsInPlace, write_in_place_what_they_return) {
  for_each_case([](const Sample& sample, DType dtype) {
    if (sample.in_place == nullptr) return;
    const Tensors want = sample.call(make_inputs(sample, dtype));
    for (const Memory memory : kMemories) {
      if (memory == Memory::expanded) continue;  // elements that share memory are refused
      const Tensors inputs = make_inputs(sample, dtype, memory);
      const uint32_t version = inputs[0].version();
      sample.in_place(inputs);
      EXPECT_TRUE(agree({inputs[0]}, {want[0]}));
      EXPECT_GT(inputs[0].version(), version);
    }
  });
}

TEST_P(OperatorsWithOut, write_into_a_given_tensor_what_they_return) {
  for_each_case([](const Sample& sample, DType dtype) {
    if (sample.out == nullptr) return;
    const Tensors inputs = make_inputs(sample, dtype), want = sample.call(inputs);
    for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::sliced}) {
      Tensors results;
      for (const Tensor& x : want) results.push_back(allocate(x.sizes(), x.dtype(), memory));
      sample.out(results, inputs);
      EXPECT_TRUE(agree(results, want));
    }
  });
}

TEST_P(OperatorsWithOut, write_into_a_given_tensor_of_any_dtype_what_they_return_converted) {
  for_each_case([](const Sample& sample, DType dtype) {
    if (sample.out == nullptr) return;
    const Tensors inputs = make_inputs(sample, dtype), want = sample.call(inputs);
    for (const DType stored : kDTypes) {
      SCOPED_TRACE("into " + std::string(name(stored)));
      Tensors results, grown;
      bool stores = true;
      for (const Tensor& x : want) {
        results.push_back(empty(x.sizes(), {stored}));
        grown.push_back(empty({0}, {stored}));
        stores &= can_store(x.dtype(), stored);
      }
      if (!stores) {
        EXPECT_THROW(sample.out(results, inputs), DTypeError);
        continue;
      }
      sample.out(results, inputs);
      sample.out(grown, inputs);
      for (size_t k = 0; k < want.size(); ++k) {
        EXPECT_TRUE(same_bits(results[k], want[k].to(stored)));
        EXPECT_TRUE(same_bits(grown[k], want[k].to(stored))) << "an empty result gets its sizes";
      }
    }
  });
}

TEST_P(OperatorsOfUsers, refuse_undefined_operands_with_a_value_error) {
  for (const Sample* sample : samples_of(op())) {
    if (sample->internal) continue;
    const Tensors inputs = make_inputs(*sample, kF64);
    const Tensors results = sample->out != nullptr ? sample->call(inputs) : Tensors();
    for (size_t k = 0; k < inputs.size(); ++k) {
      SCOPED_TRACE("operand " + std::to_string(k));
      Tensors some = inputs;
      const Tensor moved = std::move(some[k]);
      if (sample->inputs[k].optional) {
        EXPECT_NO_THROW(sample->call(some));
        continue;
      }
      if (op() == Op::index_put &&
          k == 1) {  // in its list of indices an undefined one is a full slice, and one other is needed
        EXPECT_THROW(sample->call(some), IndexError);
        continue;
      }
      EXPECT_THROW(sample->call(some), ValueError);
      if (sample->in_place != nullptr) {
        EXPECT_THROW(sample->in_place(some), ValueError);
      }
      if (sample->out != nullptr) {
        EXPECT_THROW(sample->out(results, some), ValueError);
      }
    }
    for (size_t k = 0; k < results.size(); ++k) {
      Tensors some = results;
      some[k] = Tensor();
      EXPECT_THROW(sample->out(some, inputs), ValueError) << "result " << k;
    }
  }
}

TEST_P(OperatorsOfEmpties, take_empty_tensors) {
  for_each_case([](const Sample& given, DType dtype) {
    if (given.leading == 0) return;
    const Sample sample = without_rows(given);
    const Tensors inputs = make_inputs(sample, dtype), got = sample.call(inputs);
    if (sample.holds == nullptr) {
      EXPECT_TRUE(agree(got, sample.call(in_f64(inputs))));
    }
    EXPECT_TRUE(same_dtypes(got, given.call(make_inputs(given, dtype)))) << "an empty tensor changes no dtype";
    if (sample.in_place != nullptr) {
      EXPECT_NO_THROW(sample.in_place(inputs));
    }
  });
}

TEST_P(OperatorsOfAnyRank, take_tensors_of_rank_0_to_8) {
  for_each_case([](const Sample& given, DType dtype) {
    if (!given.any_rank || (dtype != kF64 && dtype != kF32 && dtype != kI64)) return;
    for (int rank = 0; rank <= 8; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const Sample sample = with_rank(given, rank);
      const Tensors inputs = make_inputs(sample, dtype), got = sample.call(inputs);
      if (sample.holds == nullptr) {
        EXPECT_TRUE(agree(got, sample.call(in_f64(inputs))));
      }
      EXPECT_TRUE(agree(sample.call(make_inputs(sample, dtype, Memory::transposed)), got));
    }
  });
}

/// Rows of lorry/ops/dispatch/operators.def with a sample that `wanted` is true of.
template <class Wanted>
auto rows(const Wanted& wanted) {
  std::vector<int> found;
  for (int row = 0; row < kOpCount; ++row) {
    if (kOps[row].kind == OpKind::pointwise || kOps[row].kind == OpKind::list) continue;
    const std::vector<const Sample*> samples = samples_of(static_cast<Op>(row));
    if (samples.empty() || std::any_of(samples.begin(), samples.end(), wanted)) found.push_back(row);
  }
  return testing::ValuesIn(found);
}
const auto kRowName = [](const auto& info) { return std::string(kOps[info.param].name); };
INSTANTIATE_TEST_SUITE_P(Rows, Operators, rows([](const Sample*) { return true; }), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, OperatorsOfSomeDtypes,
                         rows([](const Sample* s) { return s->accepts != any_dtype && !s->internal; }), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, OperatorsInPlace, rows([](const Sample* s) { return s->in_place != nullptr; }),
                         kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, OperatorsWithOut, rows([](const Sample* s) { return s->out != nullptr; }), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, OperatorsOfUsers,
                         rows([](const Sample* s) { return !s->internal && !s->inputs.empty(); }), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, OperatorsOfEmpties, rows([](const Sample* s) { return s->leading != 0; }), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, OperatorsOfAnyRank, rows([](const Sample* s) { return s->any_rank; }), kRowName);

TEST(OperatorTable, has_no_name_twice) {
  for (int a = 0; a < kOpCount; ++a)
    for (int b = 0; b < a; ++b) EXPECT_STRNE(kOps[a].name, kOps[b].name);
}

}  // namespace
}  // namespace lorry::test
