// Settings that lie in tensors: the bits of the same values given as numbers, read anew by every step.

#include "lorry/ops/dispatch/listener.h"
#include "lorry/optim/custom.h"
#include "lorry/optim/schedule.h"
#include "tests/optim/model.h"
#include "tests/optim/rules.h"
#include "tests/optim/support.h"
#include "tests/support/on_cuda.h"

namespace lorry::optim::test {
namespace {

constexpr int kSteps = 7;

/// Parameters, one of them of negative zeros that no gradient moves: decay by 0 would turn their sign.
std::vector<NamedTensor> model(std::mt19937_64& random, DType dtype) {
  std::vector<NamedTensor> params;
  for (const Dims& sizes : {Dims{3, 5}, Dims{}, Dims{300}})
    params.emplace_back(fmt::format("p{}", params.size()), parameter(random_tensor(random, sizes, dtype)));
  params.emplace_back("zeros", parameter(tensor_of({-0.0, -0.0, -0.0}, {3}, dtype)));
  return params;
}

void give_gradients(std::mt19937_64& random, const std::vector<NamedTensor>& params) {
  for (const auto& [name, p] : params)
    p.set_grad(name == "zeros" ? zeros({3}, {.dtype = p.dtype()}) : random_tensor(random, p.sizes(), p.dtype()));
}

std::string all_bits(const std::vector<NamedTensor>& params, const Optimizer& optimizer) {
  std::string all;
  for (const auto& [name, p] : params) all += bits(p);
  return all + test::all_bits(optimizer);
}

/// One setting over the steps of a course.
struct Course {
  std::string name;
  double at[kSteps];
};

/// Two values in turns; a decay is 0 for a while.
template <class Rule>
std::vector<Course> courses_of(const formula::SettingsOf<Rule>& settings) {
  std::vector<Course> courses;
  for (int k = 0; k < static_cast<int>(formula::SettingList<Rule>::all().size()); ++k) {
    detail::TypedRule<Rule> rule(settings);
    const detail::AnyRule::Setting setting = rule.setting(k);
    const double first = setting.number, other = other_value(setting);
    setting.number = other;
    const bool changes = rule.conflict() == nullptr;
    Course course{setting.name, {}};
    for (int step = 0; step < kSteps; ++step) {
      const double value = changes && step % 2 == 1 ? other : first;
      course.at[step] = course.name == "weight_decay" && (step == 2 || step == 3) ? 0 : value;
      if (k % 2 == 1) course.at[step] = static_cast<float>(course.at[step]);  // its tensor is f32
    }
    courses.push_back(course);
  }
  return courses;
}

/// Sets what a step of the courses has: as numbers, or in tensors that are written in place, and the last as numbers
/// again.
class Setter {
 public:
  Setter(Optimizer& optimizer, std::vector<Course> courses, bool by_tensors)
      : optimizer_(optimizer), courses_(std::move(courses)), by_tensors_(by_tensors), tensors_(courses_.size()) {}

  void before(int step) {
    for (size_t k = 0; k < courses_.size(); ++k) {
      const auto& [name, at] = courses_[k];
      if (!by_tensors_ || step == kSteps - 1) {
        optimizer_.set(0, name, at[step]);
      } else if (tensors_[k].defined()) {
        tensors_[k].fill_(at[step]);
      } else {
        tensors_[k] = tensor_of({at[step]}, k % 3 == 0 ? Dims{} : Dims{1}, k % 2 == 1 ? kF32 : kF64);
        optimizer_.set(0, name, tensors_[k]);
      }
      EXPECT_EQ(optimizer_.get(0, name), at[step]) << name;
      EXPECT_EQ(optimizer_.setting_tensor(0, name).defined(), by_tensors_ && step < kSteps - 1) << name;
    }
  }

