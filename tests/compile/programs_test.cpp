// Compiled functions against the same functions as they are, to the bit: random ones (LORRY_TEST_SCALE multiplies
// the 500), and those whose units are known.

#include <gtest/gtest.h>

#include "lorry/compile/compile.h"
#include "lorry/compile/program.h"
#include "lorry/compile/simplify.h"
#include "lorry/compile/verify.h"
#include "lorry/ops/random_capture.h"
#include "tests/compile/fused_devices.h"
#include "tests/support/message.h"
#include "tests/support/scale.h"
#include "tests/trace/draws.h"
#include "tests/trace/random_programs.h"

namespace lorry::test {
namespace {

/// Expects the same of the compiled function over the recorded elements and over others.
std::unique_ptr<compiler::Program> expect_compiled(const MakeArguments& make, const Function& f) {
  const Outcome plain = run_plain(make, f, 1);
  const Traced traced = run_traced(make, f, 1);
  auto program = std::make_unique<compiler::Program>(traced.graph);
  SCOPED_TRACE(trace::to_string(traced.graph) + "after simplify():\n" + trace::to_string(program->graph()) +
               program->explain());
  for (const uint64_t seed : {1, 2, 2}) {
    if (seed == 2) program->wait();  // the first run may find kernels that are not compiled yet
    const Outcome expected = seed == 1 ? plain : run_plain(make, f, seed);
    Outcome got{.results = {}, .arguments = make(seed)};
    EXPECT_EQ(program->guard().why_not(got.arguments), "");
    run_seeded(seed, got, [&](const Tensors& arguments) { return program->run(arguments); });
    expect_same(got, expected, "compiled");
    EXPECT_EQ(sharing(got), sharing(expected)) << "memory is shared otherwise";
  }
  return program;
}

std::vector<size_t> unit_sizes(const std::unique_ptr<compiler::Program>& program) {
  std::vector<size_t> sizes;
  for (const compiler::Unit& u : program->units()) sizes.push_back(u.nodes.size());
  return sizes;
}

TEST(Compile, random_functions_give_the_same_bits) {
  for (const uint64_t seed : function_seeds(500)) {
    SCOPED_TRACE(fmt::format("function {}", seed));
    const RandomFunction f = random_function(seed, 5 + static_cast<int>(seed % 30));
    expect_compiled(f.make, f.call);
    if (HasFailure()) return;
  }
}

// These functions read sizes and take other steps for them, so each size is recorded; their kernels are found again.
TEST(Compile, random_functions_give_the_same_bits_over_changing_sizes) {
  int64_t hits = 0;
  for (const uint64_t seed : function_seeds(150)) {
    const RandomFunction f = random_function(seed, 5 + static_cast<int>(seed % 30));
    const auto compiled = compile(f.call, {.wait = true, .epilogues = false});
    for (const int64_t more : {0, 0, 1, 0, 4, 1, 4, 0}) {
      SCOPED_TRACE(fmt::format("function {}, {} longer\n{}", seed, more, compiled.explain()));
      const MakeArguments make = [&](uint64_t elements) { return f.make_longer(elements, more); };
      const uint64_t elements = seed + static_cast<uint64_t>(compiled.stats().hits);
      const Outcome expected = run_plain(make, f.call, elements);
      Outcome got{.results = {}, .arguments = make(elements)};
      run_seeded(elements, got, [&](const Tensors& arguments) { return compiled(arguments); });
      expect_same(got, expected, "compiled");
      if (HasFailure()) return;
    }
    hits += compiled.stats().hits;
  }
  EXPECT_TRUE(hits > 0 || !has_fused_kernels());
}

TEST(Compile, a_chain_is_one_unit) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto program = expect_compiled(randoms({{300, 70}, {70}}), [](const Tensors& x) {
    return Tensors{((x[0] * 2 + x[1]).tanh() - x[0]).relu() / 3};
  });
  EXPECT_EQ(unit_sizes(program), std::vector<size_t>{6});
  EXPECT_EQ(program->units()[0].inputs.size(), 4u);
  EXPECT_EQ(program->units()[0].outputs.size(), 1u);
}

// Chains of f32 long enough for threads, with values that are read again later, operands on either side, several
// results, and elements that are left over.
TEST(Compile, chains_of_f32) {
  for (const int64_t n : {1, 15, 63, 64, 65, 1000, 40000})
    expect_compiled(randoms({{n}, {n}, {n}}), [](const Tensors& x) {
      const Tensor a = x[0] * x[1], b = 2 - a, c = b.div(a.abs() + 1.5), d = a.pow(3) - b * b;
      const Tensor e = lerp(c, d, 0.25).sub(a), f = e.atan2(x[2]);
      x[2].mul_(e).add_(x[2] * f);
      x[1].sub_(x[0].square());
      return Tensors{a, f.clamp(-1, 1), addcmul(d, e, f, 0.5)};
    });
}

TEST(Compile, units_that_read_the_same_memory_are_one) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto units = [](const std::vector<Dims>& sizes, const Function& f) {
    return unit_sizes(expect_compiled(randoms(sizes), f));
  };
  EXPECT_EQ(units({{300, 70}},
                  [](const Tensors& x) {
                    return Tensors{x[0].sin() * 2, x[0].cos() + 1};
                  }),
            std::vector<size_t>{4});
  EXPECT_EQ(units({{300, 70}, {300, 70}},
                  [](const Tensors& x) {
                    return Tensors{x[0] * 2, x[1] * 3, x[0] - x[1]};
                  }),
            std::vector<size_t>{3});
  // Other parts of the memory (which are few elements: a GPU joins them all the same), other kinds of kernels on a CPU,
  // and units that are far apart.
  const int64_t few = kernels::backend(default_device()).fused->few_elements;
  const auto parts = [](const Tensors& x) {
    return Tensors{x[0].slice(0, 0, 9).sin() * 2, x[0].slice(0, 9, 18).cos() + 1};
  };
  EXPECT_EQ(units({{300, 70}}, parts), few > 0 ? std::vector<size_t>{4} : (std::vector<size_t>{2, 2}));
  EXPECT_EQ(units({{18, few / 9 + 8}}, parts), (std::vector<size_t>{2, 2}));
  if (default_device().is_cpu()) {
    EXPECT_EQ(units({{300, 70}},
                    [](const Tensors& x) {
                      return Tensors{x[0].sin() * 2, x[0].gt(0).logical_not()};
                    }),
              (std::vector<size_t>{2, 2}));
  }
  EXPECT_GT(units({{300, 70}},
                  [](const Tensors& x) {
                    Tensor far = (x[0] * 2).matmul(x[0].t());
                    for (int k = 0; k < 20; ++k) far = far.cumsum(k % 2);
                    return Tensors{x[0].sin() + 1, far, x[0].cos() + 1};
                  })
                .size(),
            20u);
  // One needs the other by way of a third.
  EXPECT_EQ(units({{30, 30}},
                  [](const Tensors& x) {
                    const Tensor y = (x[0] * 2).t().contiguous().matmul(x[0]);
                    return Tensors{y * x[0]};
                  })
                .size(),
            4u);
  if (!has_row_kernels()) return;
  EXPECT_EQ(units({{30, 64}},
                  [](const Tensors& x) {
                    return Tensors{x[0].mean({-1}), x[0].abs().amax({-1}), softmax(x[0], -1)};
                  }),
            std::vector<size_t>{4});
}

