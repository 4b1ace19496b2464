// Steps, norms and clipping of lists give the same bits on the CPU and on CUDA.

#include <cmath>
#include <random>

#include "lorry/kernels/backend.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/sgd.h"
#include "tests/support/on_cuda.h"

namespace lorry::optim {
namespace {

using test::Copied;
using test::kGPU;

const kernels::OptimKernels& kernels_on(Device device) { return *kernels::backend(device, "test").optim; }

/// Sizes around runs and tiles, empties among them, and then more tensors than one launch takes.
std::vector<int64_t> sizes() {
  std::vector<int64_t> list = {0, 1, 3, 7, 8, 15, 17, 1023, 1025, 0, 8191, 8192, 8193, 8197, 40'001, 1'000'003};
  for (int i = 0; i < 1200; ++i) list.push_back(i % 37);
  return list;
}

template <class T>
std::vector<T> normals(int64_t n, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(T(static_cast<float>(normal(random) * std::pow(10.0, static_cast<int>(random() % 9) - 4))));
  return values;
}

/// Parameters with gradients and states on a device, four of five with masters if asked for. Tensors of one alignment, of another, and
/// of several take turns.
template <class T>
struct Model {
  using State = Accumulate<T>;
  Model(Device device, size_t count, int states, bool masters) {
    std::mt19937_64 random(5);
    const auto all = sizes();
    for (size_t t = 0; t < std::min(count, all.size()); ++t) {
      const int64_t n = all[t], shift = t % 3 == 0 ? 0 : 1 + static_cast<int64_t>(t % 4), other = t % 3 == 2 ? 0 : shift;
      params.emplace_back(device, normals<T>(n, random), shift);
      grads.emplace_back(device, normals<T>(n, random), other);
      kernels::OptimTensor x{params.back().data(), grads.back().data(), {}, n};
      for (int k = 0; k < states; ++k) {
        this->states.emplace_back(device, std::vector<State>(static_cast<size_t>(n)), shift);
        x.states[k] = this->states.back().data();
      }
      if (masters && t % 5 != 0) {
        std::vector<State> values;
        for (const T& p : params.back().read()) values.push_back(static_cast<State>(p));
        this->states.emplace_back(device, values, t % 7 == 0 ? 0 : shift);
        x.master = this->states.back().data();
      }
      tensors.push_back(x);
    }
  }
  std::vector<Copied<T>> params, grads;
  std::vector<Copied<State>> states;
  std::vector<kernels::OptimTensor> tensors;
};

/// Five steps on both devices; `hyper(t, progress)` gives what tensor t steps with.
template <class T, class Progress, class HyperOf, class Step>
void expect_same_steps(size_t count, int states, const HyperOf& hyper, const Step& step, bool masters = false, double factor = 1) {
  Model<T> cpu(kCPU, count, states, masters), gpu(kGPU, count, states, masters);
  const Copied<double> cpu_factor(kCPU, {factor}), gpu_factor(kGPU, {factor});
  std::vector<Progress> progress(cpu.tensors.size());
  for (int i = 0; i < 5; ++i) {
    std::vector<decltype(hyper(size_t{0}, progress[0]))> hypers;
    for (size_t t = 0; t < progress.size(); ++t) hypers.push_back(hyper(t, progress[t]));
    step(kernels_on(kCPU), cpu.tensors, hypers, cpu_factor.data(), current_stream(kCPU));
    step(kernels_on(kGPU), gpu.tensors, hypers, gpu_factor.data(), current_stream(kGPU));
  }
  for (size_t t = 0; t < cpu.params.size(); ++t)
    ASSERT_TRUE(test::same_bits(cpu.params[t].read(), gpu.params[t].read())) << name(dtype_of<T>) << " parameter " << t << " of " << cpu.tensors[t].count;
  for (size_t s = 0; s < cpu.states.size(); ++s)
    ASSERT_TRUE(test::same_bits(cpu.states[s].read(), gpu.states[s].read())) << name(dtype_of<T>) << " state " << s;
}

template <class F>
void for_floating(const F& f) {
  for (const DType dtype : {kF16, kBF16, kF32, kF64}) visit_floating(dtype, "test", f);
}

TEST(OptimDevices, adamw_steps_agree_to_the_bit) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const bool amsgrad : {false, true})
    for (const size_t count : {size_t{40}, size_t{5000}})
      for_floating([&]<class T>(Type<T>) {
        expect_same_steps<T, formula::AdamWProgress>(
            count, amsgrad ? 3 : 2,
            [&](size_t t, auto& progress) {  // two groups, as with weight decay on matrices alone
              return formula::advance(progress, {.lr = 0.01, .weight_decay = t % 2 ? 0.1 : 0.0, .decoupled = !amsgrad, .maximize = amsgrad});
            },
            [&](const auto& kernel, const auto& tensors, const auto& hypers, const double*, const Stream& stream) {
              kernel.adamw({tensors, hypers, dtype_of<T>, amsgrad}, stream);
            });
      });
}

TEST(OptimDevices, sgd_steps_agree_to_the_bit_when_every_tensor_has_its_own_lr) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const bool momentum : {false, true})
    for_floating([&]<class T>(Type<T>) {
      expect_same_steps<T, formula::SgdProgress>(
          300, momentum ? 1 : 0,
          [&](size_t t, auto& progress) {
            return formula::advance(progress, {.lr = 0.001 * static_cast<double>(t + 1), .momentum = 0.9, .weight_decay = 0.01, .nesterov = t % 2 == 0});
          },
          [&](const auto& kernel, const auto& tensors, const auto& hypers, const double*, const Stream& stream) {
            kernel.sgd({tensors, hypers, dtype_of<T>, momentum}, stream);
          });
    });
}

