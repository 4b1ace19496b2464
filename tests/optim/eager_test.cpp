// Eager steps (loop and foreach) are reused from step to step. Whatever must rebuild them is compared with fused steps.

#include "lorry/optim/custom.h"
#include "tests/optim/model.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

/// A rule whose formula depends on the learning rate.
struct Turning {
  static constexpr const char* kName = "turning";
  static constexpr int kStates = 1;
  static constexpr const char* kStateNames[] = {"last"};
  struct Settings {
    double lr = 0.1;
  };
  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};
  template <class V>
  struct Hyper {
    V lr;
    bool small;
    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      return {f(lr), small};
    }
  };
  static LORRY_INLINE Hyper<double> advance(Progress& p, const Settings& s) {
    p.steps += 1;
    return {s.lr, s.lr < 0.05};
  }
  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }
  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    if (h.small) grad = grad + states[0];
    states[0] = grad;
    param = param - h.lr * grad;
  }
};

TEST(EagerSteps, follow_every_change_between_steps) {
  for (const Memory& memory : {Memory{}, Memory{.masters = Masters::stochastic, .states = StateType::q8, .seed = 3}}) {
    std::string expected;
    for (const Execution execution : {Execution::fused, Execution::compiled, Execution::foreach, Execution::loop}) {
      if (execution == Execution::fused && !default_device().is_cpu()) continue;  // no code for GPUs here
      Model model(21, kBF16);
      Custom<Turning> optimizer(model.params, Turning::Settings(), execution, memory);
      std::vector<Tensor> first;  // gradients that come back after others took their place
      std::string got;
      for (int step = 0; step < 24; ++step) {
        if (step == 0 || step % 3 == 1) model.give_gradients();
        if (step == 1)
          for (const auto& [name, p] : model.params) first.push_back(p.grad());
        if (step == 9)
          for (size_t i = 0; i < first.size(); ++i) model.params[i].second.set_grad(first[i]);
        if (step == 5) optimizer.set_lr(0.03);  // another formula
        if (step == 10) optimizer.set_lr(0.07);
        if (step == 17) optimizer.set_lr(0.08);  // the same one
        if (step == 11) optimizer.set_memory_budget(100'000);
        if (step == 13) optimizer.set_memory_budget(0);
        if (step == 18) model.params[1].second.set_grad({});
        if (step == 19) optimizer.load_state_dict(optimizer.state_dict());
        if (step % 4 == 3)
          (void)optimizer.step({.max_norm = 1});
        else if (step % 4 == 2)
          (void)optimizer.step({.zero_grad = step > 12});
        else
          optimizer.step();
        got += model.all_bits();
      }
      if (expected.empty()) expected = got;
      EXPECT_TRUE(got == expected) << name(execution);
    }
  }
}

}  // namespace
}  // namespace lorry::optim::test