TEST(Compile, units_that_do_not_compute_the_graph_are_refused) {
  LORRY_NEEDS_FUSED_KERNELS();
  const Traced traced = run_traced(
      randoms({{30}, {30}}),
      [](const Tensors& x) {
        const Tensor y = (x[0] * 2).exp(), z = y.cumsum(0);
        return Tensors{y, (z + x[1]).sin()};
      },
      1);
  const trace::Graph graph = compiler::simplify(traced.graph);
  const std::vector<compiler::Unit> units = compiler::fuse(graph);
  ASSERT_EQ(units.size(), 3u);
  compiler::verify(graph, units);
  const auto error = [&](const std::function<void(std::vector<compiler::Unit>&)>& spoil) {
    std::vector<compiler::Unit> bad = units;
    spoil(bad);
    return message<CompileError>([&] { compiler::verify(graph, bad); });
  };
  using Units = std::vector<compiler::Unit>;
  EXPECT_NE(error([](Units& u) { u.pop_back(); }).find("in no unit"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u.push_back(u[0]); }).find("in two units"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u[1].nodes.clear(); }).find("no nodes"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u[1].nodes = {99}; }).find("no such node"), std::string::npos);
  EXPECT_NE(error([](Units& u) { std::swap(u[0], u[1]); }).find("later unit"), std::string::npos);
  EXPECT_NE(error([](Units& u) { std::swap(u[0].nodes[0], u[0].nodes[1]); }).find("later step"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u[0].steps.pop_back(); }).find("number of steps"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u[0].steps[0].in[0] = 9; }).find("register"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u[0].steps[0].in[0] = 1; }).find("another operand"), std::string::npos);
  EXPECT_NE(error([](Units& u) { std::swap(u[2].steps[0].in[0], u[2].steps[0].in[1]); }).find("another operand"),
            std::string::npos);
  EXPECT_NE(error([](Units& u) { u[0].steps[0].arity = 1; }).find("number of operands"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u[0].output_registers[0] = 0; }).find("another register"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u[0].outputs.clear(); }).find("do not match"), std::string::npos);
  EXPECT_NE(error([](Units& u) { u[0].outputs[0] = u[2].outputs[0]; }).find("another register"), std::string::npos);
}

