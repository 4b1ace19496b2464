#include "lorry/optim/optimizer.h"

#include <cmath>

#include "lorry/kernels/backend.h"
#include "lorry/kernels/optim.h"
#include "lorry/optim/rules/typed_rule.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

TEST(Optimizer, a_parameter_without_a_gradient_stays_and_so_does_its_state) {
  const Tensor a = parameter({1}), b = parameter({1});
  SGD sgd({{"a", a}, {"b", b}}, {.lr = 0.5, .momentum = 0.9});
  a.set_grad(tensor_of({1}, {1}));
  sgd.step();
  EXPECT_EQ(values(a), std::vector<double>{0.5});
  EXPECT_EQ(values(b), std::vector<double>{1});
  EXPECT_EQ(sgd.state_dict().at("b.step").item<double>(), 0);
  EXPECT_FALSE(sgd.state_dict().contains("b.momentum_buffer"));
  sgd.zero_grad();
  sgd.step();
  EXPECT_EQ(sgd.state_dict().at("a.step").item<double>(), 1);
}

TEST(Optimizer, a_step_writes_in_place_and_counts_a_version) {
  const Tensor a = parameter({1, 2});
  const Tensor alias = a.detach();
  AdamW adamw({{"a", a}});
  a.set_grad(tensor_of({1, 1}, {2}));
  const uint32_t version = a.version();
  adamw.step();
  EXPECT_GT(a.version(), version);
  EXPECT_EQ(bits(alias), bits(a));
  EXPECT_TRUE(a.requires_grad() && a.is_leaf());
}

TEST(Optimizer, zero_grad_forgets_or_fills) {
  const Tensor a = parameter({1, 2});
  SGD sgd({{"a", a}});
  a.set_grad(tensor_of({1, 1}, {2}));
  sgd.zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(values(a.grad()), (std::vector<double>{0, 0}));
  sgd.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Optimizer, groups_have_options_of_their_own) {
  const Tensor a = parameter({1}), b = parameter({1}), c = parameter({1}, kF64);
  SGD sgd(std::vector<Group<SGDOptions>>{{{{"a", a}}, {.lr = 0.5}}, {{{"b", b}}, {.lr = 0.25, .momentum = 0.9}}});
  sgd.add_param_group({{{"c", c}}, {.lr = 0.125}});
  for (const Tensor& x : {a, b, c}) x.set_grad(tensor_of({1}, {1}, x.dtype()));
  sgd.step();
  EXPECT_EQ(values(a)[0], 0.5);
  EXPECT_EQ(values(b)[0], 0.75);
  EXPECT_EQ(values(c)[0], 0.875);
  EXPECT_EQ(sgd.groups(), 3);
  sgd.set_lr(1, 0.0625);
  EXPECT_EQ(sgd.lr(0), 0.5);
  EXPECT_EQ(sgd.lr(1), 0.0625);
  sgd.set_lr(2.0);
  EXPECT_EQ(sgd.lr(2), 2.0);
  EXPECT_EQ(message<IndexError>([&] { sgd.lr(3); }), "sgd: no such group; got 3; expected 0 to 2");
  EXPECT_EQ(message<ValueError>([&] { sgd.set_lr(-1); }),
            "sgd: lr is out of range; got -1; expected a finite number >= 0");
}

