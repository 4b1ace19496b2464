// What a compiled function must notice between calls: captured tensors that are replaced, share memory or lose their
// users, gradients that meet, writes of the host, other types of numbers.

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "lorry/base/events.h"
#include "lorry/compile/compile.h"
#include "lorry/lorry.h"
#include "lorry/trace/recorder.h"
#include "tests/compile/fused_devices.h"

namespace lorry::test {
namespace {

/// Expects of three calls what the function itself gives.
template <class F, class... A>
void expect_same(const F& f, const Compiled<F>& compiled, const A&... arguments) {
  for (int k = 0; k < 3; ++k) {
    const Tensor expected = f(arguments...), got = compiled(arguments...);
    EXPECT_TRUE(got.equal(expected)) << "call " << k << "\n" << compiled.explain();
  }
}

TEST(CompileGuards, equal_values_written_to_several_tensors) {
  LORRY_NEEDS_FUSED_KERNELS();
  std::vector<Tensor> buffers;
  for (int i = 0; i < 4; ++i) buffers.push_back(randn({6, 5}));
  const Tensor rows = tensor({int64_t{0}, int64_t{2}, int64_t{5}}), x = randn({3, 5});
  const auto f = [&](const Tensor& y) {
    for (Tensor& b : buffers) b.zero_();
    buffers[0].index_add_(0, rows, y);
    buffers[2].index_add_(0, rows, y * 2);
    return (y + 1).exp();
  };
  f(x);
  std::vector<Tensor> expected;
  for (const Tensor& b : buffers) expected.push_back(b.clone());
  const auto compiled = compile(f);
  for (int k = 0; k < 3; ++k) {
    for (Tensor& b : buffers) b.fill_(7);
    compiled(x);
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(buffers[i].equal(expected[i])) << "call " << k << " buffer " << i;
  }
  EXPECT_EQ(compiled.stats().hits, 2);
}

TEST(CompileGuards, a_recording_of_products_is_of_its_mode) {
  LORRY_NEEDS_FUSED_KERNELS();
  const Tensor x = randn({40, 900}), weight = randn({70, 900});
  const auto f = [&](const Tensor& y) { return linear(y.add(1).mul(2), weight).relu().add(1); };
  const auto compiled = compile(f);
  Tensor results[2];
  for (int k = 0; k < 3; ++k)
    for (const bool on : {false, true}) {
      const BatchInvariant scope(on);
      results[on] = compiled(x);
      EXPECT_TRUE(results[on].equal(f(x))) << "call " << k << " " << on << "\n" << compiled.explain();
    }
  EXPECT_FALSE(results[0].equal(results[1])) << "the two kernels cannot be told apart here";
  EXPECT_EQ(compiled.stats().recordings, 2);
  EXPECT_EQ(compiled.stats().hits, 4);
}

TEST(CompileGuards, a_value_written_twice_and_then_a_part_of_one) {
  const Tensor z = randn({8});
  const auto f = [&](Tensor x, Tensor y) {
    x.copy_(z * 2);
    y.copy_(z * 2);
    x.narrow(0, 0, 3).copy_(z.narrow(0, 0, 3));
    return (z + 1).exp();
  };
  const auto compiled = compile(f);
  for (int k = 0; k < 3; ++k) {
    Tensor x = randn({8}), y = randn({8}), a = x.clone(), b = y.clone();
    compiled(x, y), f(a, b);
    EXPECT_TRUE(x.equal(a) && y.equal(b)) << "call " << k;
  }
}

TEST(CompileGuards, a_module_that_is_replaced) {
  auto linear = std::make_unique<nn::Linear>(8, 8);
  const auto f = [&](const Tensor& x) {
    const NoGrad no_grad;
    return gelu((*linear)(x)*2);
  };
  const auto compiled = compile(f);
  const Tensor x = randn({4, 8});
  expect_same(f, compiled, x);
  linear = std::make_unique<nn::Linear>(8, 8);
  expect_same(f, compiled, x);
  Tensor w = randn({8}).requires_grad_();
  const auto g = [&](const Tensor& y) { return (y * w + 1).exp(); };
  const auto with_gradient = compile(g);
  expect_same(g, with_gradient, randn({8}));
  w = randn({8}).requires_grad_();
  expect_same(g, with_gradient, randn({8}));
}

TEST(CompileGuards, a_captured_tensor_that_is_replaced_while_results_live) {
  LORRY_NEEDS_FUSED_KERNELS();
  const Tensor w = randn({8}).requires_grad_();
  Tensor m;
  const auto f = [&](const Tensor& x) { return (x * w * m + 1).exp(); };
  const auto compiled = compile(f);
  std::vector<Tensor> results;
  for (int k = 0; k < 4; ++k) {
    m = randn({8});
    const Tensor x = randn({8});
    results.push_back(compiled(x));
    EXPECT_TRUE(results.back().equal(f(x))) << "call " << k;
  }
  EXPECT_EQ(compiled.stats().cached, 1) << "recordings of tensors that are gone are not kept";
}

TEST(CompileGuards, leaves_of_one_storage_get_their_gradients) {
  const Tensor flat = randn({16});
  Tensor a = flat.narrow(0, 0, 8).detach().requires_grad_(), b = flat.narrow(0, 8, 8).detach().requires_grad_();
  const auto f = [&](const Tensor& x) { return ((x * a).tanh() * b).sum(); };
  const auto compiled = compile(f);
  for (int k = 0; k < 3; ++k) {
    const Tensor x = randn({8});
    a.set_grad({}), b.set_grad({});
    f(x).backward();
    const Tensor for_a = a.grad(), for_b = b.grad();
    a.set_grad({}), b.set_grad({});
    compiled(x).backward();
    ASSERT_TRUE(a.grad().defined() && b.grad().defined()) << "call " << k;
    EXPECT_TRUE(a.grad().equal(for_a) && b.grad().equal(for_b)) << "call " << k;
  }
  const auto sets = compile([&] {
    a.set_grad(a.detach() * 2), b.set_grad(b.detach() * 3);
    return (a.detach() + b.detach()).exp();
  });
  for (int k = 0; k < 3; ++k) {
    a.set_grad({}), b.set_grad({});
    sets();
    ASSERT_TRUE(a.grad().defined() && b.grad().defined()) << "call " << k;
    EXPECT_TRUE(a.grad().equal(a.detach() * 2) && b.grad().equal(b.detach() * 3));
  }
}

TEST(CompileGuards, gradients_that_come_to_share_memory) {
  const Tensor a = randn({8}).requires_grad_(), b = randn({8}).requires_grad_(), m = randn({8});
  const auto f = [&] {
    const NoGrad no_grad;
    const Tensor z = a * b, t = (b.grad() * 2).exp();
    a.grad().mul_(2).add_(1);
    b.grad().copy_((t + b.grad() + z) * 0.5);
    m.add_(a.grad());
    return z + t;
  };
  const auto compiled = compile(f);
  const auto run = [&](const auto& call, const Tensor& for_a, const Tensor& for_b) {
    m.fill_(1);
    a.set_grad(for_a), b.set_grad(for_b);
    const Tensor result = call();
    return std::vector<Tensor>{result, a.grad().clone(), b.grad().clone(), m.clone()};
  };
  const auto expect = [&](const std::vector<Tensor>& got, const std::vector<Tensor>& expected, const char* what) {
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << what << " " << i;
  };
  for (int k = 0; k < 3; ++k) {
    const auto expected = run(f, ones({8}), ones({8}));
    expect(run(compiled, ones({8}), ones({8})), expected, "apart");
  }
  const Tensor one = ones({8}), other = ones({8});
  const auto shared = run(f, one, one);
  expect(run(compiled, other, other), shared, "one gradient of two");
  const auto with_buffer = run(f, m, ones({8}));
  expect(run(compiled, m, ones({8})), with_buffer, "a captured tensor as gradient");
}

/// Expects the same of f compiled, where each call begins with a `scale` of 1 and f changes it.
template <class F>
void expect_same_from(const Tensor& scale, const F& f) {
  const auto compiled = compile(f);
  const Tensor x = randn({8});
  for (int k = 0; k < 3; ++k) {
    scale.fill_(1);
    const std::vector<Tensor> expected = f(x);
    scale.fill_(1);
    const std::vector<Tensor> got = compiled(x);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(got[i].equal(expected[i])) << "result " << i << " of call " << k;
  }
}

TEST(CompileGuards, what_a_host_callback_writes_is_read_again) {
  const Tensor scale = ones({});
  const auto f = [&](const Tensor& x) {
    const Tensor a = x * scale;
    trace::host_callback("more", [&] {
      const NoGrad no_grad;
      scale.add_(1);
    });
    const Tensor b = x * scale;
    return std::vector<Tensor>{(a + b).exp()};
  };
  expect_same_from(scale, f);
}

// A copy of what a host callback writes is that from before, though `scale * 1` has the bits of `scale`.
TEST(CompileGuards, a_copy_of_what_a_host_callback_writes_stays) {
  const Tensor scale = ones({});
  const auto f = [&](const Tensor& x) {
    const Tensor old = scale * 1;
    trace::host_callback("more", [&] {
      const NoGrad no_grad;
      scale.add_(1);
    });
    return std::vector<Tensor>{(x * old).exp(), old};
  };
  expect_same_from(scale, f);
}

TEST(CompileGuards, numbers_of_other_types_are_other_arguments) {
  const auto f = [](const Tensor& x, auto n) { return (x * n).add(n); };
  const auto compiled = compile(f);
  const Tensor x = ones({8}).to(kBool);
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(compiled(x, 1).dtype(), f(x, 1).dtype());
    EXPECT_EQ(compiled(x, true).dtype(), f(x, true).dtype());
    EXPECT_EQ(compiled(x, 1.0).dtype(), f(x, 1.0).dtype());
  }
  const auto by_type = compile([](const Tensor& y, auto n) {
    if constexpr (std::is_same_v<decltype(n), int>)
      return (y * n).exp();
    else
      return std::pair<Tensor, Tensor>((y * 2).exp(), y + 1);
  });
  const Tensor y = randn({8});
  for (int k = 0; k < 3; ++k) {
    by_type(y, 1);
    EXPECT_TRUE(by_type(y, true).second.equal(y + 1));
  }
}

TEST(CompileGuards, an_event_handler_may_ask_for_the_stats) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto compiled = compile([](const Tensor& x) { return (x * 2).exp(); }, {.cache_size_limit = 1});
  int64_t told = 0;
  const auto before = events::set_handler([&](const events::Event&) { told += compiled.stats().cached; });
  for (const int64_t n : {8, 9, 10}) compiled(randn({n}));
  events::set_handler(before);
  EXPECT_GT(told, 0);
}