TEST(Compile, a_write_in_place_stays_in_place) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto program = expect_compiled(randoms({{300, 70}, {70}}), [](const Tensors& x) {
    x[0].mul_(2).add_(x[1]).tanh_();
    return Tensors{};
  });
  EXPECT_EQ(unit_sizes(program), std::vector<size_t>{3});
  EXPECT_EQ(program->graph().write_backs.size(), 1u);
}

TEST(Compile, what_needs_a_reduction_waits_for_it) {
  if (!has_row_kernels()) GTEST_SKIP() << "no kernels over rows on " << default_device();
  const auto program = expect_compiled(randoms({{30, 70}}), [](const Tensors& x) {
    const Tensor a = x[0].exp(), s = a.sum({0}, true);
    return Tensors{a / s * 2, s.log()};
  });
  EXPECT_EQ(unit_sizes(program), (std::vector<size_t>{1, 1, 2, 1}));
}

/// The kinds of a program's units.
std::vector<int> kinds(const std::unique_ptr<compiler::Program>& program) {
  std::vector<int> all;
  for (const compiler::Unit& u : program->units()) all.push_back(u.kind);
  return all;
}
constexpr int kRow = compiler::Unit::row, kMap = compiler::Unit::map, kLibrary = compiler::Unit::library;

/// Whether rows are units: kernels of a GPU hold whole runs of 16 bytes.
bool is_held(int64_t n, DType dtype) { return default_device().is_cpu() || n * size_of(dtype) % 16 == 0; }

TEST(Compile, operators_over_rows_and_the_pointwise_ones_beside_them_are_one_unit) {
  if (!has_row_kernels()) GTEST_SKIP() << "no kernels over rows on " << default_device();
  const std::vector<Function> functions{
      [](const Tensors& x) { return Tensors{softmax(x[0] * 0.125, -1)}; },
      [](const Tensors& x) { return Tensors{log_softmax(x[0] * 0.125, -1) * x[0]}; },
      [](const Tensors& x) {
        const Tensor e = (x[0] - x[0].amax({-1}, true)).exp();
        return Tensors{e / e.sum({-1}, true)};
      },
      [](const Tensors& x) { return Tensors{layer_norm(gelu(x[0]), {x[1].size(0)}, x[1], x[1]) + x[0]}; },
      [](const Tensors& x) { return Tensors{rms_norm(x[0] + x[1], {x[1].size(0)}, x[1])}; },
      [](const Tensors& x) {
        const Tensor s = x[0].square().mean({-1}), root = (s + 1).sqrt();
        return Tensors{x[0] / root.unsqueeze(-1), s, root};
      },
      [](const Tensors& x) {
        return Tensors{x[0].abs().amin({-1}) * 2, x[0].abs()};
      },
  };
  for (const Dims& sizes : {Dims{7, 70}, Dims{1, 300}, Dims{3, 5, 64}, Dims{700, 130}, Dims{300, 2}, Dims{70, 70}})
    for (const DType dtype : {kF32, kF64, kBF16})
      for (size_t f = 0; f < functions.size(); ++f) {
        SCOPED_TRACE(fmt::format("function {} over {} {}", f, dtype, sizes));
        const MakeArguments make = [&](uint64_t seed) {
          manual_seed(seed);
          return Tensors{randn(sizes).to(dtype), randn({sizes[sizes.size() - 1]}).to(dtype)};
        };
        const auto program = expect_compiled(make, functions[f]);
        if (is_held(sizes[sizes.size() - 1], dtype)) {
          EXPECT_EQ(kinds(program), std::vector<int>{kRow});
        }
      }
}

TEST(Compile, rows_are_written_in_place) {
  if (!has_row_kernels()) GTEST_SKIP() << "no kernels over rows on " << default_device();
  for (const int64_t n : {70, 130, 132}) {
    const auto program = expect_compiled(randoms({{70, n}, {n}, {70, 1}}), [](const Tensors& x) {
      x[0].copy_((softmax(x[0] * 2, -1) + x[0]) * x[1]);
      x[2].add_(x[0].sum({-1}, true));
      return Tensors{};
    });
    if (is_held(n, kF32)) {
      EXPECT_EQ(kinds(program), std::vector<int>{kRow});
    }
  }
}

