#pragma once

// Random tensors. Numbers are Philox4x32-7 keyed by a generator's seed and the number of the draw (its offset): a seed
// gives the same numbers on every device and for any number of threads, and one draw uses up one offset, whatever its
// size. The mapping from elements to bits is in formula/philox.h.

#include <memory>

#include "lorry/formula/philox.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

namespace detail {
class RandomSequence;
}

/// A sequence of draws. Safe to use from several threads, which then share the sequence in the order they come.
class Generator {
 public:
  struct State {
    uint64_t seed = 0;
    uint64_t offset = 0;  ///< of the next draw
    friend bool operator==(const State&, const State&) = default;
  };

  explicit Generator(uint64_t seed = kDefaultSeed);
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Starts the sequence of another seed from its beginning. Throws CaptureError where this thread's draws are captured
  /// (ops/random_capture.h), as the next two do.
  void manual_seed(uint64_t seed);
  State state() const;
  void set_state(const State& state);
  /// Names the next draw, which is made in memory of a device.
  formula::RandomKey next(Device device);
  /// What recordings of calls hold: it lives on without the generator (ops/random_sequence.h).
  const std::shared_ptr<detail::RandomSequence>& sequence() const { return sequence_; }

  static constexpr uint64_t kDefaultSeed = 67280421310721;  // PyTorch's

 protected:
  /// The draw that a key names, and those after it.
  explicit Generator(const formula::RandomKey& first);

 private:
  std::shared_ptr<detail::RandomSequence> sequence_;
};

/// The process's generator, used where none is given.
Generator& default_generator();
void manual_seed(uint64_t seed);

/// Uniform in [0, 1); standard normal.
Tensor rand(const Dims& sizes, const Options& options = {}, Generator* generator = nullptr);
Tensor randn(const Dims& sizes, const Options& options = {}, Generator* generator = nullptr);
/// Whole numbers in [low, high).
Tensor randint(int64_t low, int64_t high, const Dims& sizes, const Options& options = {.dtype = kI64},
               Generator* generator = nullptr);
Tensor randint(int64_t high, const Dims& sizes, const Options& options = {.dtype = kI64},
               Generator* generator = nullptr);
/// With x's sizes, device and, unless given, dtype.
Tensor rand_like(const Tensor& x, std::optional<DType> dtype = {}, Generator* generator = nullptr);
Tensor randn_like(const Tensor& x, std::optional<DType> dtype = {}, Generator* generator = nullptr);
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, std::optional<DType> dtype = {},
                    Generator* generator = nullptr);
Tensor randint_like(const Tensor& x, int64_t high, std::optional<DType> dtype = {}, Generator* generator = nullptr);
/// The numbers 0 to n - 1 in random order, i64.
Tensor randperm(int64_t n, Device device = default_device(), Generator* generator = nullptr);

/// Normal with a mean and a standard deviation for each element, which broadcast: mean's dtype, or std's for a mean
/// that is a number. Floating input; no gradient flows to it. Throws ValueError for a std below 0.
Tensor normal(const Tensor& mean, const Tensor& std, Generator* generator = nullptr);
Tensor normal(const Tensor& mean, double std = 1.0, Generator* generator = nullptr);
Tensor normal(double mean, const Tensor& std, Generator* generator = nullptr);
Tensor normal(double mean, double std, const Dims& sizes, const Options& options = {}, Generator* generator = nullptr);

/// 0 or 1, with the probability of a 1 given for each element by the floating p, or by one number for all of x.
Tensor bernoulli(const Tensor& p, Generator* generator = nullptr);
Tensor bernoulli(const Tensor& x, double p, Generator* generator = nullptr);
/// `samples` column numbers for each row of weights, a vector or a matrix, in proportion to them. Weights are floating,
/// finite, not negative, and do not need to sum to 1.
Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement = false, Generator* generator = nullptr);

// The same numbers into `out`, which has the result's sizes, in its dtype.
const Tensor& rand_out(const Tensor& out, const Dims& sizes, Generator* generator = nullptr);
const Tensor& randn_out(const Tensor& out, const Dims& sizes, Generator* generator = nullptr);
const Tensor& randint_out(const Tensor& out, int64_t low, int64_t high, const Dims& sizes,
                          Generator* generator = nullptr);
const Tensor& randint_out(const Tensor& out, int64_t high, const Dims& sizes, Generator* generator = nullptr);
const Tensor& randperm_out(const Tensor& out, int64_t n, Generator* generator = nullptr);
const Tensor& normal_out(const Tensor& out, const Tensor& mean, const Tensor& std, Generator* generator = nullptr);
const Tensor& normal_out(const Tensor& out, const Tensor& mean, double std = 1.0, Generator* generator = nullptr);
const Tensor& normal_out(const Tensor& out, double mean, const Tensor& std, Generator* generator = nullptr);
const Tensor& normal_out(const Tensor& out, double mean, double std, const Dims& sizes, Generator* generator = nullptr);
const Tensor& bernoulli_out(const Tensor& out, const Tensor& p, Generator* generator = nullptr);
const Tensor& multinomial_out(const Tensor& out, const Tensor& weights, int64_t samples, bool replacement = false,
                              Generator* generator = nullptr);

}  // namespace lorry
