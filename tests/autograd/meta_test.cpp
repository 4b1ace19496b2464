// The device meta against the default one: every row of the table of operators gives tensors of the same layouts,
// dtypes and memory there, forward and backward, and what needs elements says so.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lorry/autograd/rules.h"
#include "lorry/lorry.h"
#include "lorry/memory/memory.h"
#include "lorry/ops/pointwise_call.h"
#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

/// Rows whose results have a size that elements decide, and the one that gives them to another device.
bool needs_elements(Op op) { return op == Op::nonzero || op == Op::unique || op == Op::transfer; }

class OnMeta {
 public:
  OnMeta() : before_(default_device()) { set_default_device(kMeta); }
  ~OnMeta() { set_default_device(before_); }

 private:
  Device before_;
};

Tensors on_meta(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& x : tensors)
    all.push_back(x.defined() ? empty_strided(x.sizes(), x.strides(), {x.dtype(), kMeta}) : Tensor());
  return all;
}

/// Where a tensor's memory comes from: the first among `all` with the same storage.
size_t first_of_storage(const Tensors& all, const Tensor& x) {
  return static_cast<size_t>(
      std::ranges::find_if(all, [&](const Tensor& y) { return y.defined() && y.storage().id() == x.storage().id(); }) -
      all.begin());
}

testing::AssertionResult same_layout(const Tensor& got, const Tensor& want) {
  if (got.defined() != want.defined()) return testing::AssertionFailure() << "only one is defined";
  if (!got.defined()) return testing::AssertionSuccess();
  const auto text = [](const Tensor& x) {
    return fmt::format("{} of strides {} from {} in {} bytes, {}, version {}, view {}", describe(x), x.strides(),
                       x.storage_offset(), x.storage().bytes(), x.is_contiguous(), x.version(), x.is_view());
  };
  const std::string a = text(got), b = text(want), place = to_string(want.device());
  std::string there = b;
  there.replace(there.find(" " + place), place.size() + 1, " meta");
  if (a != there) return testing::AssertionFailure() << a << "\ninstead of\n" << there;
  return testing::AssertionSuccess();
}

/// Results, and the inputs after the call: layouts, and what shares memory with what.
void expect_same_layout(Tensors got, Tensors want, const Tensors& got_inputs, const Tensors& want_inputs) {
  ASSERT_EQ(got.size(), want.size());
  got.insert(got.begin(), got_inputs.begin(), got_inputs.end());
  want.insert(want.begin(), want_inputs.begin(), want_inputs.end());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same_layout(got[i], want[i])) << "tensor " << i << ", of which " << got_inputs.size() << " inputs";
    if (got[i].defined()) {
      EXPECT_EQ(first_of_storage(got, got[i]), first_of_storage(want, want[i])) << "memory of tensor " << i;
    }
  }
}

void follow(const Sample& sample, const Tensors& inputs) {
  for (size_t k = 0; k < inputs.size(); ++k)
    if (sample.inputs[k].differentiable && is_floating(inputs[k].dtype())) inputs[k].requires_grad_();
}

/// The gradients of the sum of all results.
Tensors gradients(const Tensors& results, const Tensors& inputs) {
  Tensor sum;
  for (const Tensor& y : results)
    if (y.defined() && y.requires_grad()) sum = sum.defined() ? sum + y.sum().to(kF64) : y.sum().to(kF64);
  if (sum.defined()) sum.backward();
  Tensors all;
  for (const Tensor& x : inputs) all.push_back(x.grad());
  return all;
}

class MetaRows : public testing::TestWithParam<int> {
 protected:
  static Op op() { return static_cast<Op>(GetParam()); }

  template <class Check>
  void for_each_case(const Check& check) {
    for (const Sample* sample : samples_of(op()))
      for (const DType dtype : kDTypes)
        for (const Memory memory : kMemories) {
          if (!sample->accepts(dtype) || (sample->by_memory && memory != Memory::contiguous)) continue;
          SCOPED_TRACE(fmt::format("sample {} in {}, memory {}", sample - samples_of(op())[0], name(dtype),
                                   static_cast<int>(memory)));
          check(*sample, dtype, memory);
          if (testing::Test::HasFatalFailure()) return;
        }
  }
};

TEST_P(MetaRows, give_the_layouts_and_share_the_memory_that_they_do_elsewhere) {
  for_each_case([](const Sample& sample, DType dtype, Memory memory) {
    const Tensors inputs = make_inputs(sample, dtype, memory), there = on_meta(inputs);
    if (needs_elements(op())) {
      EXPECT_THROW(sample.call(there), DeviceError);
      return;
    }
    const Tensors want = sample.call(inputs);
    const OnMeta scope;
    expect_same_layout(sample.call(there), want, there, inputs);
  });
}