TEST(Optimizer, parameters_that_cannot_be_stepped_are_named) {
  const Tensor a = parameter({1, 2}), plain = tensor_of({1}, {1}), whole = empty({1}, {.dtype = kI64});
  const auto text = [&]<class E>(Type<E>, const std::vector<NamedTensor>& params) {
    return message<E>([&] { SGD sgd(params); });
  };
  EXPECT_EQ(text(Type<ValueError>{}, {{"a", a}, {"a", parameter({1})}}), "sgd: parameter 'a' is listed twice");
  EXPECT_EQ(text(Type<ValueError>{}, {{"a", a}, {"b", a}}),
            "sgd: parameters 'a' and 'b' share memory; list each tensor once");
  EXPECT_EQ(text(Type<ValueError>{}, {{"a", a}, {"tied", a.detach().requires_grad_()}}),
            "sgd: parameters 'a' and 'tied' share memory; list each tensor once");
  EXPECT_EQ(text(Type<ValueError>{}, {{"a", Tensor()}}),
            "sgd: parameter 'a' is an undefined tensor; expected a tensor");
  EXPECT_EQ(text(Type<DTypeError>{}, {{"a", whole}}), "sgd: parameter 'a' is not floating; got [1] i64 cpu");
  EXPECT_EQ(text(Type<GradError>{}, {{"a", plain}}),
            "sgd: parameter 'a' does not require a gradient; got [1] f32 cpu; call requires_grad_() first");
  EXPECT_EQ(text(Type<GradError>{}, {{"a", a.mul(2)}}),
            "sgd: parameter 'a' is not a leaf; got [2] f32 cpu made by mul; optimize the tensors it was made from");
}

TEST(Optimizer, parameters_may_be_interleaved) {
  const Tensor x = zeros({6, 8}), wide = zeros({4, 6, 8});
  std::vector<NamedTensor> params;
  const auto add = [&](const Tensor& view) { params.emplace_back(fmt::format("{}", params.size()), parameter(view)); };
  for (int64_t column = 0; column < 3; ++column) add(x.narrow(1, column, 1));
  add(x.narrow(1, 3, 2)), add(x.narrow(1, 5, 3).narrow(0, 0, 3)), add(x.narrow(1, 5, 3).narrow(0, 3, 3).t());
  add(wide.narrow(1, 0, 2)), add(wide.narrow(1, 2, 4).narrow(2, 0, 4)), add(wide.narrow(1, 2, 4).narrow(2, 4, 4));
  SGD sgd(params, {.lr = 1});
  for (const auto& [name, p] : params) p.set_grad(full(p.sizes(), -1.0));
  sgd.step();
  for (const Tensor& all : {x, wide}) EXPECT_EQ(all.sum().item<float>(), static_cast<float>(all.numel()));
  const auto text = [&](const Tensor& view) {
    return message<ValueError>([&] { sgd.add_param_group({{{"x", parameter(view)}}, {}}); });
  };
  EXPECT_EQ(text(x.narrow(1, 1, 1).narrow(0, 5, 1)), "sgd: parameters '1' and 'x' share memory; list each tensor once");
  EXPECT_EQ(text(wide.narrow(2, 4, 1)), "sgd: parameters '6' and 'x' share memory; list each tensor once");
}

TEST(Optimizer, a_group_is_checked_against_those_before) {
  const Tensor a = parameter({1});
  AdamW adamw({{"a", a}});
  EXPECT_EQ(message<ValueError>([&] {
              adamw.add_param_group({{{"b", a}}, {}});
            }),
            "adamw: parameters 'a' and 'b' share memory; list each tensor once");
  EXPECT_EQ(adamw.groups(), 1);
}

