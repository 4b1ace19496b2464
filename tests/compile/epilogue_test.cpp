// Products with epilogues: which units a graph gets, and that results are those of the operators within rounding.

#include "lorry/compile/epilogue.h"

#include <gtest/gtest.h>

#include <random>

#include "lorry/compile/compile.h"
#include "lorry/compile/program.h"
#include "lorry/compile/simplify.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

using Epilogue = kernels::MatmulEpilogue;
using Kinds = std::vector<int>;  // Epilogue::Kind, printed as numbers

/// Two linear layers with GELU between them.
struct Perceptron {
  Tensor up, up_bias, down, down_bias;

  Perceptron(int64_t width, int64_t hidden, const Options& options, bool has_bias = true) {
    const auto parameter = [&](const Dims& sizes, double scale) {
      return (randn(sizes, {kF32, options.device}) * scale).to(options.dtype).requires_grad_();
    };
    up = parameter({hidden, width}, 0.3), down = parameter({width, hidden}, 0.1);
    if (has_bias) up_bias = parameter({hidden}, 0.5), down_bias = parameter({width}, 0.5);
  }
  std::vector<Tensor> parameters() const {
    return up_bias.defined() ? Tensors{up, up_bias, down, down_bias} : Tensors{up, down};
  }
  Tensor operator()(const Tensor& x) const { return linear(gelu(linear(x, up, up_bias), "tanh"), down, down_bias); }
  /// The loss, and the gradients of the parameters and of x.
  Tensors step(const Tensor& x) const {
    const Tensor input = x.detach().requires_grad_();
    const Tensor y = (*this)(input), loss = (y * y).sum();
    Tensors wanted = parameters();
    wanted.push_back(input);
    Tensors all = autograd::grad({loss}, wanted);
    all.insert(all.begin(), {loss.detach(), y.detach()});
    return all;
  }
};

trace::Graph recorded(const Tensors& arguments, const Function& f) {
  trace::Recorder recorder(arguments);
  const Tensors results = f(arguments);
  return trace::functionalise(recorder.finish(results));
}

/// The epilogues of a program's units, in their order.
Kinds epilogues(const compiler::Program& program) {
  Kinds all;
  for (const compiler::Unit& u : program.units())
    if (u.kind == compiler::Unit::product) all.push_back(u.epilogue);
  return all;
}

Kinds epilogues_of(const Tensors& arguments, const Function& f) {
  const compiler::Program program(recorded(arguments, f), {.epilogues = compiler::Epilogues::all});
  const Tensors want = f(arguments), got = program.run(arguments);
  EXPECT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].layout(), want[i].layout()) << i;
  return epilogues(program);
}

Tensor on_meta(const Dims& sizes, DType dtype = kBF16) { return empty(sizes, {dtype, kMeta}); }

TEST(CompileEpilogues, a_training_step_of_a_perceptron_has_three) {
  const Perceptron model(16, 64, {kBF16, kMeta});
  const auto step = [&](const Tensors& x) { return model.step(x[0]); };
  // GELU of the first layer; the gradients of GELU and the first bias; those of the second weight and bias.
  const Kinds want{Epilogue::gelu_and_input, Epilogue::gelu_backward_and_sums, Epilogue::sums_of_a};
  EXPECT_EQ(epilogues_of({on_meta({4, 8, 16})}, step), want);
  EXPECT_EQ(epilogues_of({on_meta({32, 16})}, step), want);
  const Perceptron plain(16, 64, {kBF16, kMeta}, false);
  EXPECT_EQ(epilogues_of({on_meta({32, 16})}, [&](const Tensors& x) { return plain.step(x[0]); }),
            (Kinds{Epilogue::gelu_and_input, Epilogue::gelu_backward}));
}

TEST(CompileEpilogues, explain_names_them_and_the_bytes_that_they_save) {
  const Perceptron model(16, 64, {kBF16, kMeta});
  const Function step = [&](const Tensors& x) { return model.step(x[0]); };
  const trace::Graph graph = recorded({on_meta({32, 16})}, step);
  const std::string text = compiler::Program(graph, {.epilogues = compiler::Epilogues::all}).explain();
  const int64_t hidden = 32 * 64 * 2, out = 32 * 16 * 2;
  for (const std::string& line :
       {fmt::format("linear gelu_tanh as one product with GELU and its input, {} bytes saved", hidden),
        fmt::format("matmul gelu_tanh_backward sum as one product with the gradient of GELU and its sums, {} bytes",
                    3 * hidden),
        fmt::format("matmul sum as one product with the sums of its first operand, {} bytes", out)})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(compiler::Program(graph).explain().find("as one product"), std::string::npos);
}