TEST_P(MetaRows, write_in_place_and_into_given_tensors) {
  for_each_case([](const Sample& sample, DType dtype, Memory memory) {
    if (needs_elements(op())) return;
    const Tensors inputs = make_inputs(sample, dtype, memory), there = on_meta(inputs);
    if (sample.out != nullptr) {
      Tensors out, grown;
      for (const Tensor& x : sample.call(inputs))
        out.push_back(empty_like(x)), grown.push_back(empty({0}, {x.dtype()}));
      for (const Tensors& into : {out, grown}) {
        const Tensors into_there = on_meta(into);
        sample.out(into, inputs);
        const OnMeta scope;
        sample.out(into_there, there);
        expect_same_layout(into_there, into, there, inputs);
      }
    }
    if (sample.in_place == nullptr || memory == Memory::expanded) return;
    sample.in_place(inputs);
    const OnMeta scope;
    sample.in_place(there);
    expect_same_layout({}, {}, there, inputs);
  });
}

TEST_P(MetaRows, have_gradients_of_the_same_layouts) {
  for_each_case([](const Sample& sample, DType dtype, Memory memory) {
    if (sample.internal || needs_elements(op()) || !is_floating(dtype)) return;
    const Tensors inputs = make_inputs(sample, dtype, memory), there = on_meta(inputs);
    follow(sample, inputs), follow(sample, there);
    const Tensors want = gradients(sample.call(inputs), inputs);
    const OnMeta scope;
    expect_same_layout(gradients(sample.call(there), there), want, {}, {});
  });
}

TEST_P(MetaRows, take_empty_tensors) {
  for_each_case([](const Sample& given, DType dtype, Memory memory) {
    if (given.leading == 0 || needs_elements(op())) return;
    const Sample sample = without_rows(given);
    const Tensors inputs = make_inputs(sample, dtype, memory), there = on_meta(inputs);
    const Tensors want = sample.call(inputs);
    const OnMeta scope;
    expect_same_layout(sample.call(there), want, there, inputs);
  });
}

INSTANTIATE_TEST_SUITE_P(Rows, MetaRows, testing::ValuesIn(sampled_rows()),
                         [](const auto& info) { return std::string(kOps[info.param].name); });

// ---- pointwise rows -------------------------------------------------------------------------------------------------

/// The operands of a pointwise row: whole sizes, a row that is broadcast, a single element, whole sizes again.
Tensors pointwise_operands(int arity, DType dtype, Memory memory, bool conditional) {
  const Dims sizes[] = {{4, 3}, {3}, {}, {4, 3}};
  Tensors operands;
  for (int k = 0; k < arity; ++k) {
    const Tensor x = allocate(sizes[k], conditional && k == 0 ? kBool : dtype, memory);
    for (int64_t i = 0; i < x.numel(); ++i) set_element(x, i, 1);
    operands.push_back(x);
  }
  return operands;
}

class MetaPointwise : public testing::TestWithParam<int> {
 protected:
  static Op op() { return static_cast<Op>(GetParam()); }
};