 private:
  Optimizer& optimizer_;
  std::vector<Course> courses_;
  bool by_tensors_;
  std::vector<Tensor> tensors_;
};

/// The bits after every step.
template <class Make>
std::string bits_of_steps(DType dtype, const std::vector<Course>& courses, bool by_tensors, const Make& make) {
  std::mt19937_64 random(31);
  const std::vector<NamedTensor> params = model(random, dtype);
  const std::unique_ptr<Optimizer> optimizer = make(params);
  Setter setter(*optimizer, courses, by_tensors);
  std::string all;
  for (int step = 0; step < kSteps; ++step) {
    setter.before(step);
    give_gradients(random, params);
    step % 3 == 1 ? (void)optimizer->step({.max_norm = 1, .skip_nonfinite = true}) : optimizer->step();
    all += all_bits(params, *optimizer);
  }
  return all;
}

TEST(SettingTensors, of_every_rule_give_the_bits_of_numbers_in_every_execution) {
  formula::Rules::each([]<class Rule>() {
    for (int variant = 0; variant < kVariants; ++variant) {
      const auto settings = settings_of<Rule>(variant);
      const std::vector<Course> courses = courses_of<Rule>(settings);
      for (const DType dtype : {kF32, kF64, kBF16}) {
        std::string expected;
        for (const Execution execution : kExecutions)
          for (const bool by_tensors : {false, true}) {
            const std::string got = bits_of_steps(dtype, courses, by_tensors, [&](const auto& params) {
              return std::make_unique<Any<Rule>>(params, settings, execution);
            });
            if (expected.empty()) expected = got;
            EXPECT_TRUE(got == expected) << fmt::format("{} by {}, {}, variant {}, {}", Rule::kName, name(execution),
                                                        dtype, variant, by_tensors ? "tensors" : "numbers");
          }
      }
    }
  });
}

TEST(SettingTensors, give_the_bits_of_numbers_whatever_is_kept_and_within_a_budget) {
  using Rule = formula::AdamW<false>;
  const auto settings = settings_of<Rule>(1);
  const Memory choices[] = {{.masters = Masters::f32},
                            {.masters = Masters::split, .states = {StateType::bf16, StateType::q8}, .seed = 3},
                            {.masters = Masters::stochastic, .placement = Placement::pinned}};
  for (const Memory& memory : choices)
    for (const int64_t budget : {0, 1 << 16}) {
      std::string expected;
      for (const Execution execution : kExecutions)
        for (const bool by_tensors : {false, true}) {
          const std::string got = bits_of_steps(kBF16, courses_of<Rule>(settings), by_tensors, [&](const auto& params) {
            auto made = std::make_unique<Any<Rule>>(params, settings, execution, memory);
            made->set_memory_budget(budget);
            return made;
          });
          if (expected.empty()) expected = got;
          EXPECT_TRUE(got == expected) << name(execution) << ", masters " << name(memory.masters) << ", " << budget;
        }
    }
}

// ---- rules of one's own ---------------------------------------------------------------------------------------------

/// A rule as if it were not Lorry's own.
template <class Rule>
struct Foreign : Rule {};

TEST(SettingTensors, of_a_users_rule_give_the_bits_of_numbers) {
  using Rule = Foreign<formula::NAdam>;
  const auto settings = settings_of<formula::NAdam>(1);
  const auto momentum = rule<1>(
      [](auto& param, auto grad, auto* states, const auto& h) {
        states[0] = h[0] * states[0] + grad;
        param = param - h.lr * states[0];
      },
      0.01, {0.9});
  std::string expected[2];
  for (const Execution execution : kExecutions) {
    // this file is compiled without code for GPUs
    if (execution == Execution::fused && !default_device().is_cpu()) continue;
    for (const bool by_tensors : {false, true}) {
      const std::string got[] = {
          bits_of_steps(
              kF32, courses_of<formula::NAdam>(settings), by_tensors,
              [&](const auto& params) { return std::make_unique<Custom<Rule>>(params, settings, execution); }),
          bits_of_steps(kF32, {{"lr", {0.5, 0.25, 0, 0.125, 0.5, 0.5, 1}}}, by_tensors, [&](const auto& params) {
            return std::make_unique<Custom<typename decltype(momentum)::Rule>>(params, momentum, execution);
          })};
      for (const int k : {0, 1}) {
        if (expected[k].empty()) expected[k] = got[k];
        EXPECT_TRUE(got[k] == expected[k]) << k << " by " << name(execution);
      }
    }
  }
}

// ---- what may be set, and what is read ------------------------------------------------------------------------------

TEST(SettingTensors, may_be_shared_by_groups_of_several_dtypes) {
  const Tensor a = parameter({1}), b = parameter({1}, kF64), c = parameter({1});
  SGD sgd({{{{"a", a}, {"b", b}}, {}}, {{{"c", c}}, {}}});
  const Tensor lr = tensor_of({0.5}, {});
  sgd.set_lr(lr);
  for (const double rate : {0.5, 0.25}) {
    lr.fill_(rate);
    for (const Tensor& x : {a, b, c}) x.set_grad(tensor_of({1}, {1}, x.dtype()));
    sgd.step();
    EXPECT_EQ(sgd.lr(0), rate);
    EXPECT_EQ(sgd.lr(1), rate);
  }
  for (const Tensor& x : {a, b, c}) EXPECT_EQ(values(x)[0], 0.25);
  sgd.set_lr(1, 1);
  lr.fill_(4);
  sgd.step();
  EXPECT_EQ(values(a)[0], -3.75) << "a number for one group leaves the other its tensor";
  EXPECT_EQ(values(c)[0], -0.75);
}

TEST(SettingTensors, that_are_views_are_read_where_they_lie) {
  const Tensor a = parameter({1}), rates = tensor_of({9, 0.5, 9}, {3}, kF16);
  SGD sgd({{"a", a}});
  sgd.set_lr(rates.narrow(0, 1, 1));
  a.set_grad(tensor_of({1}, {1}));
  sgd.step();
  EXPECT_EQ(values(a)[0], 0.5);
  rates.mul_(0.5);
  sgd.step();
  EXPECT_EQ(values(a)[0], 0.25);
}

TEST(SettingTensors, of_another_kind_are_refused) {
  const Tensor a = parameter({1});
  SGD sgd({{"a", a}}, {.lr = 0.5});
  const auto why = [&]<class E>(std::type_identity<E>, const Tensor& x) { return message<E>([&] { sgd.set_lr(x); }); };
  EXPECT_EQ(why(std::type_identity<ValueError>(), {}),
            "sgd: the tensor for lr is undefined; expected a floating tensor of one element");
  EXPECT_EQ(why(std::type_identity<DTypeError>(), zeros({}, {.dtype = kI64, .device = kCPU})),
            "sgd: the tensor for lr is not floating; got [] i64 cpu; expected one of f16, bf16, f32, f64");
  EXPECT_EQ(why(std::type_identity<ShapeError>(), zeros({2}, {.device = kCPU})),
            "sgd: the tensor for lr is no single number; got [2] f32 cpu; expected one element");
  EXPECT_EQ(why(std::type_identity<ShapeError>(), zeros({0}, {.device = kCPU})),
            "sgd: the tensor for lr is no single number; got [0] f32 cpu; expected one element");
  EXPECT_THROW(sgd.set("momentum", tensor_of({0.5}, {})), ValueError);
  EXPECT_THROW(sgd.set(1, "lr", tensor_of({0.5}, {})), IndexError);
  EXPECT_EQ(sgd.lr(), 0.5) << "what was refused is not set";
}

TEST(SettingTensors, on_another_device_than_the_parameters_are_refused) {
  LORRY_SKIP_WITHOUT_CUDA();
  SGD sgd({{"a", parameter(zeros({1}, {.device = kCPU}))}});
  EXPECT_THROW(sgd.set_lr(ones({}, {.device = lorry::test::kGPU})), DeviceError);
  SGD on_gpu({{"a", parameter(zeros({1}, {.device = lorry::test::kGPU}))}});
  on_gpu.set_lr(full({}, 0.25, {.device = kCPU}));
  EXPECT_EQ(on_gpu.lr(), 0.25);
}

TEST(SettingTensors, out_of_their_domain_in_host_memory_are_refused_by_the_step_which_moves_nothing) {
  const Tensor a = parameter({1}), lr = full({}, 0.5, {.device = kCPU}), dampening = full({}, 0, {.device = kCPU});
  a.set_grad(tensor_of({1}, {1}));
  SGD sgd({{"a", a}}, {.momentum = 0.5, .nesterov = true});
  sgd.set_lr(lr);
  sgd.set("dampening", dampening);
  for (const double wrong : {-1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    lr.fill_(wrong);
    EXPECT_EQ(message<ValueError>([&] { sgd.step(); }),
              fmt::format("sgd: lr is out of range; got {}; expected a finite number >= 0", wrong));
  }
  lr.fill_(0.5);
  dampening.fill_(0.5);
  EXPECT_EQ(message<ValueError>([&] { sgd.step(); }), "sgd: nesterov needs a momentum and no dampening");
  EXPECT_EQ(values(a)[0], 1);
  EXPECT_EQ(sgd.state_dict().at("a.step").item<double>(), 0);
  dampening.fill_(0);
  sgd.step();
  EXPECT_EQ(values(a)[0], 0.25) << "the first step by Nesterov: 1.5 gradients";
}

TEST(SettingTensors, are_no_part_of_the_state) {
  const Tensor a = parameter({1});
  AdamW adamw({{"a", a}});
  a.set_grad(tensor_of({1}, {1}));
  adamw.step();
  const TensorMap before = adamw.state_dict();
  adamw.set_lr(tensor_of({0.5}, {}));
  const TensorMap after = adamw.state_dict();
  EXPECT_EQ(before.size(), after.size());
  for (const auto& [name, x] : before) EXPECT_EQ(bits(x), bits(after.at(name))) << name;
}

int g_host_reads = 0;
void count_host_reads(const FactView& fact) { g_host_reads += fact.fact == Fact::host_read; }
constexpr door::Listener kHostReads{.bit = kUserMode, .fact = count_host_reads};

TEST(SettingTensors, are_read_by_the_host_where_it_asks_and_by_no_step) {
  const Tensor a = parameter({1});
  a.set_grad(tensor_of({1}, {1}));
  for (const Execution execution : kExecutions) {
    AdamW adamw({{"a", a}}, {}, execution);
    adamw.set_lr(tensor_of({0.5}, {}));
    adamw.set("weight_decay", tensor_of({0.25}, {}));
    g_host_reads = 0;
    const door::ListenerScope listening(kHostReads);
    adamw.step();
    adamw.step();
    EXPECT_EQ(g_host_reads, 0) << name(execution);
    EXPECT_EQ(adamw.lr(), 0.5);
    EXPECT_EQ(g_host_reads, 1);
  }
}

TEST(SettingTensors, are_written_by_schedules) {
  const Tensor a = parameter({1}), b = parameter({1}), lr = tensor_of({8}, {}, kF64);
  SGD sgd({{{{"a", a}}, {}}, {{{"b", b}}, {.lr = 4}}});
  sgd.set_lr(0, lr);
  LRScheduler scheduler(sgd, {.kind = Schedule::Kind::exponential, .gamma = 0.5});
  for (const double rate : {8.0, 4.0, 2.0}) {
    EXPECT_EQ(lr.item<double>(), rate);
    EXPECT_EQ(sgd.lr(1), rate / 2);
    scheduler.step();
  }
  EXPECT_TRUE(sgd.setting_tensor(0, "lr").is_same(lr));
  EXPECT_FALSE(sgd.setting_tensor(1, "lr").defined());
  ReduceOnPlateau plateau(sgd, {.factor = 0.5, .patience = 0});
  plateau.step(1);
  plateau.step(1);
  EXPECT_EQ(lr.item<double>(), 0.5);
}

}  // namespace
}  // namespace lorry::optim::test
