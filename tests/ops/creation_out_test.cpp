// The out forms of factories: what the factory makes, in the given tensor's dtype and memory.

#include <gtest/gtest.h>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"

namespace lorry::test {
namespace {

struct Factory {
  const char* name;
  std::function<Tensor(const Options&)> make;
  std::function<const Tensor&(const Tensor&)> write;
  DType dtype = kF32;
};

Generator& fresh() {
  static Generator generator;
  generator.manual_seed(9);
  return generator;
}

std::vector<Factory> factories() {
  const Tensor chance = full({3, 4}, 0.5), mean = ones({3, 1}), deviation = full({4}, 2.0);
  return {{"zeros", [](auto& o) { return zeros({3, 4}, o); }, [](auto& out) -> auto& {return zeros_out(out, {3, 4});
}
}  // namespace
, {"ones", [](auto& o) { return ones({3, 4}, o); }, [](auto& out) -> auto& {return ones_out(out, {3, 4});
}  // namespace lorry::test
, kI32
}
, {"full", [](auto& o) { return full({3, 4}, 2.5, o); }, [](auto& out) -> auto& {return full_out(out, {3, 4}, 2.5);
}
, kF64
}
, {"eye", [](auto& o) { return eye(3, 4, o); }, [](auto& out) -> auto& {return eye_out(out, 3, 4);
}
}
, {"square eye", [](auto& o) { return eye(4, o); }, [](auto& out) -> auto& {return eye_out(out, 4);
}
, kI64
}
, {"arange", [](auto& o) { return arange(1, 6, 2, o); }, [](auto& out) -> auto& {return arange_out(out, 1, 6, 2);
}
, kI64
}
, {"linspace", [](auto& o) { return linspace(0, 1, 5, o); }, [](auto& out) -> auto& {return linspace_out(out, 0, 1, 5);
}
}
, {"logspace", [](auto& o) { return logspace(0, 2, 5, 2, o); },
   [](auto& out) -> auto& {return logspace_out(out, 0, 2, 5, 2);
}
}
, {"rand",
   [](auto& o) {
     return rand({3, 4}, o, &fresh());
   },
   [](auto& out) -> auto& {return rand_out(out, {3, 4}, &fresh());
}
}
, {"randn",
   [](auto& o) {
     return randn({3, 4}, o, &fresh());
   },
   [](auto& out) -> auto& {return randn_out(out, {3, 4}, &fresh());
}
, kF64
}
, {"randint",
   [](auto& o) {
     return randint(2, 9, {3, 4}, o, &fresh());
   },
   [](auto& out) -> auto& {return randint_out(out, 2, 9, {3, 4}, &fresh());
}
, kI32
}
, {"randint from 0",
   [](auto& o) {
     return randint(9, {3, 4}, o, &fresh());
   },
   [](auto& out) -> auto& {return randint_out(out, 9, {3, 4}, &fresh());
}
}
, {"randperm", [](auto& o) { return randperm(7, o.device, &fresh()); },
   [](auto& out) -> auto& {return randperm_out(out, 7, &fresh());
}
, kI64
}
, {"normal",
   [](auto& o) {
     return normal(1, 2, {3, 4}, o, &fresh());
   },
   [](auto& out) -> auto& {return normal_out(out, 1, 2, {3, 4}, &fresh());
}
}
, {"normal of tensors", [=](auto&) { return normal(mean, deviation, &fresh()); },
   [=](auto& out) -> auto& {return normal_out(out, mean, deviation, &fresh());
}
}
, {"normal of a mean", [=](auto&) { return normal(mean, 2.0, &fresh()); },
   [=](auto& out) -> auto& {return normal_out(out, mean, 2.0, &fresh());
}
}
, {"normal of a std", [=](auto&) { return normal(1.0, deviation, &fresh()); },
   [=](auto& out) -> auto& {return normal_out(out, 1.0, deviation, &fresh());
}
}
, {"bernoulli", [=](auto&) { return bernoulli(chance, &fresh()); },
   [=](auto& out) -> auto& {return bernoulli_out(out, chance, &fresh());
}
}
, {"multinomial", [=](auto&) { return multinomial(chance, 2, false, &fresh()); },
   [=](auto& out) -> auto& {return multinomial_out(out, chance, 2, false, &fresh());
}
, kI64
}
,
}
;
}

TEST(CreationOut, writes_what_the_factory_makes_into_any_layout) {
  for (const Factory& f : factories()) {
    SCOPED_TRACE(f.name);
    const Tensor want = f.make({.dtype = f.dtype});
    for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::sliced}) {
      const Tensor out = allocate(want.sizes(), f.dtype, memory);
      const void* const address = out.data_ptr();
      EXPECT_TRUE(f.write(out).is_same(out));
      EXPECT_EQ(out.data_ptr(), address);
      EXPECT_TRUE(same_bits(out, want));
    }
  }
}

TEST(CreationOut, refuses_other_sizes_undefined_tensors_and_leaves_that_are_recorded) {
  for (const Factory& f : factories()) {
    SCOPED_TRACE(f.name);
    EXPECT_THROW(f.write(Tensor()), Error);
    EXPECT_THROW(f.write(empty({3, 4, 5}, {f.dtype})), ShapeError);
    if (!is_floating(f.dtype)) continue;
    const Tensor leaf = allocate(f.make({.dtype = f.dtype}).sizes(), f.dtype, Memory::contiguous).requires_grad_();
    EXPECT_THROW(f.write(leaf), GradError);
    const NoGrad quiet;
    EXPECT_NO_THROW(f.write(leaf));
  }
  EXPECT_THROW(rand_out(empty({3}, {kI64}), {3}), DTypeError);
}

TEST(CreationOut, of_empty_checks_and_writes_nothing) {
  const Tensor out = tensor({1, 2, 3});
  EXPECT_TRUE(empty_out(out, {3}).is_same(out));
  EXPECT_EQ(elements(out), (std::vector<double>{1, 2, 3}));
  EXPECT_THROW(empty_out(out, {4}), ShapeError);
  EXPECT_THROW(empty_out(Tensor(), {4}), Error);
}

TEST(Logspace, raises_the_base_to_evenly_spaced_powers) {
  EXPECT_TRUE(near(logspace(0, 2, 3), {1, 10, 100}, 1e-6));
  EXPECT_EQ(elements(logspace(0, 2, 3, 2, {.dtype = kI64})), (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(logspace(0, 1, 0).numel(), 0);
  EXPECT_THROW(logspace(0, 1, -1), ValueError);
}

}  // namespace
}  // namespace lorry::test