TEST(Optimizer, options_out_of_their_domain_are_refused) {
  const std::vector<NamedTensor> params{{"a", parameter({1})}};
  const auto adamw = [&](const AdamWOptions& o) { return message<ValueError>([&] { AdamW x(params, o); }); };
  const auto sgd = [&](const SGDOptions& o) { return message<ValueError>([&] { SGD x(params, o); }); };
  EXPECT_EQ(adamw({.lr = -1}), "adamw: lr is out of range; got -1; expected a finite number >= 0");
  EXPECT_EQ(adamw({.lr = NAN}), "adamw: lr is out of range; got nan; expected a finite number >= 0");
  EXPECT_EQ(adamw({.beta1 = 1}), "adamw: beta1 is out of range; got 1; expected 0 <= beta1 < 1");
  EXPECT_EQ(adamw({.beta2 = -0.1}), "adamw: beta2 is out of range; got -0.1; expected 0 <= beta2 < 1");
  EXPECT_EQ(adamw({.eps = -1}), "adamw: eps is out of range; got -1; expected a finite number >= 0");
  EXPECT_EQ(adamw({.weight_decay = -1}), "adamw: weight_decay is out of range; got -1; expected a finite number >= 0");
  EXPECT_EQ(sgd({.lr = -1}), "sgd: lr is out of range; got -1; expected a finite number >= 0");
  EXPECT_EQ(sgd({.momentum = -1}), "sgd: momentum is out of range; got -1; expected a finite number >= 0");
  EXPECT_EQ(sgd({.nesterov = true}), "sgd: nesterov needs a momentum and no dampening");
  EXPECT_EQ(sgd({.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
            "sgd: nesterov needs a momentum and no dampening");
}

TEST(Optimizer, a_gradient_that_no_longer_fits_is_named_and_nothing_moves) {
  const Tensor a = parameter({1}), b = parameter({1, 2});
  SGD sgd({{"a", a}, {"b", b}}, {.lr = 0.5});
  a.set_grad(tensor_of({1}, {1}));
  b.set_grad(tensor_of({1, 1}, {2}));
  b.set_data(tensor_of({1, 2, 3}, {3}));
  EXPECT_EQ(message<ShapeError>([&] { sgd.step(); }),
            "sgd: the gradient of 'b' has another shape; got gradient: [2] f32 cpu, parameter: [3] f32 cpu");
  EXPECT_EQ(values(a), std::vector<double>{1});
  b.set_data(tensor_of({1, 2}, {2}, kF64));
  sgd.step();
  EXPECT_EQ(values(b), (std::vector<double>{0.5, 1.5})) << "a gradient may have another dtype";
}

TEST(Optimizer, a_parameter_that_changed_under_its_state_is_named) {
  const Tensor a = parameter({1, 2});
  AdamW adamw({{"a", a}});
  a.set_grad(tensor_of({1, 1}, {2}));
  adamw.step();
  adamw.zero_grad();
  a.set_data(tensor_of({1, 2, 3}, {3}));
  a.set_grad(tensor_of({1, 1, 1}, {3}));
  EXPECT_EQ(message<ShapeError>([&] { adamw.step(); }),
            "adamw: parameter 'a' has changed since its last step; got [3] f32 cpu with a state of [2] f32 cpu; make a "
            "new optimizer");
}

enum class Fails { in_step, in_prepare, in_set };

/// SGD whose fused step fails at a dtype.
class FailsAt : public Optimizer {
 public:
  FailsAt(const std::vector<NamedTensor>& params, DType dtype, Fails where = Fails::in_step)
      : Optimizer("sgd", Execution::fused) {
    set_dtype(dtype, where);
    const Rule::Settings settings{.lr = 0.5, .momentum = 0.9};
    add_group(params, std::make_unique<detail::TypedRule<Rule, Failing>>(settings), {});
  }
  static void set_dtype(DType dtype, Fails where = Fails::in_step) { g_dtype = dtype, g_where = where; }

 private:
  using Rule = formula::Sgd<true>;
  static inline DType g_dtype;
  static inline Fails g_where;
  static void fail(Fails where, DType dtype) {
    if (where == g_where && dtype == g_dtype) throw std::bad_alloc();
  }
  struct Failing {
    using Rule = FailsAt::Rule;
    static constexpr bool kOnCuda = true;
    template <class C>
    static const kernels::RuleKernels<Rule, C>& on(const Stream& stream) {
      return kernels::backend(stream.device).optim->rules.of<Rule>().in<C>();
    }
    template <class C>
    static void step(formula::HyperBlock<Rule, C>* blocks, const kernels::StepCall& call, const Stream& stream) {
      fail(Fails::in_step, call.list.dtype(0));
      on<C>(stream).step(blocks, call, stream);
    }
    template <class C>
    static void prepare(formula::HyperBlock<Rule, C>*, const kernels::StepCall& call, const Stream&) {
      fail(Fails::in_prepare, call.list.dtype(0));
    }
    template <class C>
    static void set(formula::HyperBlock<Rule, C>* blocks, std::span<const formula::HyperBlockChange<Rule>> changes,
                    const Stream& stream) {
      fail(Fails::in_set, std::is_same_v<C, double> ? kF64 : kF32);
      on<C>(stream).set(blocks, changes, stream);
    }
    template <class C>
    static void set_numbers(formula::HyperBlock<Rule, C>* blocks, std::span<const kernels::NumberSource> numbers,
                            const Stream& stream) {
      on<C>(stream).set_numbers(blocks, numbers, stream);
    }
    template <class C>
    static void advance(formula::HyperBlock<Rule, C>* blocks, int32_t count, const double* grad_factor,
                        const Stream& stream) {
      on<C>(stream).advance(blocks, count, grad_factor, stream);
    }
  };
};

TEST(Optimizer, what_a_failed_step_has_not_moved_it_has_not_counted) {
  for (const Tensor& factor : {Tensor(), tensor_of({1}, {}, kF64), tensor_of({NAN}, {}, kF64)}) {
    const Tensor a = parameter({1}), b = parameter({1}, kF64);
    FailsAt sgd({{"a", a}, {"b", b}}, kF64);
    for (const Tensor& x : {a, b}) x.set_grad(tensor_of({1}, {1}, x.dtype()));
    EXPECT_THROW(factor.defined() ? sgd.step(factor) : sgd.step(), std::bad_alloc);
    const bool skipped = factor.defined() && std::isnan(factor.item<double>());
    EXPECT_EQ(values(a)[0], skipped ? 1 : 0.5);
    EXPECT_EQ(values(b)[0], 1);
    EXPECT_EQ(sgd.state_dict().at("a.step").item<double>(), skipped ? 0 : 1)
        << "it was stepped before the other failed";
    EXPECT_EQ(sgd.state_dict().at("b.step").item<double>(), 0);
    EXPECT_FALSE(sgd.state_dict().contains("b.momentum_buffer"));

    FailsAt first({{"a", a}, {"b", b}}, kF32);
    EXPECT_THROW(first.step(), std::bad_alloc);
    EXPECT_EQ(first.state_dict().at("a.step").item<double>(), 0);
    EXPECT_EQ(first.state_dict().at("b.step").item<double>(), 1) << "it was stepped though the other failed";
    FailsAt::set_dtype(kF16);
    first.step();
    EXPECT_EQ(first.state_dict().at("a.step").item<double>(), 1);
    EXPECT_EQ(first.state_dict().at("b.step").item<double>(), 2);
  }
}

TEST(Optimizer, a_step_that_cannot_be_prepared_moves_nothing) {
  const Tensor a = parameter({1}), b = parameter({1}, kF64);
  FailsAt sgd({{"a", a}, {"b", b}}, kF64, Fails::in_prepare);
  for (const Tensor& x : {a, b}) x.set_grad(tensor_of({1}, {1}, x.dtype()));
  const uint32_t before = a.version();
  for (int i = 0; i < 2; ++i) EXPECT_THROW(sgd.step(), std::bad_alloc);
  EXPECT_EQ(a.version(), before);
  for (const Tensor& x : {a, b}) EXPECT_EQ(values(x)[0], 1);
  for (const char* name : {"a.step", "b.step"}) EXPECT_EQ(sgd.state_dict().at(name).item<double>(), 0);
  FailsAt::set_dtype(kF16);
  sgd.step();
  for (const Tensor& x : {a, b}) EXPECT_EQ(values(x)[0], 0.5);
}

TEST(Optimizer, a_learning_rate_that_cannot_be_written_is_not_taken) {
  for (const bool retry : {false, true}) {
    const Tensor a = parameter({4}), b = parameter({4}, kF64);
    FailsAt sgd({{"a", a}, {"b", b}}, kF16);
    for (const Tensor& x : {a, b}) x.set_grad(tensor_of({1}, {1}, x.dtype()));
    sgd.step();
    FailsAt::set_dtype(kF64, Fails::in_set);
    EXPECT_THROW(sgd.set_lr(2), std::bad_alloc);
    FailsAt::set_dtype(kF16);
    EXPECT_EQ(sgd.lr(), 0.5);
    if (retry) sgd.set_lr(2);
    sgd.step();  // by a buffer of 1.9
    for (const Tensor& x : {a, b}) EXPECT_NEAR(values(x)[0], retry ? 3.5 - 2 * 1.9 : 3.5 - 0.5 * 1.9, 1e-6);
  }
}

// ---- masters and factors --------------------------------------------------------------------------------------------

TEST(Masters, keep_the_steps_that_16_bits_lose) {
  for (const bool masters : {false, true}) {
    const Tensor a = parameter({1}, kBF16);
    SGD sgd({{"a", a}}, {.lr = 1.0 / 1024, .memory = {.masters = masters ? Masters::f32 : Masters::none}});
    for (int i = 0; i < 16; ++i) {
      a.set_grad(tensor_of({-1}, {1}, kBF16));
      sgd.step();
    }
    EXPECT_EQ(values(a)[0], masters ? 1 + 16.0 / 1024 : 1) << "half of the distance to the next bf16 is 4 steps";
    EXPECT_EQ(sgd.state_dict().contains("a.master"), masters);
  }
}

TEST(Masters, are_for_16_bits_alone) {
  const Tensor a = parameter({1}), b = parameter({1}, kF16);
  AdamW adamw({{"a", a}, {"b", b}}, {.memory = {.masters = Masters::f32}});
  EXPECT_FALSE(adamw.state_dict().contains("b.master")) << "none before the first step";
  for (const Tensor& x : {a, b}) x.set_grad(tensor_of({1}, {1}, x.dtype()));
  adamw.step();
  EXPECT_FALSE(adamw.state_dict().contains("a.master"));
  EXPECT_EQ(adamw.state_dict().at("b.master").dtype(), kF32);
}

TEST(GradFactor, multiplies_the_gradients_it_does_not_write) {
  const Tensor a = parameter({1, 2});
  SGD sgd({{"a", a}}, {.lr = 1});
  a.set_grad(tensor_of({4, 8}, {2}));
  sgd.step(tensor_of({0.25}, {}, kF64));
  EXPECT_EQ(values(a), (std::vector<double>{0, 0}));
  EXPECT_EQ(values(a.grad()), (std::vector<double>{4, 8}));
}

TEST(GradFactor, that_is_nan_makes_the_step_not_count) {
  const Tensor a = parameter({1, 2}), b = parameter({1, 2});
  AdamW skipping({{"w", a}}), plain({{"w", b}});
  for (const double factor : std::vector<double>{NAN, 1, 1, NAN, 1, NAN}) {
    for (const Tensor& x : {a, b}) x.set_grad(tensor_of({0.5, -2}, {2}));
    skipping.step(tensor_of({factor}, {}, kF64));
    if (!std::isnan(factor)) plain.step();
    EXPECT_EQ(bits(a), bits(b));
    const TensorMap x = skipping.state_dict(), y = plain.state_dict();
    ASSERT_EQ(x.size(), y.size()) << "a parameter that was never stepped has no state";
    for (const auto& [name, state] : x) EXPECT_EQ(bits(state), bits(y.at(name))) << name;
  }
}

TEST(GradFactor, that_is_no_number_is_refused) {
  const Tensor a = parameter({1, 2});
  SGD sgd({{"a", a}});
  EXPECT_NE(message<ShapeError>([&] {
              sgd.step(tensor_of({1, 2}, {2}, kF64));
            }).find("expected a 0-d f64"),
            std::string::npos);
  EXPECT_NE(message<DTypeError>([&] { sgd.step(tensor_of({1}, {}, kF32)); }).find("expected a 0-d f64"),
            std::string::npos);
}

// ---- state dictionaries ---------------------------------------------------------------------------------------------

TensorMap copied(const TensorMap& state) {
  TensorMap copy;
  for (const auto& [name, x] : state) copy[name] = x.clone();
  return copy;
}

TEST(StateDict, resumes_to_the_bit) {
  for (const DType dtype : {kF32, kBF16, kF64}) {
    std::mt19937_64 random(3);
    const Tensor start = random_tensor(random, {5, 7}, dtype);
    std::vector<Tensor> grads;
    for (int i = 0; i < 20; ++i) grads.push_back(random_tensor(random, {5, 7}, dtype));
    const AdamWOptions options{.lr = 0.01, .amsgrad = true, .memory = {.masters = Masters::f32}};
    const Tensor straight = parameter(start.clone());
    AdamW one({{"w", straight}}, options);
    TensorMap saved;
    Tensor halfway;
    for (int i = 0; i < 20; ++i) {
      if (i == 10) saved = copied(one.state_dict()), halfway = straight.detach().clone();
      straight.set_grad(grads[i]);
      one.step();
    }
    const Tensor resumed = parameter(halfway);
    AdamW two({{"w", resumed}}, options);
    two.load_state_dict(saved);
    for (int i = 10; i < 20; ++i) {
      resumed.set_grad(grads[i]);
      two.step();
    }
    EXPECT_EQ(bits(resumed), bits(straight));
  }
}

TEST(StateDict, has_pytorchs_names_and_its_own_dtypes) {
  const Tensor a = parameter({1, 2}, kBF16);
  AdamW adamw({{"block.0.weight", a}}, {.amsgrad = true});
  a.set_grad(tensor_of({1, 1}, {2}, kBF16));
  adamw.step();
  const TensorMap state = adamw.state_dict();
  std::vector<std::string> names;
  for (const auto& [name, x] : state) names.push_back(lorry::test::as_on_the_cpu(fmt::format("{} {}", name, x)));
  EXPECT_EQ(names,
            (std::vector<std::string>{"block.0.weight.beta1_power [] f64 cpu", "block.0.weight.beta2_power [] f64 cpu",
                                      "block.0.weight.exp_avg [2] f32 cpu", "block.0.weight.exp_avg_sq [2] f32 cpu",
                                      "block.0.weight.max_exp_avg_sq [2] f32 cpu", "block.0.weight.step [] f64 cpu"}));
}

TEST(StateDict, of_another_model_is_refused_and_nothing_changes) {
  const Tensor a = parameter({1, 2});
  SGD sgd({{"a", a}}, {.momentum = 0.9});
  a.set_grad(tensor_of({1, 1}, {2}));
  sgd.step();
  const TensorMap good = copied(sgd.state_dict());
  const auto text = [&]<class E>(Type<E>, const std::string& key, const Tensor& value) {
    TensorMap state = good;
    if (value.defined()) {
      state[key] = value;
    } else {
      state.erase(key);
    }
    return message<E>([&] { sgd.load_state_dict(state); });
  };
  EXPECT_EQ(text(Type<FormatError>{}, "a.step", {}),
            "sgd: state 'a.step' is missing; load the state of the same optimizer and model");
  EXPECT_EQ(text(Type<FormatError>{}, "a.momentum_buffer", {}),
            "sgd: state 'a.momentum_buffer' is missing; load the state of the same optimizer and model");
  EXPECT_EQ(text(Type<FormatError>{}, "b.step", tensor_of({1}, {}, kF64)),
            "sgd: state 'b.step' is unexpected; load the state of the same optimizer and model");
  EXPECT_EQ(text(Type<ShapeError>{}, "a.momentum_buffer", tensor_of({1}, {1})),
            "sgd: state 'a.momentum_buffer' has another shape; got [1] f32 cpu; expected [2]");
  EXPECT_EQ(text(Type<DTypeError>{}, "a.momentum_buffer", tensor_of({1, 1}, {2}, kF64)),
            "sgd: state 'a.momentum_buffer' has another dtype; got [2] f64 cpu; expected f32");
  EXPECT_EQ(text(Type<FormatError>{}, "a.step", tensor_of({-1}, {}, kF64)),
            "sgd: state 'a.step' is out of range; got -1; expected a finite number >= 0");
  for (const auto& [name, x] : sgd.state_dict()) EXPECT_EQ(bits(x), bits(good.at(name))) << name;
}

}  // namespace
}  // namespace lorry::optim::test
