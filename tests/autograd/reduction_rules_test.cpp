// The rules of reductions, scans, softmax, norms, losses and sorting against numerical derivatives, first and second.

#include "lorry/autograd/engine.h"
#include "lorry/base/events.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/gradcheck.h"

namespace lorry::test {
namespace {

Tensor leaf(const Dims& sizes, uint64_t seed, double limit = 2) {
  Tensor x = sample(sizes, kF64, seed, Memory::contiguous, limit);
  // Apart from each other and from 0, so that a central difference never crosses a kink.
  for (int64_t i = 0; i < x.numel(); ++i) set_element(x, i, element(x, i) + 1e-3 * static_cast<double>(i + 1));
  return x.requires_grad_();
}

void check(const char* what, const Function& f, const std::vector<Tensor>& inputs) {
  EXPECT_TRUE(gradcheck(f, inputs)) << what;
  EXPECT_TRUE(gradgradcheck(f, inputs)) << what;
}

TEST(reduction_rules, sums_and_moments_over_any_dims) {
  const Tensor x = leaf({3, 2, 4}, 1);
  for (const Dims& dims : {Dims{}, Dims{1}, Dims{0, 2}, Dims{-1}, Dims{0, 1, 2}})
    for (const bool keepdim : {false, true}) {
      check("sum", [&](auto& v) { return v[0].sum(dims, keepdim).square(); }, {x});
      check("mean", [&](auto& v) { return v[0].mean(dims, keepdim).square(); }, {x});
      check("var", [&](auto& v) { return v[0].var(dims, 0.5, keepdim); }, {x});
      check("std", [&](auto& v) { return v[0].std(dims, 0, keepdim); }, {x});
      check("logsumexp", [&](auto& v) { return v[0].logsumexp(dims, keepdim); }, {x});
      check("amax", [&](auto& v) { return v[0].amax(dims, keepdim).square(); }, {x});
      check("amin", [&](auto& v) { return v[0].amin(dims, keepdim).square(); }, {x});
    }
  check("sum in f64", [](auto& v) { return v[0].sum({0}, false, kF64).exp(); }, {x});
  check("var_mean",
        [](auto& v) {
          auto [variance, average] = var_mean(v[0], {2});
          return variance.mul(average);
        },
        {x});
  const Tensor number = leaf({}, 2);
  check("0-d",
        [](auto& v) {
          return v[0]
              .sum()
              .add(v[0].mean({0}))
              .add(v[0].amax())
              .mul(v[0].prod())
              .mul(v[0].cumsum(0))
              .mul(v[0].cumprod(0));
        },
        {number});
}

TEST(reduction_rules, norms_of_every_order) {
  const Tensor x = leaf({3, 4}, 3);
  for (const double p : {0.5, 1.0, 1.5, 2.0, 3.0, -1.0, kInf, -kInf}) {
    check("norm", [&](auto& v) { return v[0].norm(p); }, {x});
    check("norm over a dim", [&](auto& v) { return v[0].norm(p, {1}, true); }, {x});
  }
  const Tensor y = leaf({3}, 4);
  y.norm(0).backward();
  EXPECT_EQ(elements(y.grad()), (std::vector<double>{0, 0, 0}));
}

TEST(reduction_rules, products_are_right_where_elements_are_zero) {
  for (const std::vector<double>& data :
       {std::vector<double>{1, 2, -3, 0.5}, {1, 0, 3, 2}, {0, 2, 3, 0}, {0, 0, 0, 1}, {2, 3, 4, 0}}) {
    const Tensor x = tensor_of({4}, kF64, data).requires_grad_(),
                 square = tensor_of({2, 2}, kF64, data).requires_grad_();
    check("prod", [](auto& v) { return v[0].prod(); }, {square});
    check("prod along a dim", [](auto& v) { return v[0].prod(1, true); }, {square});
    check("cumprod", [](auto& v) { return v[0].cumprod(0); }, {x});
    check("cumprod along a dim", [](auto& v) { return v[0].cumprod(0); }, {square});
  }
  const Tensor x = leaf({3, 1, 2}, 5);
  check("prod of a size of one", [](auto& v) { return v[0].prod(1); }, {x});
  check("cumsum", [](auto& v) { return v[0].cumsum(0).square(); }, {x});
}

TEST(reduction_rules, running_products_of_any_length_with_any_number_of_zeros) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 17})
    for (const int64_t zeros : {0, 1, 2, 3}) {
      const Tensor x = sample({n, 2}, kF64, static_cast<uint64_t>(n));
      for (int64_t k = 0; k < std::min(zeros, n); ++k)
        set_element(x, 2 * (k * (n - 1) / std::max<int64_t>(zeros - 1, 1)), 0);
      x.requires_grad_();
      SCOPED_TRACE(std::to_string(zeros) + " zeros among " + std::to_string(n));
      check("cumprod", [](auto& v) { return v[0].cumprod(0); }, {x});
      check("prod", [](auto& v) { return v[0].prod(0); }, {x});
    }
}

