// What observers are told of the launches of operators, and that nothing is left out.

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lorry/device/launches.h"
#include "lorry/formula/philox.h"
#include "lorry/kernels/backend.h"
#include "lorry/memory/upload.h"
#include "lorry/ops/array.h"
#include "lorry/ops/ops.h"
#include "tests/support/on_cuda.h"

namespace lorry {
namespace {

using device::Launch;
using test::kGPU;

/// Copies what it is told.
struct Recorder final : device::LaunchObserver {
  struct Entry {
    Launch launch;
    std::string operator_name, function;
    std::vector<device::LaunchAddress> addresses;
    std::vector<std::vector<char>> parameters;
  };
  void launched(const Launch& launch) noexcept override {
    Entry& entry = entries.emplace_back();
    entry.launch = launch;
    entry.operator_name = launch.operator_name == nullptr ? "" : launch.operator_name;
    entry.function = launch.function;
    entry.addresses.assign(launch.addresses.begin(), launch.addresses.end());
    for (const device::LaunchParameter& p : launch.parameters) {
      const char* const bytes = static_cast<const char*>(p.value);
      entry.parameters.emplace_back(bytes, bytes + p.bytes);
    }
  }
  std::vector<Entry> of(Launch::Kind kind) const {
    std::vector<Entry> some;
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(some),
                 [kind](const Entry& e) { return e.launch.kind == kind; });
    return some;
  }
  std::vector<Entry> entries;
};

bool inside(const void* address, const Tensor& x) {
  const auto* const begin = static_cast<const char*>(x.data_ptr());
  return address >= begin && address < begin + x.numel() * static_cast<int64_t>(size_of(x.dtype()));
}

bool says(const Recorder::Entry& entry, const void* address) {
  return std::any_of(entry.addresses.begin(), entry.addresses.end(),
                     [address](const auto& a) { return a.address == address; });
}

struct Case {
  const char* name;  ///< the operator's
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)> run;
};