TEST(CompileEpilogues, relu_is_one_if_its_operand_is_read_by_nobody_else) {
  const Tensor w = on_meta({64, 16}), b = on_meta({64});
  const auto of = [&](const Function& f) { return epilogues_of({on_meta({8, 16})}, f); };
  EXPECT_EQ(of([&](const Tensors& x) { return Tensors{relu(linear(x[0], w, b))}; }), Kinds{Epilogue::relu});
  EXPECT_EQ(of([&](const Tensors& x) { return Tensors{relu(matmul(x[0], w.t()))}; }), Kinds{Epilogue::relu});
  EXPECT_EQ(of([&](const Tensors& x) {
              const Tensor h = linear(x[0], w, b);
              return Tensors{relu(h), h};
            }),
            Kinds{});
}

TEST(CompileEpilogues, products_with_relu_give_the_elements_of_the_operators) {
  manual_seed(6);
  const NoGrad quiet;
  const Tensor w = (randn({48, 64}) * 0.2).to(kF16), b = randn({48}).to(kF16);
  const auto f = [&](const Tensor& in) { return relu(linear(in, w, b)); };
  const auto compiled = compile(f, {.wait = true});
  for (const int64_t rows : {24, 1, 2})
    for (int call = 0; call < 3; ++call) {
      const Tensor x = randn({rows, 64}).to(kF16), got = compiled(x).to(kF32), want = f(x).to(kF32);
      EXPECT_LE((got - want).abs().max().item<float>(), 4e-3f * want.abs().max().item<float>()) << rows;
      EXPECT_GE(got.min().item<float>(), 0);
    }
}

TEST(CompileEpilogues, the_input_of_gelu_is_kept_only_if_it_is_read) {
  const Perceptron model(16, 64, {kBF16, kMeta});
  const NoGrad quiet;
  const auto of = [&](const Function& f) { return epilogues_of({on_meta({32, 16})}, f); };
  EXPECT_EQ(of([&](const Tensors& x) { return Tensors{model(x[0])}; }), Kinds{Epilogue::gelu});
  EXPECT_EQ(of([&](const Tensors& x) {
              const Tensor h = linear(x[0], model.up);
              return Tensors{gelu(h, "tanh"), h};
            }),
            Kinds{Epilogue::gelu_and_input});
  EXPECT_EQ(of([&](const Tensors& x) {
              const Tensor h = matmul(x[0], model.up.t());
              return Tensors{gelu(h, "tanh") + 1, h.square().sum()};
            }),
            Kinds{});  // GELU and the sum have joined other units
}

TEST(CompileEpilogues, what_only_looks_like_one_stays_with_the_operators) {
  const Perceptron model(16, 64, {kBF16, kMeta});
  const NoGrad quiet;
  const auto none = [&](const Function& f) {
    EXPECT_EQ(epilogues_of({on_meta({32, 16})}, f), Kinds{}) << trace::to_string(recorded({on_meta({32, 16})}, f));
  };
  none([&](const Tensors& x) { return Tensors{gelu(linear(x[0], model.up))}; });  // not its tanh form
  none([&](const Tensors& x) { return Tensors{gelu(linear(x[0], model.up).t(), "tanh")}; });
  none([&](const Tensors& x) { return Tensors{gelu(linear(x[0], model.up).slice(1, 0, 8), "tanh")}; });
  none([&](const Tensors& x) {  // a bias that is not contiguous
    return Tensors{gelu(linear(x[0], model.up, on_meta({128}).slice(0, 0, 128, 2)), "tanh")};
  });
  none([&](const Tensors& x) {  // sums of other elements than those of its first operand
    const Tensor y = x[0] + 1;
    return Tensors{mm(y.t(), x[0]), x[0].sum({0}), y.sum({1})};
  });
  none([&](const Tensors& x) {  // the sum is needed before the product can be computed
    const Tensor s = x[0].sum({0});
    return Tensors{mm(x[0].t(), linear(s.mul(2).expand({32, 16}), model.up))};
  });
  none([&](const Tensors& x) {  // the host is called in between
    const Tensor h = linear(x[0], model.up);
    trace::host_callback("nothing", [] {});
    return Tensors{gelu(h, "tanh")};
  });
}

