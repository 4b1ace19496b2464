#include "lorry/autograd/function.h"

#include <gtest/gtest.h>

#include "lorry/autograd/checkpoint.h"
#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/support/gradcheck.h"
#include "tests/support/message.h"

namespace lorry::autograd {
namespace {

using List = std::vector<Tensor>;
using test::gradcheck;
using test::gradgradcheck;
using test::message;

Tensor leaf(const Dims& sizes) { return rand(sizes, {kF64}).add(0.5).requires_grad_(); }

/// x^power, by the saved argument and a number.
struct Power : Function<Power> {
  static constexpr const char* kName = "power";
  static Tensor forward(Context& context, const Tensor& x, double power) {
    EXPECT_FALSE(grad_enabled());
    context.save_for_backward({x});
    context.saved_data["power"] = power;
    return x.pow(power);
  }
  static List backward(Context& context, const List& grads) {
    const double power = std::any_cast<double>(context.saved_data["power"]);
    return {grads[0] * power * context.saved_tensors()[0].pow(power - 1), {}};
  }
};

/// exp(x), by the saved result.
struct Exp : Function<Exp> {
  static Tensor forward(Context& context, const Tensor& x) {
    const Tensor y = x.exp();
    context.save_for_backward({y});
    return y;
  }
  static List backward(Context& context, const List& grads) { return {grads[0] * context.saved_tensors()[0]}; }
};

/// a b and a + b; the second argument's gradient only where it is wanted.
struct Both : Function<Both> {
  static List forward(Context& context, const Tensor& a, const Tensor& b) {
    context.save_for_backward({a, b});
    return {a * b, a + b};
  }
  static List backward(Context& context, const List& grads) {
    const List saved = context.saved_tensors();
    const Tensor of_b = context.needs_input_grad(1) ? grads[0] * saved[0] + grads[1] : Tensor();
    return {grads[0] * saved[1] + grads[1], of_b};
  }
};

/// The gradient turned round.
struct Reverse : Function<Reverse> {
  static Tensor forward(Context&, const Tensor& x) { return x.view_as(x); }
  static List backward(Context&, const List& grads) { return {-grads[0]}; }
};

/// A gradient too few.
struct Twice : Function<Twice> {
  static constexpr const char* kName = "twice";
  static Tensor forward(Context&, const Tensor& x, int) { return x * 2; }
  static List backward(Context&, const List& grads) { return {grads[0] * 2}; }
};

/// A gradient of a number.
struct OfNumber : Function<OfNumber> {
  static constexpr const char* kName = "of_number";
  static Tensor forward(Context&, const Tensor& x, int) { return x * 2; }
  static List backward(Context&, const List& grads) { return {grads[0], grads[0]}; }
};

/// A gradient of another shape.
struct Summed : Function<Summed> {
  static constexpr const char* kName = "summed";
  static Tensor forward(Context&, const Tensor& x) { return x * 2; }
  static List backward(Context&, const List& grads) { return {grads[0].sum()}; }
};

/// A forward that writes its argument.
struct Writes : Function<Writes> {
  static constexpr const char* kName = "writes";
  static Tensor forward(Context&, const Tensor& x) { return x.mul_(2).add(1); }
  static List backward(Context&, const List& grads) { return {grads[0] * 2}; }
};

TEST(Function, gradients_and_their_gradients_agree_with_differences) {
  const Tensor x = leaf({2, 3}), y = leaf({2, 3});
  EXPECT_TRUE(gradcheck([](const List& in) { return Power::apply(in[0], 3.0); }, {x}));
  EXPECT_TRUE(gradgradcheck([](const List& in) { return Power::apply(in[0], 3.0); }, {x}));
  EXPECT_TRUE(gradcheck([](const List& in) { return Exp::apply(in[0] * 2); }, {x}));
  EXPECT_TRUE(gradgradcheck([](const List& in) { return Exp::apply(in[0] * 2); }, {x}));
  const auto both = [](const List& in) {
    const List made = Both::apply(in[0], in[1] * in[1]);
    return made[0].mul(made[1]);
  };
  EXPECT_TRUE(gradcheck(both, {x, y}));
  EXPECT_TRUE(gradgradcheck(both, {x, y}));
}

TEST(Function, a_result_without_a_gradient_counts_as_zero) {
  const Tensor a = leaf({3}), b = leaf({3});
  const List grads = grad({Both::apply(a, b)[1].sum()}, {a, b});
  EXPECT_EQ(grads[0].to_vector<double>(), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(grads[1].to_vector<double>(), (std::vector<double>{1, 1, 1}));
  const Tensor constant = rand({3}, {kF64});
  Both::apply(a, constant)[0].sum().backward();
  EXPECT_TRUE(a.grad().equal(constant));
}

TEST(Function, names_itself_and_records_only_where_a_gradient_is_wanted) {
  const Tensor x = leaf({2});
  EXPECT_EQ(Power::apply(x, 2.0).grad_fn(), "power");
  EXPECT_NE(Exp::apply(x).grad_fn().find("Exp"), std::string::npos);
  EXPECT_FALSE(Exp::apply(x.detach()).requires_grad());
  const NoGrad quiet;
  EXPECT_FALSE(Exp::apply(x).requires_grad());
}

TEST(Function, a_result_that_is_a_view_of_an_argument_has_memory_of_its_own) {
  const Tensor x = leaf({2});
  const Tensor y = Reverse::apply(x);
  EXPECT_TRUE(y.equal(x));
  EXPECT_NE(y.data_ptr(), x.data_ptr());
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{-1, -1}));
}

TEST(Function, results_may_be_marked_as_without_a_gradient) {
  struct Sorted : Function<Sorted> {
    static List forward(Context& context, const Tensor& x) {
      const Tensor largest = x.max();
      context.mark_non_differentiable({largest});
      return {x * 2, largest, x.argmax()};
    }
    static List backward(Context&, const List& grads) { return {grads[0] * 2}; }
  };
  const List made = Sorted::apply(leaf({4}));
  EXPECT_TRUE(made[0].requires_grad());
  EXPECT_FALSE(made[1].requires_grad());
  EXPECT_FALSE(made[2].requires_grad());
}

TEST(Function, backward_keeps_to_what_forward_promised) {
  EXPECT_EQ(message<GradError>([] { Twice::apply(leaf({2}), 1).sum().backward(); }),
            "twice backward: another number of gradients than arguments; got 1; expected 2, one for each argument of "
            "forward, undefined for a number");
  EXPECT_NE(message<GradError>([] {
              OfNumber::apply(leaf({2}), 1).sum().backward();
            }).find("of_number backward: a gradient of argument 1, which is no tensor"),
            std::string::npos);
  EXPECT_NE(message<ShapeError>([] {
              Summed::apply(leaf({2})).sum().backward();
            }).find("summed backward: the gradient of argument 0 has another shape; got [] f64 cpu; expected [2]"),
            std::string::npos);
}

TEST(Function, a_saved_tensor_written_in_place_is_noticed) {
  const Tensor x = leaf({2}), middle = x * 1;
  const Tensor y = Power::apply(middle, 2.0);
  middle.mul_(2);
  const std::string text = message<GradError>([&] { y.sum().backward(); });
  EXPECT_NE(text.find("power backward: a tensor saved for the gradient was overwritten in place"), std::string::npos)
      << text;
  EXPECT_NE(text.find("last written by mul"), std::string::npos) << text;
  const Tensor z = Exp::apply(x);
  z.mul_(2);
  EXPECT_THROW(z.sum().backward(), GradError);
}

TEST(Function, a_forward_that_writes_an_argument_is_refused) {
  EXPECT_NE(message<GradError>([] { Writes::apply(leaf({2}) * 1); }).find("writes: forward wrote argument 0 in place"),
            std::string::npos);
  EXPECT_EQ(Writes::apply(ones({1})).item<double>(), 3) << "nothing is recorded";
}

TEST(Function, a_graph_is_gone_once_through_unless_it_is_retained) {
  const Tensor x = leaf({2}), y = Power::apply(x, 2.0).sum();
  y.backward({}, true);
  y.backward();
  EXPECT_NE(message<GradError>([&] { y.backward(); }).find("the graph was freed by an earlier backward"),
            std::string::npos);
}

TEST(Function, works_inside_a_checkpoint) {
  const Tensor x = leaf({3}), same = x.detach().clone().requires_grad_();
  checkpoint([&] { return Exp::apply(Power::apply(x, 2.0)); }).sum().backward();
  Exp::apply(Power::apply(same, 2.0)).sum().backward();
  EXPECT_TRUE(x.grad().equal(same.grad()));
}

TEST(Function, wants_an_argument_that_exists) {
  struct Asks : Function<Asks> {
    static Tensor forward(Context& context, const Tensor& x) {
      EXPECT_TRUE(context.needs_input_grad(0));
      EXPECT_THROW(context.needs_input_grad(1), IndexError);
      return x * 2;
    }
    static List backward(Context&, const List& grads) { return {grads[0] * 2}; }
  };
  Asks::apply(leaf({1}));
}

}  // namespace
}  // namespace lorry::autograd
