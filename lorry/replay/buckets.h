#pragma once

// BucketSet: one function at several batch sizes. A batch goes to the smallest bucket that holds it, is padded up to
// that size, and the results are cut back. Each bucket runs as a graph, compiled, as both, or eagerly. All share one
// set of inputs and one pool (vLLM and SGLang capture decode steps in this way).
//
//   replay::BucketSet decode([&](const Tensor& tokens) { return model(tokens); }, {.sizes = {1, 2, 4, 8}});
//   decode.prepare(tokens);            // captures, the largest size first; the first call does so otherwise
//   const Tensor y = decode(tokens);   // tokens: [3, ...]: the graph of 4; y: [3, ...], overwritten by the next call
//
// A function may also take the batch as a number, and work on memory of its own:
//
//   replay::BucketSet step([&](int64_t rows) { advance(state.narrow(0, 0, rows)); }, {.sizes = {1, 2, 4, 8}});
//   step(3);                           // runs with rows = 4

#include <algorithm>
#include <array>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lorry/replay/bucket_options.h"
#include "lorry/trace/signature.h"

namespace lorry::replay {

namespace detail {

/// A BucketSet, with arguments and results as lists. rows: the batch that size arguments name; unset: there are none.
class Buckets {
 public:
  /// size: the rows that the function runs with.
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>, int64_t size)>;

  Buckets(Function function, const BucketOptions& options);
  ~Buckets();
  void prepare(std::span<const Tensor> arguments, std::optional<int64_t> rows);
  std::vector<Tensor> call(std::span<const Tensor> arguments, std::optional<int64_t> rows);
  void wait();
  std::vector<BucketStats> stats() const;
  /// Whether the shapes of the arguments are known.
  bool is_prepared() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class A>
concept SizeArgument = std::integral<A> && !std::same_as<A, bool>;

/// The arguments of one call.
struct BucketArguments {
  lorry::detail::Arguments tensors;
  std::optional<int64_t> rows;

  template <class... A>
  explicit BucketArguments(const A&... arguments) : tensors(sizeof...(A)) {
    (add(arguments), ...);
  }
  template <class A>
  void add(const A& argument) {
    if constexpr (SizeArgument<A>) {
      const auto here = static_cast<int64_t>(argument);
      if (rows && *rows != here) raise_as<ShapeError>("BucketSet", "size arguments differ; got {} and {}", *rows, here);
      rows = here;
    } else {
      tensors.add(argument);
    }
  }
};

inline size_t tensors_in(const Tensor&) { return 1; }
inline size_t tensors_in(const std::vector<Tensor>& list) { return list.size(); }
inline size_t tensors_in(SizeArgument auto) { return 0; }

/// An argument of the function, from the tensors that belong to it.
template <class A>
auto taken(std::span<const Tensor> all, int64_t size) {
  if constexpr (std::is_same_v<A, Tensor>)
    return all[0];
  else if constexpr (SizeArgument<A>)
    return size;
  else
    return std::vector<Tensor>(all.begin(), all.end());
}

/// Whether a function is known to have a size argument. False if it has templates for parameters: calls tell.
template <class Signature>
inline constexpr bool kTakesSize = false;
template <class R, class... A>
inline constexpr bool kTakesSize<std::function<R(A...)>> = (SizeArgument<std::remove_cvref_t<A>> || ...);
template <class F>
constexpr bool takes_size() {
  if constexpr (requires(F f) { std::function{f}; })
    return kTakesSize<decltype(std::function{std::declval<F>()})>;
  else
    return false;
}

}  // namespace detail

/// Calls are made by one thread at a time. F takes tensors, vectors of them, and the batch as an integer, and returns
/// nothing, a Tensor, or a pair, tuple, array or vector of them. It must not change its arguments.
///
/// The function runs several times at each size: for warm-up, the capture, recordings and measurements. A tensor
/// argument is then an input of the set, and the integer the bucket's size. A batch without padding and without a
/// bucket runs as it is.
template <class F>
class BucketSet {
 public:
  /// Everything that the function captures must outlive the result. Throws ValueError for options that are out of range
  /// or contradict each other.
  explicit BucketSet(F function, BucketOptions options = {})
      : function_(std::make_shared<F>(std::move(function))), options_(std::move(options)) {
    detail::check(options_);
    if (detail::takes_size<F>()) detail::check_size_argument(options_);
  }

  /// Captures, compiles and measures as the options say, for arguments like these; their batch may be any. In the
  /// background: begins to. Throws what Graph throws, and ValueError if memory_budget is too small for a single graph.
  template <class... A>
  void prepare(const A&... arguments) {
    const detail::BucketArguments all(arguments...);
    buckets(arguments...).prepare(all.tensors.tensors, all.rows);
  }

  /// The results, in memory that the next call overwrites. Throws ValueError for an empty batch and for one above the
  /// largest size, ShapeError and DTypeError for arguments unlike those of the capture, and what prepare,
  /// Graph::replay and the function throw. The first call after an error in the background throws that error; later
  /// calls run the function as it is where there is no graph.
  template <class... A>
  auto operator()(const A&... arguments) {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, const A&...>>;
    const detail::BucketArguments all(arguments...);
    std::vector<Tensor> results = buckets(arguments...).call(all.tensors.tensors, all.rows);
    if constexpr (!std::is_void_v<R>) return lorry::detail::Results<R>::from(std::move(results));
  }

  /// Waits until all is captured that is captured in the background. Throws what the captures threw.
  void wait() {
    if (buckets_ != nullptr) buckets_->wait();
  }
  /// Of each bucket, in order of size. Empty before prepare or the first call.
  std::vector<BucketStats> stats() const {
    return buckets_ == nullptr ? std::vector<BucketStats>() : buckets_->stats();
  }

 private:
  /// Made at the first call, which tells how long vectors of tensors are.
  template <class... A>
  detail::Buckets& buckets(const A&... arguments) {
    const std::array<size_t, sizeof...(A)> lengths = {detail::tensors_in(arguments)...};
    if (buckets_ != nullptr && buckets_->is_prepared()) {
      if (!std::ranges::equal(lengths, lengths_))
        raise_as<ValueError>("BucketSet", "other arguments than in the capture, or vectors of another length");
      return *buckets_;
    }
    if constexpr ((detail::SizeArgument<A> || ...)) detail::check_size_argument(options_);
    lengths_.assign(lengths.begin(), lengths.end());
    auto call = [function = function_, lengths](std::span<const Tensor> all, int64_t size) {
      size_t argument = 0, at = 0;
      const auto next = [&] {
        const size_t length = lengths[argument++];
        at += length;
        return all.subspan(at - length, length);
      };
      // in braces, so that they are taken in order
      const std::tuple<decltype(detail::taken<A>(all, size))...> given{detail::taken<A>(next(), size)...};
      using R = std::remove_cvref_t<std::invoke_result_t<F&, const A&...>>;
      if constexpr (std::is_void_v<R>) {
        std::apply(*function, given);
        return std::vector<Tensor>();
      } else {
        return lorry::detail::Results<R>::list(std::apply(*function, given));
      }
    };
    buckets_ = std::make_unique<detail::Buckets>(std::move(call), options_);
    return *buckets_;
  }

  std::shared_ptr<F> function_;
  BucketOptions options_;
  std::vector<size_t> lengths_;  ///< of the arguments, in tensors
  std::unique_ptr<detail::Buckets> buckets_;
};

}  // namespace lorry::replay
