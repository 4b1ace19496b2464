// Operators that one kernel computes together, and the choice among ways to run a program: the bits of the operators.

#include "lorry/compile/joined.h"

#include <gtest/gtest.h>

#include "lorry/compile/compile.h"
#include "lorry/compile/program.h"
#include "lorry/ops/internal.h"
#include "tests/compile/fused_devices.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

int joined_units(const compiler::Program& program) {
  return static_cast<int>(
      std::ranges::count(program.units(), compiler::Unit::joined, [](const auto& u) { return u.kind; }));
}

/// Expects the same bits of a function and of its program over other elements. Returns the number of joined units.
int expect_joined(const MakeArguments& make, const Function& f) {
  const Traced traced = run_traced(make, f, 1);
  const compiler::Program program(traced.graph);
  SCOPED_TRACE(trace::to_string(program.graph()) + program.explain());
  for (const uint64_t seed : {1, 2}) {
    const Outcome expected = run_plain(make, f, seed);
    Outcome got{.results = {}, .arguments = make(seed)};
    run_seeded(seed, got, [&](const Tensors& arguments) { return program.run(arguments); });
    expect_same(got, expected, "joined");
  }
  return joined_units(program);
}

struct LossCase {
  Dims sizes;
  Reduction reduction = Reduction::mean;
  double smoothing = 0;
  bool weights = false, ignores = false;
};

/// Logits that are computed, and their loss and gradient, as a training step makes them.
Function loss_and_gradient(const LossCase& c) {
  return [c](const Tensors& x) {
    const Tensor logits = (x[0] * 2).detach().requires_grad_();
    const Tensor loss =
        cross_entropy(logits, x[1], c.weights ? x[2] : Tensor(), c.ignores ? 1 : -100, c.reduction, c.smoothing);
    const Tensor scaled = c.reduction == Reduction::none ? loss.sum() : loss * 0.5;
    return Tensors{loss.detach(), autograd::grad({scaled}, {logits})[0]};
  };
}

TEST(JoinedOperators, cross_entropy_and_its_gradient) {
  const bool has = has_cross_entropy_with_gradient(default_device());
  const std::vector<LossCase> cases{
      {{5, 7}},
      {{300, 33}, Reduction::sum},
      {{70, 1000}, Reduction::none},
      {{64, 4096}, Reduction::mean, 0.1},
      {{37, 513}, Reduction::mean, 0.2, true, true},
      {{20, 50257}, Reduction::mean, 0, false, true},
      {{9, 64}, Reduction::sum, 0, true},
      {{4, 11, 6}},
      {{1, 1}},
  };
  for (const LossCase& c : cases)
    for (const DType dtype : {kF32, kBF16, kF16, kF64}) {
      SCOPED_TRACE(fmt::format("{} {} reduction {}", dtype, c.sizes, static_cast<int>(c.reduction)));
      const MakeArguments make = [&](uint64_t seed) {
        manual_seed(seed);
        Dims samples = c.sizes;
        samples.erase(1);
        return Tensors{randn(c.sizes).to(dtype), randint(0, c.sizes[1], samples), rand({c.sizes[1]}).to(dtype)};
      };
      EXPECT_EQ(expect_joined(make, loss_and_gradient(c)), has ? 1 : 0);
    }
}

TEST(JoinedOperators, write_the_gradient_over_logits_that_nobody_reads_again) {
  if (!default_device().is_cuda()) GTEST_SKIP() << "no such kernel on " << default_device();
  const MakeArguments make = [](uint64_t seed) {
    manual_seed(seed);
    return Tensors{randn({512, 4096}), randint(0, 4096, {512})};
  };
  const Function step = loss_and_gradient({{512, 4096}});
  const compiler::Program program(run_traced(make, step, 1).graph);
  const Tensors arguments = make(2);
  const auto peak_of = [&](const auto& run) {
    memory::reset_peak(default_device());
    const int64_t before = memory::stats(default_device()).allocated;
    const Tensors results = run();
    return memory::stats(default_device()).peak_allocated - before;
  };
  const int64_t logits = 512 * 4096 * 4;
  EXPECT_GE(peak_of([&] { return step(arguments); }), 2 * logits);
  EXPECT_LT(peak_of([&] { return program.run(arguments); }), 2 * logits);
  // a reader of the logits, and an argument, keep theirs
  EXPECT_EQ(expect_joined(make,
                          [&](const Tensors& x) {
                            const Tensor logits = (x[0] * 2).detach().requires_grad_();
                            const Tensor loss = cross_entropy(logits, x[1]);
                            return Tensors{autograd::grad({loss}, {logits})[0], logits.detach().cumsum(1)};
                          }),
            1);
  EXPECT_EQ(expect_joined(make,
                          [&](const Tensors& x) {
                            const Tensor logits = x[0].detach().requires_grad_();
                            return Tensors{autograd::grad({cross_entropy(logits, x[1])}, {logits})[0]};
                          }),
            1);
}