TEST_P(MetaPointwise, gives_the_layouts_that_it_does_elsewhere_forward_backward_and_in_place) {
  const int arity = row(static_cast<Pointwise>(op())).arity;
  for (const DType dtype : kDTypes)
    for (const Memory memory : kMemories) {
      SCOPED_TRACE(fmt::format("{}, memory {}", name(dtype), static_cast<int>(memory)));
      const Tensors inputs = pointwise_operands(arity, dtype, memory, op() == Op::where), there = on_meta(inputs);
      const auto follow = [](const Tensors& operands) {
        for (const Tensor& x : operands)
          if (is_floating(x.dtype())) x.requires_grad_();
      };
      const auto call = [](const Tensors& x) { return ops::call(op(), std::vector<Operand>(x.begin(), x.end())); };
      const auto in_place = [](const Tensors& x) {
        ops::call_in_place(op(), x[0], std::vector<Operand>(x.begin() + 1, x.end()));
      };
      Tensor want;
      try {
        want = call(inputs);
      } catch (const DTypeError&) {
        EXPECT_THROW(call(there), DTypeError);
        continue;
      }
      expect_same_layout({call(there)}, {want}, there, inputs);
      if (memory != Memory::expanded && op() != Op::where) {
        bool refused = false;
        try {
          in_place(inputs);
        } catch (const DTypeError&) {
          refused = true;
        }
        if (refused) {
          EXPECT_THROW(in_place(there), DTypeError);
        } else {
          in_place(there);
          expect_same_layout({}, {}, there, inputs);
        }
      }
      if (autograd::find_rule(op()) == nullptr) continue;
      follow(inputs), follow(there);
      expect_same_layout(gradients({call(there)}, there), gradients({call(inputs)}, inputs), {}, {});
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Rows, MetaPointwise, testing::Range(0, kPointwiseCount),
                         [](const auto& info) { return std::string(kOps[info.param].name); });

// ---- the device itself ----------------------------------------------------------------------------------------------

TEST(Meta, has_tensors_that_factories_and_to_make) {
  EXPECT_EQ(Device("meta"), kMeta);
  EXPECT_EQ(to_string(kMeta), "meta");
  const Options options{.dtype = kF16, .device = "meta"};
  for (const Tensor& x : {empty({2, 3}, options), zeros({2, 3}, options), randn({2, 3}, options),
                          full({2, 3}, 1.5, options), tensor({{1, 2, 3}, {4, 5, 6}}, options)}) {
    EXPECT_EQ(describe(x), "[2, 3] f16 meta");
    EXPECT_TRUE(x.is_contiguous());
  }
  const Tensor turned = zeros({2, 3}).t();
  EXPECT_EQ(turned.to("meta").strides(), turned.strides());
  EXPECT_TRUE(zeros({4, 4}).slice(1, 0, 2).to(kMeta).is_contiguous());
  EXPECT_TRUE(zeros({2}, {.device = kMeta}).copy_(ones({2})).is_same(zeros({2}, {.device = kMeta})) == false);
  EXPECT_EQ((zeros({2, 3}, {.device = kMeta}) + full({}, 1, {.device = kCPU})).device(), kMeta);
}

TEST(Meta, has_no_elements_to_give_and_the_operator_says_so) {
  const Tensor x = zeros({2, 3}, {.device = kMeta}), one = zeros({}, {.device = kMeta}), mask = x.gt(0);
  const auto expect_named = [](const char* op, const auto& f) {
    try {
      f();
      ADD_FAILURE() << op << " threw nothing";
    } catch (const DeviceError& e) {
      EXPECT_EQ(std::string(e.what()),
                fmt::format("{}: the elements are needed; got a tensor on meta, which has no elements; expected one on "
                            "another device",
                            op));
    }
  };
  expect_named("item", [&] { (void)one.item(); });
  expect_named("to_vector", [&] { (void)x.to_vector<float>(); });
  expect_named("to", [&] { (void)x.to(kCPU); });
  expect_named("copy", [&] { zeros({2, 3}, {.device = kCPU}).copy_(x); });
  expect_named("data", [&] { (void)x.data<float>(); });
  expect_named("nonzero", [&] { (void)x.nonzero(); });
  expect_named("masked_select", [&] { (void)x.masked_select(mask); });
  expect_named("unique", [&] { (void)x.unique(); });
  expect_named("equal", [&] { (void)x.equal(x); });
  expect_named("allclose", [&] { (void)x.allclose(x); });
  expect_named("repeat_interleave", [&] { (void)x.repeat_interleave(zeros({3}, {kI64, kMeta}), 1); });
  expect_named("to_dlpack", [&] { (void)dlpack::to_dlpack(x); });
  float elements[2] = {};
  EXPECT_THROW(from_blob(elements, {2}, {.device = kMeta}), DeviceError);
  EXPECT_EQ(to_string(x), "tensor(..., device='meta', size=(2, 3))");
  EXPECT_THROW((void)(x + zeros({2, 3}, {.device = kCPU})), DeviceError);
}

TEST(Meta, counts_the_memory_that_a_run_would_take) {
  memory::reset_peak(kMeta);
  const int64_t before = memory::stats(kMeta).allocated;
  constexpr int64_t n = int64_t{1} << 40;
  {
    const Tensor x = zeros({n}, {.device = kMeta}), y = x + 1;
    EXPECT_EQ(memory::stats(kMeta).allocated - before, 8 * n);
    y.mul_(x.exp());
  }
  EXPECT_EQ(memory::stats(kMeta).allocated, before);
  EXPECT_EQ(memory::stats(kMeta).peak_allocated - before, 12 * n);
  const Tensor small = zeros({1}, {.device = kMeta});
  EXPECT_EQ(memory::stats(kMeta).allocated - before, 512) << "rounded as on a GPU";
  memory::empty_cache(kMeta);
  memory::set_limit(kMeta, int64_t{1} << 30);
  EXPECT_THROW(zeros({n}, {.device = kMeta}), OutOfMemory);
  memory::set_limit(kMeta, 0);
}

TEST(Meta, trains_a_model_whose_gradients_have_the_layouts_of_another_device) {
  const auto trained = [] {
    const Tensor w = randn({8, 4}).requires_grad_(), b = zeros({4}).requires_grad_(), x = randn({16, 8});
    const Tensor target = zeros({16}, {.dtype = kI64});
    cross_entropy(gelu(matmul(x, w) + b), target).backward();
    return Tensors{w.grad(), b.grad()};
  };
  const Tensors want = trained();
  const OnMeta scope;
  expect_same_layout(trained(), want, {}, {});
}

}  // namespace
}  // namespace lorry::test