TEST(CompileGuards, an_undefined_result_beside_one_with_a_gradient) {
  const auto compiled = compile([](const Tensor& x) { return std::pair<Tensor, Tensor>((x * 2).exp(), Tensor()); });
  const Tensor x = randn({8}).requires_grad_();
  for (int k = 0; k < 3; ++k) {
    const auto [result, nothing] = compiled(x);
    EXPECT_TRUE(result.requires_grad());
    EXPECT_FALSE(nothing.defined());
  }
}

TEST(CompileGuards, a_leaf_that_is_written_while_its_results_get_gradients) {
  const auto f = [](const Tensor& x) {
    {
      const NoGrad no_grad;
      Tensor(x).mul_(2).add_(1);
    }
    return (x * 3).exp();
  };
  const auto compiled = compile(f);
  const Tensor start = randn({8});
  for (int k = 0; k < 3; ++k) {
    const Tensor a = start.clone().requires_grad_(), b = start.clone().requires_grad_();
    EXPECT_TRUE(compiled(a).equal(f(b))) << "call " << k;
    EXPECT_TRUE(a.equal(b));
  }
  const Tensor w = randn({8}).requires_grad_(), v = w.detach().clone().requires_grad_();
  const auto with = [](const Tensor& leaf) {
    return [&leaf](const Tensor& x) {
      {
        const NoGrad no_grad;
        Tensor(leaf).mul_(1.5).clamp_(-0.5, 0.5);
      }
      return (x * leaf).exp();
    };
  };
  const auto captured = compile(with(w));
  for (int k = 0; k < 3; ++k) EXPECT_TRUE(captured(start).equal(with(v)(start))) << "call " << k;
}