TEST(JoinedOperators, a_gradient_that_depends_on_the_loss_is_computed_after_it) {
  const MakeArguments make = [](uint64_t seed) {
    manual_seed(seed);
    return Tensors{randn({30, 40}), randint(0, 40, {30})};
  };
  EXPECT_EQ(expect_joined(make,
                          [](const Tensors& x) {
                            const Tensor logits = (x[0] * 2).detach().requires_grad_();
                            const Tensor loss = cross_entropy(logits, x[1]);
                            return Tensors{autograd::grad({loss.square()}, {logits})[0]};
                          }),
            0);
}

TEST(JoinedOperators, gradients_of_norms_and_of_the_connections_around_them) {
  const bool has = has_layer_norm_backward_with_addend(default_device(), false);
  for (const Dims& sizes : {Dims{6, 8}, Dims{3, 5, 768}, Dims{40, 100}, Dims{7, 33}, Dims{2, 3000}, Dims{130, 64}})
    for (const DType dtype : {kF32, kBF16, kF16, kF64})
      for (const bool rms : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}", dtype, sizes));
        const int64_t n = sizes[sizes.size() - 1];
        const MakeArguments make = [&](uint64_t seed) {
          manual_seed(seed);
          return Tensors{randn(sizes).to(dtype), randn({n}).to(dtype), randn({n}).to(dtype)};
        };
        const int joined = expect_joined(make, [&](const Tensors& arguments) {
          Tensors x;
          for (const Tensor& a : arguments) x.push_back((a + 0).detach().requires_grad_());
          const Tensor normal = rms ? rms_norm(x[0], {n}, x[1]) : layer_norm(x[0], {n}, x[1], x[2]);
          const Tensor loss = (normal.square() + x[0].cumsum(0)).sum();  // x[0] passes beside the norm
          return autograd::grad({loss}, rms ? Tensors{x[0], x[1]} : x);
        });
        if (dtype != kF64) {
          EXPECT_EQ(joined, has ? 1 : 0);
        }
      }
}

