#pragma once

// BucketSet: graphs of one function for several batch sizes. A batch goes to the smallest graph that holds it, is
// padded up to that size, and the results are cut back. All graphs share one pool and one set of inputs (vLLM and
// SGLang capture decode steps in this way).
//
//   replay::BucketSet decode([&](const Tensor& tokens) { return model(tokens); }, {.sizes = {1, 2, 4, 8}});
//   decode.prepare(tokens);            // captures, the largest size first; the first call does so otherwise
//   const Tensor y = decode(tokens);   // tokens: [3, ...]: the graph of 4; y: [3, ...], overwritten by the next call

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lorry/replay/graph.h"
#include "lorry/trace/signature.h"

namespace lorry::replay {

/// With padding: 1, 2, 4, 8, then every 8 up to `largest`. Without: 1 to 32, 64, 96, 128, 160, as far as they are not
/// larger. Throws ValueError for a largest size below 1.
std::vector<int64_t> default_sizes(bool padding = true, int64_t largest = 160);

/// Which sizes are captured, and what is padded.
struct BucketOptions {
  /// The batch sizes to capture, in any order. Empty: default_sizes(padding, largest).
  std::vector<int64_t> sizes = {};
  /// Whether batches of other sizes are padded up. Without padding they run as the function is.
  bool padding = true;
  int64_t largest = 160;  ///< of the default sizes
  /// The dimension of each tensor argument that counts the batch; -1: none, the argument must keep its shape. Missing
  /// entries are 0. All arguments with a batch have the same.
  std::vector<int> dims = {};
  /// The same for results.
  std::vector<int> result_dims = {};
  /// What fills the rows of padding, for each tensor argument. Missing entries are 0.
  std::vector<double> pad_values = {};
  /// Called before the function runs for a bucket, with its size, and with 0 when all are captured or one could not be.
  /// For models that run in another form at some sizes.
  std::function<void(int64_t size)> before_capture = nullptr;
  int warm_up = 2;
  std::optional<Device> device = {};
  /// Fills the rows of padding with NaN where the argument is floating, runs the function itself too, and throws
  /// ValueError if the results differ in a bit. For finding functions in which rows of a batch influence each other.
  bool verify = false;
};

/// Figures of one bucket.
struct BucketStats {
  int64_t size = 0;
  int64_t hits = 0;         ///< batches that it served
  int64_t padded_rows = 0;  ///< in all of them
  GraphStats graph = {};
};

namespace detail {

/// A BucketSet, with arguments and results as lists.
class Buckets {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

  Buckets(Function function, BucketOptions options);
  void prepare(std::span<const Tensor> arguments);
  std::vector<Tensor> call(std::span<const Tensor> arguments);
  std::vector<BucketStats> stats() const;
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  struct Bucket {
    int64_t size;
    std::vector<Tensor> inputs;
    std::optional<Graph> graph;
    BucketStats stats;
  };
  int dim_of(size_t argument) const;
  int64_t batch_of(std::span<const Tensor> arguments) const;
  void check_shapes(std::span<const Tensor> arguments) const;
  void add(int64_t size);
  void fill_in(Bucket& bucket, std::span<const Tensor> arguments, int64_t batch);
  void pad(const Tensor& rows, size_t argument) const;
  std::vector<Tensor> cut(const Bucket& bucket, int64_t batch) const;
  void compare(const Bucket& bucket, std::span<const Tensor> arguments, std::span<const Tensor> results) const;

  const Function function_;
  const BucketOptions options_;
  std::vector<int64_t> sizes_;  ///< ascending
  std::shared_ptr<memory::Pool> pool_;
  std::vector<Tensor> whole_;     ///< of each argument: the memory of the inputs of all buckets
  std::vector<int64_t> written_;  ///< of each: the rows that are not padding
  std::map<int64_t, Bucket> buckets_;
};

inline size_t tensors_in(const Tensor&) { return 1; }
inline size_t tensors_in(const std::vector<Tensor>& list) { return list.size(); }

template <class A>
struct Taken;
template <>
struct Taken<Tensor> {
  static Tensor from(std::span<const Tensor> all) { return all[0]; }
};
template <>
struct Taken<std::vector<Tensor>> {
  static std::vector<Tensor> from(std::span<const Tensor> all) { return {all.begin(), all.end()}; }
};

}  // namespace detail

/// Calls are made by one thread at a time. F takes tensors, or vectors of them, and returns a Tensor, or a pair, tuple,
/// array or vector of them.
template <class F>
class BucketSet {
 public:
  /// Everything that the function captures must outlive the result. Throws ValueError for sizes that are not positive
  /// or repeat.
  explicit BucketSet(F function, BucketOptions options = {})
      : function_(std::make_shared<F>(std::move(function))), options_(std::move(options)) {}

  /// Captures a graph for each size, for arguments like these; their batch may be any. Throws what Graph throws.
  template <class... A>
  void prepare(const A&... arguments) {
    lorry::detail::Arguments all(sizeof...(A));
    (all.add(arguments), ...);
    buckets(arguments...).prepare(all.tensors);
  }

  /// The results, in memory that the next call overwrites. Throws ValueError for an empty batch and for one above the
  /// largest size, ShapeError and DTypeError for arguments unlike those of the capture, and what Graph::replay throws.
  template <class... A>
  auto operator()(const A&... arguments) {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, const A&...>>;
    lorry::detail::Arguments all(sizeof...(A));
    (all.add(arguments), ...);
    return lorry::detail::Results<R>::from(buckets(arguments...).call(all.tensors));
  }

  /// Of each bucket, in order of size. Empty before the capture.
  std::vector<BucketStats> stats() const {
    return buckets_ == nullptr ? std::vector<BucketStats>() : buckets_->stats();
  }

 private:
  /// Made at the first call, which tells how long vectors of tensors are.
  template <class... A>
  detail::Buckets& buckets(const A&... arguments) {
    if (buckets_ != nullptr) return *buckets_;
    auto call = [function = function_,
                 lengths = std::array{detail::tensors_in(arguments)...}](std::span<const Tensor> all) {
      size_t argument = 0, at = 0;
      const auto next = [&] {
        const size_t length = lengths[argument++];
        at += length;
        return all.subspan(at - length, length);
      };
      // in braces, so that they are taken in order
      const std::tuple<A...> given{detail::Taken<A>::from(next())...};
      return lorry::detail::Results<std::remove_cvref_t<std::invoke_result_t<F&, const A&...>>>::list(
          std::apply(*function, given));
    };
    buckets_ = std::make_unique<detail::Buckets>(std::move(call), options_);
    return *buckets_;
  }

  std::shared_ptr<F> function_;
  BucketOptions options_;
  std::unique_ptr<detail::Buckets> buckets_;
};

}  // namespace lorry::replay