TEST(OptimDevices, steps_with_masters_and_a_gradient_factor_agree_to_the_bit) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const bool full : {false, true})  // with amsgrad and a momentum
    for (const double factor : {1.0, 1.0 / 3, std::nan("")})
      for_floating([&]<class T>(Type<T>) {
        constexpr bool kMasters = sizeof(T) == 2;
        expect_same_steps<T, formula::AdamWProgress>(
            5000, full ? 3 : 2, [&](size_t t, auto& progress) { return formula::advance(progress, {.lr = 0.01, .weight_decay = t % 2 ? 0.1 : 0.0}); },
            [&](const auto& kernel, const auto& tensors, const auto& hypers, const double* by, const Stream& stream) {
              kernel.adamw({tensors, hypers, dtype_of<T>, full, by}, stream);
            },
            kMasters, factor);
        expect_same_steps<T, formula::SgdProgress>(
            40, full ? 1 : 0, [&](size_t, auto& progress) { return formula::advance(progress, {.lr = 0.1, .momentum = 0.9}); },
            [&](const auto& kernel, const auto& tensors, const auto& hypers, const double* by, const Stream& stream) {
              kernel.sgd({tensors, hypers, dtype_of<T>, full, by}, stream);
            },
            kMasters, factor);
      });
}

/// The same gradients of mixed dtypes on a device.
struct Gradients {
  Gradients(Device device, size_t count) {
    std::mt19937_64 random(11);
    const auto all = sizes();
    for (size_t t = 0; t < std::min(count, all.size()); ++t) {
      const auto add = [&](auto& list, auto values) {
        const auto n = static_cast<int64_t>(values.size());
        list.emplace_back(device, values, static_cast<int64_t>(t % 3));
        tensors.push_back({list.back().data(), n, dtype_of<std::remove_reference_t<decltype(values[0])>>});
      };
      if (t % 4 == 0) add(f32, normals<float>(all[t], random));
      if (t % 4 == 1) add(f64, normals<double>(all[t], random));
      if (t % 4 == 2) add(f16, normals<Float16>(all[t], random));
      if (t % 4 == 3) add(bf16, normals<BFloat16>(all[t], random));
    }
  }
  std::vector<Copied<float>> f32;
  std::vector<Copied<double>> f64;
  std::vector<Copied<Float16>> f16;
  std::vector<Copied<BFloat16>> bf16;
  std::vector<kernels::ListTensor> tensors;
};