TEST(JoinedOperators, gradients_of_norms_give_sums_of_what_they_add_to) {
  const bool has = has_layer_norm_backward_with_addend(default_device(), true);
  for (const Dims& sizes : {Dims{6, 8}, Dims{3, 5, 768}, Dims{270, 96}, Dims{40, 104}, Dims{2, 3000}, Dims{3, 16384},
                            Dims{2, 20000}, Dims{9, 7}})
    for (const DType dtype : {kF32, kBF16, kF16, kF64})
      for (const bool keeps : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}", dtype, sizes));
        const int64_t n = sizes[sizes.size() - 1];
        const bool whole_runs = n * size_of(dtype) % 16 == 0;
        const MakeArguments make = [&](uint64_t seed) {
          manual_seed(seed);
          return Tensors{randn(sizes).to(dtype), randn({n}).to(dtype), randn({n}).to(dtype)};
        };
        const Function f = [&](const Tensors& arguments) {
          Tensors x;
          for (const Tensor& a : arguments) x.push_back((a + 0).detach().requires_grad_());
          const Tensor loss = (layer_norm(x[0], {n}, x[1], x[2]).square() + x[0].cumsum(0)).sum();
          Tensors results = autograd::grad({loss}, x);
          Dims rows;
          for (int64_t d = 0; d + 1 < x[0].dim(); ++d) rows.push_back(d);
          results.push_back(results[0].sum(rows, keeps));
          return results;
        };
        const compiler::Program program(run_traced(make, f, 1).graph, {.epilogues = compiler::Epilogues::fast});
        program.wait();
        SCOPED_TRACE(program.explain());
        const auto joined = std::ranges::count_if(program.units(), [](const compiler::Unit& u) {
          return u.kind == compiler::Unit::joined && u.nodes.size() == 3;
        });
        if (dtype != kF64) {
          EXPECT_EQ(joined, has && whole_runs && size_of(dtype) == 2 ? 1 : 0);
        }
        const Tensors got = program.run(make(2)), want = f(make(2));
        for (size_t i = 0; i + 1 < want.size(); ++i) EXPECT_EQ(bits_of(got[i]), bits_of(want[i])) << i;
        const Tensor exact = got[0].cpu().to(kF64).reshape({-1, n}).sum({0}), sum = got.back().cpu().to(kF64);
        EXPECT_EQ(got.back().sizes(), want.back().sizes());
        const double ulp = dtype == kBF16 ? 0x1p-8 : dtype == kF16 ? 0x1p-11 : dtype == kF32 ? 0x1p-23 : 0x1p-52;
        const Tensor magnitude = got[0].cpu().to(kF64).reshape({-1, n}).abs().sum({0});
        const Tensor allowed = exact.abs() * ulp + magnitude * (dtype == kF64 ? 0x1p-48 : 0x1p-21) + 1e-7;
        EXPECT_TRUE(((sum.reshape({-1}) - exact).abs() <= allowed).all().item<bool>());
      }
}

TEST(JoinedOperators, gradients_of_a_table_that_is_read_twice) {
  for (const int64_t width : {1, 5, 16, 40, 200})
    for (const DType dtype : {kF32, kBF16, kF16}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, width));
      const int64_t rows = 23;
      const MakeArguments make = [&](uint64_t seed) {
        manual_seed(seed);
        return Tensors{randint(0, rows / 2, {3, 50}), randn({rows, width}).to(dtype), randn({3, 50, rows}).to(dtype)};
      };
      const auto f = [&](std::optional<int64_t> padding) {
        return [=](const Tensors& x) {
          const Tensor table = (x[1] + 0).detach().requires_grad_();
          const Tensor loss = (linear(embedding(x[0], table, padding) * 2, table) * x[2]).sum();
          return autograd::grad({loss}, {table});
        };
      };
      const auto joined = [&](const Function& function) {
        const compiler::Program program(run_traced(make, function, 1).graph, {.epilogues = compiler::Epilogues::fast});
        program.wait();
        SCOPED_TRACE(program.explain());
        for (const uint64_t seed : {1, 2})
          EXPECT_EQ(bits_of(program.run(make(seed))[0]), bits_of(function(make(seed))[0]));
        return joined_units(program);
      };
      const bool has = has_embedding_backward_onto(dtype, default_device(), 150);
      EXPECT_EQ(joined(f({})), has ? 1 : 0);
      EXPECT_EQ(joined(f(2)), 0);
    }
}

TEST(MaxAutotune, times_the_ways_and_goes_on_with_one) {
  LORRY_NEEDS_FUSED_KERNELS();
  const auto f = [](const Tensor& x, const Tensor& w) { return softmax(gelu(x.matmul(w) * 2 + 1, "tanh") - x, -1); };
  const auto tuned = compile(f, {.epilogues = false, .max_autotune = true});
  for (int call = 0; call < 14; ++call) {
    const Tensor x = randn({64, 64}), w = randn({64, 64});
    EXPECT_EQ(bits_of(tuned(x, w)), bits_of(f(x, w))) << call;
  }
  EXPECT_NE(tuned.explain().find("the fastest of 2 ways"), std::string::npos) << tuned.explain();
  EXPECT_EQ(tuned.stats().hits, 13);
}

