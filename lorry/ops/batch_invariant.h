#pragma once

// A mode in which a row of a product has the same bits in every batch. A library chooses its algorithm, and with it the
// order of its sums, by the number of rows; so a token that is decoded alone and one that is decoded with others get
// slightly different results, and sometimes another next token. Inside the mode the order is fixed.
//
//   const BatchInvariant scope;
//   const Tensor y = linear(x, weight, bias);  // y[i] depends on x[i], weight and bias alone, to the bit
//
// The mode is the calling thread's. Row operators (norms, softmax, embedding, rotary) and pointwise operators have this
// property without it.

namespace lorry {

namespace detail {
inline constinit thread_local bool t_batch_invariant = false;
}

/// Whether the mode is on.
inline bool batch_invariant() { return detail::t_batch_invariant; }

/// Turns the mode on, or off, for a scope. It concerns linear, linear_aligned, and the products matmul, mm, mv and dot
/// in which all rows are multiplied by one matrix or vector. Other products (batches of matrices on the right, addmm,
/// baddbmm, attention) are not concerned.
/// - The bits of a row do not depend on the number of rows, the other rows, the row's place, strides, alignment, or the
///   number of threads. They may differ between devices, and from those outside the mode.
/// - A call in the mode is the operator `linear_rows` to listeners. Recorded, it is repeated with the same kernel, in
///   the mode or not; a compiled function has a recording for each.
/// He and Thinking Machines Lab 2025, "Defeating nondeterminism in LLM inference".
class BatchInvariant {
 public:
  explicit BatchInvariant(bool on = true) : before_(detail::t_batch_invariant) { detail::t_batch_invariant = on; }
  ~BatchInvariant() { detail::t_batch_invariant = before_; }
  BatchInvariant(const BatchInvariant&) = delete;
  BatchInvariant& operator=(const BatchInvariant&) = delete;

 private:
  bool before_;
};

}  // namespace lorry