// A vector that every row reads is not where the rows' own results go, though it has as many elements.
TEST(Compile, a_result_of_each_row_waits_for_what_all_rows_read) {
  expect_compiled(randoms({{70, 70}, {70}}), [](const Tensors& x) {
    x[1].copy_((x[0] * x[1]).sum({-1}));
    return Tensors{};
  });
  expect_compiled(randoms({{70, 70}, {70}}), [](const Tensors& x) {
    x[1].copy_((x[0] * x[1] + x[1].unsqueeze(1)).sum({-1}));
    return Tensors{};
  });
}

TEST(Compile, gradients_of_rows_are_one_unit) {
  if (!has_row_kernels()) GTEST_SKIP() << "no kernels over rows on " << default_device();
  const auto program = expect_compiled(randoms({{70, 132}, {70, 132}}), [](const Tensors& x) {
    const Tensor in = x[0].detach().requires_grad_();
    return autograd::grad({softmax(in + x[1], -1)}, {in}, {x[1]});
  });
  EXPECT_EQ(kinds(program), std::vector<int>{kRow});
}

TEST(Compile, what_is_not_over_rows_says_why) {
  if (!has_row_kernels()) GTEST_SKIP() << "no kernels over rows on " << default_device();
  const auto expect_reason = [](const Dims& sizes, const Function& f, const char* why) {
    const std::string text = expect_compiled(randoms({sizes}), f)->explain();
    EXPECT_NE(text.find(why), std::string::npos) << text;
  };
  expect_reason(
      {30, 70}, [](const Tensors& x) { return Tensors{x[0].exp().sum({0})}; }, "not the last dimensions");
  expect_reason(
      {2, 40000}, [](const Tensors& x) { return Tensors{softmax(x[0].exp(), -1)}; }, "too long");
  expect_reason(
      {30, 70}, [](const Tensors& x) { return Tensors{softmax(x[0].exp().t(), -1)}; }, "not contiguous");
  expect_reason(
      {30, 1}, [](const Tensors& x) { return Tensors{softmax(x[0].exp(), -1)}; }, "single elements");
  expect_reason(
      {30, 64},
      [](const Tensors& x) {
        return Tensors{softmax(x[0], -1).view({60, 32}).sum({-1})};
      },
      "other rows");
}

TEST(Compile, equal_calls_are_made_once_and_dead_ones_not_at_all) {
  const auto program = expect_compiled(randoms({{30}}), [](const Tensors& x) {
    const Tensor a = x[0].exp() + 1, b = x[0].exp() + 1, unused = x[0].cos();
    x[0].sin().add_(unused);
    return Tensors{a * b};
  });
  EXPECT_EQ(program->graph().nodes.size(), 3u);
}

TEST(Compile, what_changes_no_bit_is_not_computed) {
  const auto nodes = [](const Function& f) {
    return expect_compiled(randoms({{30}, {4, 30}}), f)->graph().nodes.size();
  };
  EXPECT_EQ(nodes([](const Tensors& x) { return Tensors{(x[0] * 1 / 1 - 0).exp() + -0.0}; }), 1u);
  EXPECT_EQ(nodes([](const Tensors& x) {
              return Tensors{x[0].exp().neg().neg(), x[0].sin().abs().abs().floor().floor()};
            }),
            4u);
  EXPECT_EQ(nodes([](const Tensors& x) {
              const Tensor y = x[0].exp();
              return Tensors{where(x[0].gt(0), y, y), maximum(y, y) * 2};
            }),
            2u);
  EXPECT_EQ(nodes([](const Tensors& x) { return Tensors{(x[0].to(kI32) * 3 + 0).to(kF32)}; }), 3u);
  // These change bits: of -0, of the sizes, or of the dtype.
  EXPECT_EQ(nodes([](const Tensors& x) { return Tensors{x[0].neg().relu().neg() + 0}; }), 4u);
  EXPECT_EQ(nodes([](const Tensors& x) {
              return Tensors{maximum(x[1], x[0]) * ones({2, 4, 30}), x[0].to(kI32) * 1.0};
            }),
            5u);
}

TEST(Compile, a_copy_of_what_is_written_later_is_made) {
  const auto program = expect_compiled(randoms({{30}}), [](const Tensors& x) {
    const Tensor old = x[0] * 1;
    x[0].add_(1);
    return Tensors{old, x[0] * old};
  });
  // The copy is made where it stands, and not at the end, so that what is written still lands in the argument.
  EXPECT_EQ(program->graph().nodes.size(), 3u);
  for (const trace::Node& node : program->graph().nodes) EXPECT_NE(node.op, Op::clone);
}