TEST(MaxAutotune, trains_with_the_same_bits) {
  LORRY_NEEDS_FUSED_KERNELS();
  std::vector<std::string> bits[2];
  for (const bool tuned : {false, true}) {
    manual_seed(1);
    const Tensor w = randn({24, 24}).requires_grad_();
    const auto f = [&](const Tensor& x) { return (x.matmul(w).tanh() * 2 + x).square().mean(); };
    const auto compiled = compile(f, {.epilogues = false, .max_autotune = true});
    for (int call = 0; call < 14; ++call) {
      const Tensor x = randn({8, 24}), loss = tuned ? compiled(x) : f(x);
      loss.backward();
      bits[tuned].push_back(bits_of(loss) + bits_of(w.grad()));
      w.set_grad({});
    }
  }
  EXPECT_EQ(bits[1], bits[0]);
}

TEST(Tuner, takes_turns_and_keeps_the_fastest) {
  compiler::Tuner tuner(3);
  EXPECT_EQ(tuner.best(), 0u);
  int runs = 0;
  while (const auto way = tuner.begin()) {
    EXPECT_FALSE(tuner.begin()) << "one at a time";
    if (++runs == 5) {
      tuner.end({});  // the run threw: it is tried again
      continue;
    }
    tuner.end(runs <= 3 ? 9.0 : *way == 1 ? 1.0 : 2.0);
  }
  EXPECT_EQ(runs, 13);
  EXPECT_EQ(tuner.best(), 1u);
  EXPECT_TRUE(compiler::Tuner(1).done());
}

struct RowsCase {
  int64_t rows, depth, columns;
  int norm = 0;  ///< 1: layer_norm, 2: without a bias, 3: rms_norm, 4: without a weight
  bool bias = true;
};

/// A norm, a product of rows, and one operator after it: none, GELU, an addition or one from the other side.
Function product_of_rows(const RowsCase& c, int after) {
  return [c, after](const Tensors& x) {
    const BatchInvariant by_rows;
    const NoGrad quiet;
    const Dims row = {c.depth};
    const Tensor from = x[0] * 2;
    const Tensor normal = c.norm == 0   ? from
                          : c.norm == 1 ? layer_norm(from, row, x[3], x[4])
                          : c.norm == 2 ? layer_norm(from, row, x[3])
                          : c.norm == 3 ? rms_norm(from, row, x[3])
                                        : layer_norm(from, row);
    const Tensor product = linear(normal, x[1], c.bias ? x[2] : Tensor());
    const Tensor other = x[5] * 3;
    return Tensors{after == 0   ? product
                   : after == 1 ? gelu(product, "tanh")
                   : after == 2 ? product + other
                                : other + product};
  };
}

TEST(JoinedOperators, products_of_rows_with_their_neighbours) {
  std::vector<RowsCase> cases{{5, 128, 48, 1},  {9, 384, 64, 2, false}, {7, 8, 1, 4},           {8, 512, 24, 3},
                              {3, 1000, 33, 1}, {3, 7, 5, 1},           {2, 2000, 64, 1, false}};
  if (linear_rows_limits(kBF16, default_device())) {  // sizes at which the kernel works otherwise
    const RowsCase large[] = {{1, 768, 2304, 1}, {1, 3072, 768}, {8, 1024, 50, 3}, {64, 768, 768, 1},
                              {64, 4096, 96},    {4, 2304, 40},  {8, 1536, 40},    {4, 20000, 24}};
    cases.insert(cases.end(), std::begin(large), std::end(large));
  }
  for (const DType dtype : {kF16, kBF16, kF32})
    for (const RowsCase& c : cases)
      for (int after = 0; after < 4; ++after) {
        if (after == 0 && c.norm == 0) continue;
        SCOPED_TRACE(fmt::format("{} [{}, {}] by {}, norm {}, after {}", name(dtype), c.rows, c.depth, c.columns,
                                 c.norm, after));
        const MakeArguments make = [&](uint64_t seed) {
          manual_seed(seed);
          const auto random = [&](const Dims& sizes) { return randn(sizes).to(dtype); };
          return Tensors{random({c.rows, c.depth}), random({c.columns, c.depth}),
                         random({c.columns}),       random({c.depth}),
                         random({c.depth}),         random({c.rows, c.columns})};
        };
        const auto limits = linear_rows_limits(dtype, default_device());
        const bool is_few = limits && c.rows <= limits->few_rows,
                   has_norm =
                       is_few && c.norm > 0 && c.depth <= limits->longest_norm && c.depth % limits->norm_run == 0,
                   has_operator = after == 1 ? limits.has_value() : after > 1 && is_few;
        EXPECT_EQ(expect_joined(make, product_of_rows(c, after)), has_norm || has_operator ? 1 : 0);
      }
}