TEST(reduction_rules, gradients_of_products_do_not_wait_for_the_device) {
  const Tensor x = sample({4, 3}, kF32, 1).requires_grad_();
  const Tensor some_zeros = tensor_of({4}, kF32, {0, 2, 0, 3}).requires_grad_();
  int waits = 0;
  const Tensor y = x.prod(0).add(x.cumprod(0).sum()).sum() + some_zeros.prod() + some_zeros.cumprod(0).sum(),
               seed = ones_like(y);
  events::Handler before =
      events::set_handler([&](const events::Event& event) { waits += event.kind == events::Kind::synchronisation; });
  const std::vector<Tensor> grads = autograd::grad({y}, {x, some_zeros}, {seed}, {.create_graph = true});
  const Tensor again = grads[0].square().sum() + grads[1].square().sum();
  autograd::grad({again}, {x, some_zeros}, {seed});
  events::set_handler(std::move(before));
  EXPECT_EQ(waits, 0);
}

TEST(reduction_rules, a_gradient_does_not_depend_on_x_by_way_of_a_mask_or_of_positions) {
  const Tensor x = leaf({3, 4}, 6), w = leaf({3, 4}, 7);
  const std::pair<const char*, Function> linear[] = {
      {"dropout", [](auto& v) { return dropout(v[0], 0.5); }},
      {"max", [](auto& v) { return std::get<0>(v[0].max(1, true)); }},
      {"min", [](auto& v) { return std::get<0>(v[0].min(0)); }},
      {"sort", [](auto& v) { return std::get<0>(v[0].sort(0)); }},
      {"topk", [](auto& v) { return std::get<0>(v[0].topk(2)); }},
  };
  for (const auto& [what, f] : linear) {
    const Tensor plain = autograd::grad({f({x}).sum()}, {x}, {}, {.create_graph = true})[0];
    EXPECT_FALSE(plain.requires_grad()) << what;
    const Tensor weighted = autograd::grad({f({x * w}).sum()}, {x}, {}, {.create_graph = true})[0];
    EXPECT_TRUE(weighted.requires_grad()) << what;
    EXPECT_NO_THROW(autograd::grad({weighted.square().sum()}, {w})) << what;
  }
}