/// x and y: [96, 64] f32; index: [5] i64 below 64.
const Case kCases[] = {
    {"add", [](const Tensor& x, const Tensor& y, const Tensor&) { return x.add(y); }},
    {"mul", [](const Tensor& x, const Tensor& y, const Tensor&) { return x.t().mul(y.t()); }},
    {"mul", [](const Tensor& x, const Tensor& y, const Tensor&) { return x.narrow(1, 3, 9).mul(y.narrow(1, 4, 9)); }},
    {"where", [](const Tensor& x, const Tensor& y, const Tensor&) { return where(x.gt(0), x, y); }},
    {"clone", [](const Tensor& x, const Tensor&, const Tensor&) { return x.t().clone(); }},
    {"sum", [](const Tensor& x, const Tensor&, const Tensor&) { return x.sum(); }},
    {"sum", [](const Tensor& x, const Tensor&, const Tensor&) { return x.sum({0}); }},
    {"var", [](const Tensor& x, const Tensor&, const Tensor&) { return x.var({1}); }},
    {"cumsum", [](const Tensor& x, const Tensor&, const Tensor&) { return x.cumsum(1); }},
    {"softmax", [](const Tensor& x, const Tensor&, const Tensor&) { return softmax(x, 1); }},
    {"index_select", [](const Tensor& x, const Tensor&, const Tensor& i) { return index_select(x, 0, i); }},
    {"index_add",
     [](const Tensor& x, const Tensor& y, const Tensor& i) { return index_add(x, 0, i, y.narrow(0, 0, 5)); }},
    {"scatter_add",
     [](const Tensor& x, const Tensor& y, const Tensor& i) {
       return scatter_add(x, 1, i.view({1, 5}), y);
     }},
    {"cat",
     [](const Tensor& x, const Tensor& y, const Tensor&) {
       return cat({x, y, x}, 1);
     }},
    {"matmul", [](const Tensor& x, const Tensor& y, const Tensor&) { return matmul(x, y.t()); }},
    {"sort", [](const Tensor& x, const Tensor&, const Tensor&) { return std::get<0>(x.sort(1)); }},
    {"argsort", [](const Tensor& x, const Tensor&, const Tensor&) { return x.flatten().argsort(0); }},
    {"nonzero", [](const Tensor& x, const Tensor&, const Tensor&) { return nonzero(x); }},
    {"nonzero_static", [](const Tensor& x, const Tensor&, const Tensor&) { return nonzero_static(x, 7'000); }},
    {"dropout", [](const Tensor& x, const Tensor&, const Tensor&) { return dropout(x, 0.5); }},
    {"rand_like", [](const Tensor& x, const Tensor&, const Tensor&) { return rand_like(x); }},
    {"bernoulli", [](const Tensor& x, const Tensor&, const Tensor&) { return x.sigmoid().bernoulli(); }},
    {"randperm", [](const Tensor&, const Tensor&, const Tensor&) { return randperm(100'000, kGPU); }},
    {"tril", [](const Tensor& x, const Tensor&, const Tensor&) { return tril(x); }},
    {"arange", [](const Tensor&, const Tensor&, const Tensor&) {
       return arange(1'000, {kF32, kGPU});
     }}};

/// The kernels' parameters hold the tensors' addresses where the descriptions say so, and nowhere else.
TEST(CudaLaunches, addresses_of_tensors_are_where_the_descriptions_say) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor x = arange(96 * 64, {kF32, kCPU}).mul(0.7311).sin().view({96, 64}).to(kGPU), y = x.neg(),
               index = tensor({3, 1, 4, 1, 5}, {.dtype = kI64, .device = kGPU});
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    c.run(x, y, index);  // what is made once
    Recorder recorder;
    Tensor result;
    {
      const device::ObserveLaunches scope(recorder);
      result = c.run(x, y, index);
    }
    ASSERT_FALSE(recorder.entries.empty());
    EXPECT_TRUE(std::any_of(recorder.entries.begin(), recorder.entries.end(),
                            [&](const auto& entry) { return entry.operator_name == c.name; }));
    int told = 0;
    for (const Recorder::Entry& entry : recorder.entries) {
      EXPECT_NE(entry.operator_name, "") << entry.function;
      for (const device::LaunchAddress& a : entry.addresses) {
        told += inside(a.address, result);
        if (a.parameter < 0) continue;
        const void* held = nullptr;
        const std::vector<char>& parameter = entry.parameters.at(static_cast<size_t>(a.parameter));
        ASSERT_LE(a.offset + sizeof(void*), parameter.size()) << entry.function;
        std::memcpy(&held, parameter.data() + a.offset, sizeof(void*));
        EXPECT_EQ(held, a.address) << entry.function;
      }
      for (const std::vector<char>& parameter : entry.parameters)
        for (size_t at = 0; at + sizeof(void*) <= parameter.size(); at += sizeof(void*)) {
          const void* held = nullptr;
          std::memcpy(&held, parameter.data() + at, sizeof(void*));
          for (const Tensor* t : {&x, &y, &index, const_cast<const Tensor*>(&result)})
            EXPECT_TRUE(!inside(held, *t) || says(entry, held)) << entry.function << " at byte " << at;
        }
    }
    EXPECT_GT(told, 0) << "no launch was said to write the result";
  }
}

TEST(CudaLaunches, an_addition_is_one_kernel_with_three_addresses) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor x = ones({64}, {.device = kGPU}), y = ones({64}, {.device = kGPU}), out = empty_like(x);
  add_out(out, x, y);
  Recorder recorder;
  {
    const device::ObserveLaunches scope(recorder);
    add_out(out, x, y);
  }
  ASSERT_EQ(recorder.entries.size(), 1u);
  const Recorder::Entry& entry = recorder.entries[0];
  EXPECT_EQ(entry.launch.kind, Launch::Kind::kernel);
  EXPECT_EQ(entry.operator_name, "add");
  EXPECT_NE(entry.function.find("contiguous"), std::string::npos) << entry.function;
  EXPECT_EQ(entry.launch.stream, current_stream(kGPU));
  EXPECT_EQ(entry.launch.grid[0], 1u);
  EXPECT_GT(entry.launch.block[0], 0u);
  ASSERT_EQ(entry.addresses.size(), 3u);
  EXPECT_EQ(entry.addresses[0].address, out.data_ptr());
  EXPECT_EQ(entry.addresses[1].address, x.data_ptr());
  EXPECT_EQ(entry.addresses[2].address, y.data_ptr());
}

TEST(CudaLaunches, products_copies_and_fills_are_told_with_what_they_were_given) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor a = ones({64, 32}, {.device = kGPU}), b = ones({32, 16}, {.device = kGPU});
  matmul(a, b);
  const std::vector<char> host(1'000);
  const Tensor to = empty({1'000}, {.dtype = kU8, .device = kGPU});
  Recorder recorder;
  Tensor product;
  {
    const device::ObserveLaunches scope(recorder);
    product = matmul(a, b);
    memory::upload(to.data_ptr(), kGPU, host.data(), 1'000, current_stream(kGPU));
  }
  const auto library = recorder.of(Launch::Kind::library);
  ASSERT_EQ(library.size(), 1u);
  EXPECT_EQ(library[0].function, "cublasLtMatmul");
  EXPECT_EQ(library[0].operator_name, "matmul");
  for (const Tensor* x : {&a, &b, const_cast<const Tensor*>(&product)}) EXPECT_TRUE(says(library[0], x->data_ptr()));
  const auto copies = recorder.of(Launch::Kind::copy);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].launch.bytes, 1'000);
  ASSERT_EQ(copies[0].addresses.size(), 2u);
  EXPECT_EQ(copies[0].addresses[0].address, to.data_ptr());
}

/// A draw whose seed and offset lie on the device has the bits of the same draw by value.
TEST(CudaLaunches, a_key_may_be_read_from_the_device) {
  LORRY_SKIP_WITHOUT_CUDA();
  constexpr int64_t kSeed = 0x123456789abcdef, kOffset = 41, kMore = 7;
  const Tensor state = tensor({kSeed, kOffset}, {.dtype = kI64, .device = kGPU});
  const formula::RandomKey by_value{kSeed, kOffset + kMore},
      by_state{0, kMore, static_cast<const formula::RandomState*>(state.data_ptr())};
  const kernels::RandomKernels& random = *kernels::backend(kGPU).random;
  const Stream stream = current_stream(kGPU);
  for (const DType dtype : {kF32, kF64, kBF16}) {
    const auto same = [&](const char* what, const auto& draw) {
      const Tensor want = empty({100'003}, {dtype, kGPU}), got = empty({100'003}, {dtype, kGPU});
      draw(want, by_value), draw(got, by_state);
      EXPECT_TRUE(want.eq(got).all().template item<bool>()) << what << " " << name(dtype);
      EXPECT_FALSE(want.eq(want.flip({0})).all().template item<bool>()) << what;
    };
    same("uniform", [&](const Tensor& out, const auto& key) { random.uniform(array(out), key, 0, 1, stream); });
    same("normal", [&](const Tensor& out, const auto& key) { random.normal(array(out), key, 0, 1, stream); });
    same("bernoulli", [&](const Tensor& out, const auto& key) { random.bernoulli(array(out), key, 0.3, stream); });
    same("dropout", [&](const Tensor& out, const auto& key) {
      const Tensor x = arange(out.numel(), {kF32, kGPU}).to(dtype), mask = empty(out.sizes(), {kBool, kGPU});
      random.dropout(array(out), array(mask), array(x), key, 0.5, 2, stream);
    });
  }
  const Tensor want = empty({100'003}, {kI64, kGPU}), got = empty({100'003}, {kI64, kGPU});
  random.permutation(array(want), by_value, stream), random.permutation(array(got), by_state, stream);
  EXPECT_TRUE(want.eq(got).all().item<bool>());
}

}  // namespace
}  // namespace lorry