TEST(JoinedOperators, products_of_rows_whose_keys_and_values_a_cache_stores) {
  for (const DType dtype : {kBF16, kF16, kF32})
    for (const int64_t rows : {1, 5, 8, 9})
      for (const bool norm : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} rows, norm {}", name(dtype), rows, norm));
        constexpr int64_t kHeads = 3, kDepth = 16, kWidth = kHeads * kDepth;
        const MakeArguments make = [&](uint64_t seed) {
          manual_seed(seed);
          const auto random = [&](const Dims& sizes) { return randn(sizes).to(dtype); };
          const Tensor slots = arange(rows).to(kI32);
          if (rows > 1) slots.narrow(0, 1, 1).fill_(-1);  // a row of padding
          // The caches differ in strides.
          return Tensors{random({rows, kWidth}),
                         random({3 * kWidth, kWidth}),
                         random({3 * kWidth}),
                         random({2 * rows, 4, kHeads, kDepth}),
                         random({2 * rows, kHeads, 4, kDepth}).transpose(1, 2),
                         randperm(2 * rows).to(kI32).view({rows, 2}),
                         slots,
                         randint(0, 8, {rows}).to(kI32)};
        };
        const Function f = [&](const Tensors& x) {
          const BatchInvariant by_rows;
          const NoGrad quiet;
          const Tensor from = norm ? layer_norm(x[0], {kWidth}) : x[0];
          const Tensor parts = linear(from, x[1], x[2]).view({rows, 3, kHeads, kDepth});
          paged_write(x[3], x[4], parts.select(1, 1), parts.select(1, 2), x[5], x[6], x[7]);
          const Tensor k = x[3].clone();  // read after the write
          return Tensors{paged_attention(parts.select(1, 0), x[3], x[4].contiguous(), x[5], x[6], x[7]), k};
        };
        const auto limits = linear_rows_limits(dtype, default_device());
        EXPECT_EQ(expect_joined(make, f), limits && rows <= limits->few_rows ? 1 : 0);
      }
}

TEST(JoinedOperators, products_of_rows_leave_caches_alone_that_they_read_or_store_otherwise) {
  constexpr int64_t kRows = 2, kHeads = 2, kDepth = 8, kWidth = kHeads * kDepth;
  const bool has = linear_rows_limits(kBF16, default_device()).has_value();
  const MakeArguments make = [&](uint64_t seed) {
    manual_seed(seed);
    return Tensors{randn({kRows, kWidth}).to(kBF16),
                   randn({3 * kWidth, kWidth}).to(kBF16),
                   randn({4, 4, kHeads, kDepth}).to(kBF16),
                   randn({4, 4, kHeads, kDepth}).to(kBF16),
                   arange(4).to(kI32).view({kRows, 2}),
                   arange(kRows).to(kI32),
                   tensor({3, 6}).to(kI32)};
  };
  const auto in_mode = [](const auto& f) {
    return Function([f](const Tensors& x) {
      const BatchInvariant by_rows;
      const NoGrad quiet;
      return f(x);
    });
  };
  const auto parts_of = [&](const Tensor& x, const Tensor& w) { return linear(x, w).view({kRows, 3, kHeads, kDepth}); };
  // Rows that lie in the cache are read before it is written.
  EXPECT_EQ(expect_joined(make, in_mode([&](const Tensors& x) {
                            const Tensor from = x[2].narrow(0, 0, kRows).select(1, 3).view({kRows, kWidth});
                            const Tensor parts = parts_of(from, x[1]);
                            paged_write(x[2], x[3], parts.select(1, 1), parts.select(1, 2), x[4], x[5], x[6]);
                            return Tensors{parts.select(1, 0).clone()};
                          })),
            has ? 1 : 0);
  // The same columns as keys and as values, and columns that overlap.
  for (const int64_t second : {1, 0})
    EXPECT_EQ(expect_joined(make, in_mode([&, second](const Tensors& x) {
                              const Tensor product = linear(x[0], x[1]);
                              const auto heads = [&](int64_t column) {
                                return product.narrow(1, column, kWidth).view({kRows, kHeads, kDepth});
                              };
                              paged_write(x[2], x[3], heads(kWidth), heads(kWidth + second * 3), x[4], x[5], x[6]);
                              return Tensors{product};
                            })),
              0);
  // Positions and another result that one unit computes, of which the write needs one and the product makes the other.
  EXPECT_LE(expect_joined(make, in_mode([&](const Tensors& x) {
                            const Tensor parts = parts_of(x[0], x[1]);
                            const Tensor positions = x[6] + 1, queries = parts.select(1, 0) * 2;
                            paged_write(x[2], x[3], parts.select(1, 1), parts.select(1, 2), x[4], x[5], positions);
                            return Tensors{queries, positions};
                          })),
            has ? 1 : 0);
}