TEST(reduction_rules, extremes_send_their_gradient_to_the_position_or_share_it_among_equals) {
  const Tensor x = leaf({3, 4}, 6);
  check("max", [](auto& v) { return std::get<0>(v[0].max(1)).square(); }, {x});
  check("min", [](auto& v) { return std::get<0>(v[0].min(0, true)).square(); }, {x});
  const Tensor ties = tensor_of({2, 3}, kF32, {5, 5, 1, 2, 7, 7}).requires_grad_();
  EXPECT_EQ(elements(autograd::grad({std::get<0>(ties.max(1)).sum()}, {ties})[0]),
            (std::vector<double>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(elements(autograd::grad({ties.amax({1}).sum()}, {ties})[0]),
            (std::vector<double>{0.5, 0.5, 0, 0, 0.5, 0.5}));
  EXPECT_EQ(elements(autograd::grad({ties.max()}, {ties})[0]), (std::vector<double>{0, 0, 0, 0, 0.5, 0.5}));
  EXPECT_EQ(elements(autograd::grad({ties.min()}, {ties})[0]), (std::vector<double>{0, 0, 1, 0, 0, 0}));
}

TEST(reduction_rules, subgradients_at_kinks_are_zero) {
  const Tensor zero = tensor_of({3}, kF32, {0, 0, 0}).requires_grad_(),
               same = tensor_of({3}, kF32, {2, 2, 2}).requires_grad_();
  for (const double p : {0.5, 1.0, 2.0, 3.0})
    EXPECT_EQ(elements(autograd::grad({zero.norm(p)}, {zero})[0]), (std::vector<double>{0, 0, 0})) << p;
  EXPECT_EQ(elements(autograd::grad({same.std()}, {same})[0]), (std::vector<double>{0, 0, 0}));
  const Tensor gone = tensor_of({2}, kF32, {-kInf, -kInf}).requires_grad_();
  EXPECT_EQ(elements(autograd::grad({gone.logsumexp({0})}, {gone})[0]), (std::vector<double>{0, 0}));
}

TEST(reduction_rules, operators_without_a_gradient_give_constants) {
  const Tensor x = leaf({3, 4}, 7);
  for (const Tensor& y : {x.argmax(), x.argmin(0), x.any(), x.all({1}), x.count_nonzero(), std::get<1>(x.max(0)),
                          x.argsort(), unique(x).values})
    EXPECT_FALSE(y.requires_grad());
}

TEST(reduction_rules, softmax_along_any_dimension) {
  const Tensor x = leaf({3, 4, 2}, 8);
  for (int64_t dim = 0; dim < 3; ++dim) {
    check("softmax", [&](auto& v) { return v[0].softmax(dim); }, {x});
    check("log_softmax", [&](auto& v) { return v[0].log_softmax(dim); }, {x});
  }
  check("softmax of a converted input", [](auto& v) { return v[0].softmax(0, kF64); }, {x});
}

TEST(reduction_rules, norms_with_and_without_weight_and_bias) {
  const Tensor x = leaf({2, 3, 4}, 9), weight = leaf({3, 4}, 10), bias = leaf({3, 4}, 11), row = leaf({4}, 12);
  check("layer_norm", [](auto& v) { return layer_norm(v[0], {3, 4}, v[1], v[2], 1e-3); }, {x, weight, bias});
  check("layer_norm of the last dimension", [](auto& v) { return layer_norm(v[0], {4}, v[1]); }, {x, row});
  check("layer_norm without weight", [](auto& v) { return layer_norm(v[0], {2, 3, 4}); }, {x});
  check("layer_norm with bias only", [](auto& v) { return layer_norm(v[0], {4}, {}, v[1]); }, {x, row});
  check("rms_norm", [](auto& v) { return rms_norm(v[0], {3, 4}, v[1], 1e-3); }, {x, weight});
  check("rms_norm without weight", [](auto& v) { return rms_norm(v[0], {4}); }, {x});
  const Tensor constant = sample({2, 3, 4}, kF64, 13);
  check("layer_norm of a constant", [&](auto& v) { return layer_norm(constant, {4}, v[0], v[1]); },
        {row, leaf({4}, 14)});
}

TEST(reduction_rules, class_losses_in_every_form) {
  struct Form {
    Dims sizes, target;
  };
  for (const Form& form : {Form{{4}, {}}, Form{{5, 4}, {5}}, Form{{2, 4, 3}, {2, 3}}}) {
    const Tensor x = leaf(form.sizes, 15), target = empty(form.target, {kI64}),
                 weight = tensor_of({4}, kF64, {0.5, 1, 2, 0.25});
    for (int64_t i = 0; i < target.numel(); ++i) set_element(target, i, static_cast<double>((i + 3) % 4));
    for (const Reduction r : {Reduction::none, Reduction::mean, Reduction::sum})
      for (const Tensor& w : {Tensor(), weight})
        for (const double smoothing : {0.0, 0.2}) {
          check("cross_entropy", [&](auto& v) { return cross_entropy(v[0], target, w, 1, r, smoothing); }, {x});
          if (smoothing == 0) check("nll_loss", [&](auto& v) { return nll_loss(v[0].square(), target, w, 1, r); }, {x});
        }
  }
  const Tensor x = leaf({3, 4}, 16), probabilities = leaf({3, 4}, 17);
  check("cross_entropy of probabilities",
        [](auto& v) { return cross_entropy(v[0], v[1], {}, -100, Reduction::mean, 0.1); }, {x, probabilities});
  expect_error<GradError>(
      [&] {
        cross_entropy(x, tensor_of({3}, kI64, {0, 1, 2}), leaf({4}, 18));
      },
      "cross_entropy: class weights have no derivative");
}

TEST(reduction_rules, other_losses) {
  const Tensor x = leaf({3, 4}, 19), y = leaf({3, 4}, 20, 0.4);
  check("mse_loss", [](auto& v) { return mse_loss(v[0], v[1]); }, {x, y});
  check("l1_loss", [](auto& v) { return l1_loss(v[0], v[1], Reduction::none); }, {x, y});
  check("huber_loss", [](auto& v) { return huber_loss(v[0], v[1], Reduction::mean, 0.7); }, {x, y});
  check("smooth_l1_loss", [](auto& v) { return smooth_l1_loss(v[0], v[1], Reduction::sum, 0.3); }, {x, y});
  check("binary_cross_entropy_with_logits",
        [](auto& v) { return binary_cross_entropy_with_logits(v[0], v[1], {}, Reduction::mean, v[2]); },
        {x, y, leaf({4}, 21)});
}

TEST(reduction_rules, sorting_moves_gradients_back) {
  const Tensor x = leaf({3, 4}, 22);
  check("sort", [](auto& v) { return std::get<0>(v[0].sort(0, true)).square(); }, {x});
  check("topk", [](auto& v) { return std::get<0>(v[0].topk(2)).square(); }, {x});
  check("kthvalue", [](auto& v) { return std::get<0>(kthvalue(v[0], 2, 1)).square(); }, {x});
  check("median", [](auto& v) { return std::get<0>(median(v[0], 0)).square(); }, {x});
  check("median of all", [](auto& v) { return median(v[0]).square(); }, {x});
}

std::vector<double> slopes(const std::vector<double>& x, Tensor (*f)(const Tensor&)) {
  const Tensor t = tensor_of({static_cast<int64_t>(x.size())}, kF64, x).requires_grad_();
  f(t).backward();
  return elements(t.grad());
}

TEST(reduction_rules, equals_share_the_gradient_of_a_choice_among_all_elements) {
  using V = std::vector<double>;
  const double third = 1.0 / 3;
  EXPECT_EQ(slopes({1, 2, 2, 2, 5}, [](const Tensor& x) { return median(x); }), (V{0, third, third, third, 0}));
  EXPECT_EQ(slopes({1, 2, 2, 2, 5}, [](const Tensor& x) { return std::get<0>(median(x, 0)); }), (V{0, 0, 1, 0, 0}));
  EXPECT_EQ(slopes({1, kNaN, 2, kNaN, 5}, [](const Tensor& x) { return median(x); }), (V{0, 0.5, 0, 0.5, 0}));
  EXPECT_EQ(slopes({-kInf, 1, -kInf, -kInf}, [](const Tensor& x) { return median(x); }), (V{third, 0, third, third}));
  EXPECT_EQ(slopes({1, 5, 2, 5}, [](const Tensor& x) { return x.max(); }), (V{0, 0.5, 0, 0.5}));
  EXPECT_EQ(slopes({1, kNaN, 2, 5, kNaN}, [](const Tensor& x) { return x.max(); }), (V{0, 0.5, 0, 0, 0.5}));
  EXPECT_EQ(slopes({1, kNaN, 2, 5}, [](const Tensor& x) { return x.amin(); }), (V{0, 1, 0, 0}));
}

}  // namespace
}  // namespace lorry::test