TEST(CompileGuards, captured_memory_may_be_written_before_the_backward_where_the_function_allows_it) {
  const Tensor w = randn({100, 8});
  const auto f = [&](const Tensor& h) { return (h * (w + 1)).exp(); };
  const auto compiled = compile(f);
  for (int k = 0; k < 3; ++k) {
    const Tensor a = randn({100, 8}), x = a.clone().requires_grad_(), y = a.clone().requires_grad_();
    const Tensor expected = f(x), got = compiled(y);
    w.add_(1);
    expected.sum().backward();
    got.sum().backward();
    EXPECT_TRUE(x.grad().equal(y.grad())) << "call " << k;
  }
}

TEST(CompileGuards, a_view_of_an_argument_that_the_function_captured) {
  Tensor x = randn({8});
  const Tensor part = x.narrow(0, 2, 4);
  const auto f = [&](const Tensor& y) { return (y.narrow(0, 0, 4) * part + 1).exp(); };
  const auto compiled = compile(f);
  expect_same(f, compiled, x);
  expect_same(f, compiled, randn({8}));
}

TEST(CompileGuards, recordings_of_tensors_that_are_gone_release_them) {
  LORRY_NEEDS_FUSED_KERNELS();
  Tensor m;
  const auto compiled = compile([&](const Tensor& x) { return (x * m + 1).exp(); });
  for (int k = 0; k < 5; ++k) {
    m = randn({8});
    compiled(ones({8})), compiled(ones({8}));
  }
  EXPECT_EQ(compiled.stats().cached, 1);
  EXPECT_EQ(compiled.stats().hits, 5);
}

TEST(CompileGuards, many_arguments_cost_no_more_each) {
  LORRY_NEEDS_FUSED_KERNELS();
  std::vector<Tensor> all;
  for (int i = 0; i < 2000; ++i) all.push_back(randn({2}));
  const auto compiled = compile([](const std::vector<Tensor>& list) {
    Tensor sum = list[0];
    for (size_t i = 1; i < list.size(); ++i) sum = sum + list[i];
    return sum;
  });
  const Tensor first = compiled(all);
  EXPECT_TRUE(compiled(all).equal(first));
  all[7] = all[3];
  EXPECT_EQ(compiled.stats().hits, 1);
  compiled(all);
  EXPECT_EQ(compiled.stats().recordings, 2) << "two arguments share memory now";
}

}  // namespace
}  // namespace lorry::test