TEST(Compile, tensors_of_one_number_are_not_read) {
  const auto program = expect_compiled(randoms({{4, 30}}), [](const Tensors& x) {
    const Tensor half = x[0].to(kBF16);
    return Tensors{x[0] + full_like(x[0], 0.1), full({30}, 3.0) * x[0], half * full({4, 30}, 0.1, {kBF16}),
                   x[0].gt(zeros({1})), x[0].to(kI32) - full({4, 30}, 1 << 20, {kI32})};
  });
  const auto written = expect_compiled(randoms({{4, 30}}), [](const Tensors& x) {
    x[0].add_(full_like(x[0], 2)).select(0, 1).mul_(full({30}, 3.0));
    return Tensors{};
  });
  for (const trace::Node& node : written->graph().nodes) EXPECT_NE(node.op, Op::fill);
  for (const trace::Node& node : program->graph().nodes)
    EXPECT_NE(node.op, Op::fill) << trace::to_string(program->graph());
  // The result takes its sizes or its dtype from these.
  expect_compiled(randoms({{30}}), [](const Tensors& x) {
    return Tensors{x[0] + ones({4, 30}), x[0].to(kBF16) * ones({30}), x[0].gt(0) * ones({30}, {kBool}),
                   pow(x[0], full({30}, 2))};
  });
}

TEST(Compile, what_repeats_an_argument_is_memory_of_its_own) {
  expect_compiled(randoms({{30}}), [](const Tensors& x) { return Tensors{x[0] * 1, x[0] / 1}; });
  expect_compiled(randoms({{30}, {30}}), [](const Tensors& x) {
    const Tensor y = x[0] * 1;
    x[0].add_(1);
    x[1].mul_(1);
    return Tensors{y, x[1]};
  });
}

TEST(Compile, equal_results_are_memory_of_their_own) {
  expect_compiled(randoms({{30}}), [](const Tensors& x) { return Tensors{x[0] + 1, x[0] + 1}; });
  expect_compiled(randoms({{30}}), [](const Tensors& x) {
    const Tensor y = x[0] * 2;
    x[0].mul_(2);
    return Tensors{y, x[0]};
  });
}

TEST(Compile, equal_values_that_a_list_writes_part_from_each_other) {
  expect_compiled(randoms({{30}}), [](const Tensors& x) {
    const Tensor a = x[0] + 1, b = x[0] + 1;
    const Tensors list{a, b}, others{x[0], x[0] * 2};
    foreach::add_(list, others);
    return Tensors{a, b};
  });
}

TEST(Compile, programs_draw_as_the_function_would) {
  const auto make = randoms({{64}, {4, 30}});
  const Function f = draw_all();
  const Traced traced = run_traced(make, f, 1);
  const compiler::Program program(traced.graph);
  expect_draws_go_on(make, f, [&](const Tensors& x) { return program.run(x); });
}

// The numbers of a program that is run while draws are captured are named in memory, as those of an eager call are.
TEST(Compile, programs_are_captured_with_their_draws) {
  const Tensors x = randoms({{64}})(1);
  const Function f = [](const Tensors& a) { return Tensors{dropout(a[0], 0.5) * 2, rand({8})}; };
  const compiler::Program program(run_traced([&](uint64_t) { return x; }, f, 1).graph);
  manual_seed(3);
  const Tensors first = f(x), second = f(x);
  manual_seed(3);
  const Device device = default_device();
  RandomCapture capture({&device, 1});
  for (const Tensors* expected : {&first, &second}) {
    const RandomCapture::Scope scope(capture, RandomCapture::Calls::run);
    const Tensors got = program.run(x);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(bits_of(got[i]), bits_of((*expected)[i]));
    EXPECT_EQ(capture.draws(), 2u);
  }
}

TEST(Compile, draws_that_nobody_reads_are_skipped_over) {
  const auto program = expect_compiled(randoms({{64}}), [](const Tensors& x) {
    randn({3, 3});
    const Tensor y = dropout(x[0], 0.5);
    rand({8});
    return Tensors{y};
  });
  EXPECT_EQ(program->graph().nodes.size(), 1u);
  EXPECT_EQ(program->graph().generators.at(0).draws, 3u);
}

TEST(Compile, draws_differ_from_each_other) {
  expect_compiled(randoms({{64}}), [](const Tensors& x) {
    return Tensors{dropout(x[0], 0.5), dropout(x[0], 0.5), rand({8}), rand({8})};
  });
}

}  // namespace
}  // namespace lorry::test