double norm_on(Device device, const Gradients& grads, kernels::Norm norm) {
  const Copied<double> total(device, {-1});
  kernels_on(device).norm({grads.tensors, norm, total.data()}, current_stream(device));
  return total.read()[0];
}

TEST(OptimDevices, norms_agree_to_the_bit) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const size_t count : {0, 1, 2, 16, 5000}) {
    const Gradients cpu(kCPU, count), gpu(kGPU, count);
    for (const kernels::Norm norm : {kernels::Norm::one, kernels::Norm::two, kernels::Norm::inf})
      EXPECT_EQ(norm_on(kCPU, cpu, norm), norm_on(kGPU, gpu, norm)) << count << " tensors, norm " << static_cast<int>(norm);
  }
}

TEST(OptimDevices, the_norm_of_many_tiles_agrees_and_a_nan_is_the_norm) {
  LORRY_SKIP_WITHOUT_CUDA();
  std::vector<float> x(3'000'001);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1009) - 500.25f;
  for (const bool spoilt : {false, true}) {
    if (spoilt) x[2'345'678] = NAN;
    const Copied cpu(kCPU, x), gpu(kGPU, x, 1);
    for (const kernels::Norm norm : {kernels::Norm::one, kernels::Norm::two, kernels::Norm::inf}) {
      double totals[2];
      for (const bool cuda : {false, true}) {
        const Device device = cuda ? kGPU : kCPU;
        const kernels::ListTensor list{(cuda ? gpu : cpu).data(), static_cast<int64_t>(x.size()), kF32};
        const Copied<double> total(device, {-1});
        kernels_on(device).norm({{&list, 1}, norm, total.data()}, current_stream(device));
        totals[cuda] = total.read()[0];
      }
      if (spoilt) {
        EXPECT_TRUE(std::isnan(totals[0]) && std::isnan(totals[1]));
      } else {
        EXPECT_EQ(totals[0], totals[1]);
      }
    }
  }
}

TEST(OptimDevices, clipped_gradients_agree_to_the_bit) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const double norm : {0.5, 3.0}) {  // below the limit of 1 nothing is written
    const Gradients cpu(kCPU, 5000), gpu(kGPU, 5000);
    for (const bool cuda : {false, true}) {
      const Device device = cuda ? kGPU : kCPU;
      const Copied<double> total(device, {norm});
      kernels_on(device).clip({(cuda ? gpu : cpu).tensors, total.data(), 1.0}, current_stream(device));
      current_stream(device).synchronize();
    }
    const auto expect_same = [](const auto& a, const auto& b) {
      for (size_t t = 0; t < a.size(); ++t) ASSERT_TRUE(test::same_bits(a[t].read(), b[t].read())) << t;
    };
    expect_same(cpu.f16, gpu.f16);
    expect_same(cpu.bf16, gpu.bf16);
    expect_same(cpu.f32, gpu.f32);
    expect_same(cpu.f64, gpu.f64);
  }
}

TEST(OptimDevices, what_an_earlier_kernel_reports_is_thrown_before_a_step_moves_anything) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor a = ones({2}, {kF32, kGPU}).requires_grad_(), b = ones({2}, {kF64, kGPU}).requires_grad_();
  SGD sgd({{"a", a}, {"b", b}}, {.lr = 0.25});
  for (const Tensor& x : {a, b}) x.set_grad(ones_like(x.detach()));
  sgd.step();
  const Tensor picked = index_select(a.detach(), 0, tensor({7}, {.dtype = kI64, .device = kGPU}));
  const Event done(kGPU);
  done.record(current_stream(kGPU));
  done.synchronize();
  EXPECT_THROW(sgd.step(), IndexError);
  EXPECT_EQ(a.detach().to_vector<float>(), (std::vector<float>{0.75, 0.75}));
  EXPECT_EQ(sgd.state_dict().at("a.step").item<double>(), 1);
  sgd.step();
  EXPECT_EQ(b.detach().to_vector<double>(), (std::vector<double>{0.5, 0.5}));
  for (const char* name : {"a.step", "b.step"}) EXPECT_EQ(sgd.state_dict().at(name).item<double>(), 2);
}

}  // namespace
}  // namespace lorry::optim