TEST(CompileEpilogues, sums_that_come_first_wait_for_the_product) {
  const NoGrad quiet;
  EXPECT_EQ(epilogues_of({on_meta({32, 16}), on_meta({32, 24})},
                         [](const Tensors& x) {
                           const Tensor s = x[0].sum({0}), w = mm(x[0].t(), x[1]);
                           return Tensors{w, s.sum()};
                         }),
            Kinds{Epilogue::sums_of_a});
}

// ---- results --------------------------------------------------------------------------------------------------------

/// The largest difference between the elements, divided by the largest element.
double error(const Tensor& got, const Tensor& want) {
  return (got.cpu().to(kF64) - want).abs().max().item<double>() / want.abs().max().item<double>();
}

TEST(CompileEpilogues, random_perceptrons_are_as_right_as_their_operators) {
  for (const DType dtype : {kBF16, kF16, kF32}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      manual_seed(seed);
      std::mt19937_64 random(seed);
      const auto size = [&] {
        return static_cast<int64_t>(random() % 4 == 0 ? 1 + random() % 70 : 8 * (1 + random() % 9));
      };
      const int64_t width = size(), hidden = size(), rows = size();
      const Perceptron model(width, hidden, {.dtype = dtype}, random() % 4 != 0);
      Perceptron wide = model;
      for (Tensor* x : {&wide.up, &wide.up_bias, &wide.down, &wide.down_bias})
        if (x->defined()) *x = x->detach().cpu().to(kF64).requires_grad_();
      const auto step = compile([&](const Tensor& x) { return model.step(x); }, {.wait = true});
      const auto same = compile([&](const Tensor& x) { return model.step(x); }, {.wait = true, .epilogues = false});
      const Dims sizes = seed % 2 == 0 ? Dims{rows, width} : Dims{2, rows, width};
      for (int call = 0; call < 3; ++call) {
        const Tensor x = randn(sizes).to(dtype);
        const Tensors plain = model.step(x), got = step(x), bits = same(x), want = wide.step(x.cpu().to(kF64));
        for (size_t i = 0; i < want.size(); ++i) {
          SCOPED_TRACE(fmt::format("{} by {} by {} {}, result {}\n{}", rows, width, hidden, dtype, i, step.explain()));
          EXPECT_TRUE(bits_of(bits[i]) == bits_of(plain[i]));
          EXPECT_TRUE((dtype != kF32 && default_device().is_cuda()) || bits_of(got[i]) == bits_of(plain[i]));
          EXPECT_LE(error(got[i], want[i]), 2 * error(plain[i], want[i]) + (dtype == kBF16 ? 1e-2 : 2e-3));
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CompileEpilogues, memory_that_is_not_aligned_is_left_to_the_operators) {
  manual_seed(1);
  const NoGrad quiet;
  const Perceptron model(64, 64, {.dtype = kBF16});
  const auto f = compile([&](const Tensor& x) { return model(x); }, {.wait = true});
  const Tensor memory = randn({64 * 65}).to(kBF16);
  for (const int64_t shift : {0, 0, 1, 3, 0}) {
    const Tensor x = memory.narrow(0, shift, 64 * 64).view({64, 64});
    EXPECT_TRUE(allclose(f(x).to(kF32), model(x).to(kF32), 0.02, 0.02)) << shift;
  }
}

TEST(CompileEpilogues, a_cpu_has_none) {
  const Perceptron model(16, 64, {kBF16, kCPU});
  const auto f = compile([&](const Tensor& x) { return model.step(x); });
  const Tensor x = randn({32, 16}, {.device = kCPU}).to(kBF16);
  for (int call = 0; call < 3; ++call) {
    const Tensors want = model.step(x), got = f(x);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(bits_of(got[i]) == bits_of(want[i])) << i;
  }
  EXPECT_EQ(f.explain().find("as one product"), std::string::npos);
}

}  // namespace
}  // namespace lorry::test