TEST(JoinedOperators, a_cache_that_does_not_have_a_row_is_reported_as_by_its_operator) {
  if (!linear_rows_limits(kBF16, default_device())) GTEST_SKIP() << "no such kernel on " << default_device();
  const BatchInvariant by_rows;
  const NoGrad quiet;
  const Tensor cache = zeros({2, 4, 1, 8}, {kBF16}), table = zeros({1, 2}, {kI32});
  const Tensor x = ones({1, 8}, {kBF16}), w = ones({24, 8}, {kBF16});
  for (const auto& [slot, position, block] : {std::array{1, 0, 0}, {0, 8, 0}, {0, 4, 2}}) {
    LinearRowsWith with;
    table.fill_(block);
    with.cache = {cache, cache.clone(), table, full({1}, slot, {kI32}), full({1}, position, {kI32}), 8, 16};
    linear_rows_with(x, w, {}, with);
    std::string error;
    try {
      device::synchronize(default_device());
    } catch (const IndexError& e) {
      error = e.what();
    }
    EXPECT_NE(error.find("paged_write: index out of range"), std::string::npos) << error;
    EXPECT_EQ(cache.abs().sum().item<double>(), 0);
  }
}

TEST(JoinedOperators, products_of_rows_leave_alone_what_others_read) {
  const bool has = linear_rows_limits(kBF16, default_device()).has_value();
  const auto make = [](uint64_t seed) {
    manual_seed(seed);
    return Tensors{randn({4, 64}).to(kBF16), randn({32, 64}).to(kBF16), randn({4, 32}).to(kBF16)};
  };
  const auto in_mode = [](const auto& f) {
    return Function([f](const Tensors& x) {
      const BatchInvariant by_rows;
      const NoGrad quiet;
      return f(x);
    });
  };
  // A norm that two products read, a product that is a result, and one that is added to itself.
  EXPECT_EQ(expect_joined(make, in_mode([](const Tensors& x) {
                            const Tensor normal = layer_norm(x[0], {64});
                            return Tensors{linear(normal, x[1]), linear(normal, x[1]) + x[2]};
                          })),
            has ? 1 : 0);
  EXPECT_EQ(expect_joined(make, in_mode([](const Tensors& x) {
                            const Tensor product = linear(x[0], x[1]);
                            return Tensors{product, gelu(product, "tanh")};
                          })),
            0);
  EXPECT_EQ(expect_joined(make, in_mode([](const Tensors& x) {
                            const Tensor product = linear(x[0], x[1]);
                            return Tensors{product + product};
                          })),
            0);
  // Broadcast, and of another dtype.
  EXPECT_EQ(
      expect_joined(make, in_mode([](const Tensors& x) { return Tensors{linear(x[0], x[1]) + x[2].narrow(0, 0, 1)}; })),
      0);
  EXPECT_EQ(expect_joined(make, in_mode([](const Tensors& x) { return Tensors{linear(x[0], x[1]) + x[2].to(kF32)}; })),
            0);
}

}  // namespace
}  // namespace lorry::test
