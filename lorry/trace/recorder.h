#pragma once

// Recording: what a function of tensors did, call by call, as the door announced it. The function runs as it always
// does, with the same calls, the same bits and the same memory; the recorder keeps descriptions of tensors, and holds
// only those that were there before.
//
//   trace::Recorder recorder(arguments);
//   const Tensor y = f(arguments[0], arguments[1]);
//   const trace::Recording recording = recorder.finish({&y, 1});
//   const trace::Graph graph = trace::functionalise(recording);

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lorry/ops/dispatch/listener.h"

namespace lorry::trace {

/// Elements of a storage: what a tensor is, without its memory.
struct TensorRef {
  uint64_t storage = 0;  ///< Storage::id(); 0: an undefined tensor
  Layout layout;
  int64_t offset = 0;  ///< of the first element, in elements from the start of the storage
  DType dtype = kF32;
  Device device = kCPU;

  bool defined() const { return storage != 0; }
  bool empty() const { return layout.numel() == 0; }
  friend bool operator==(const TensorRef& a, const TensorRef& b) = default;
};

TensorRef ref_of(const Tensor& x);

/// An input of a recorded call: a tensor, perhaps undefined, or a number.
struct RecordedInput {
  TensorRef tensor;
  std::optional<Scalar> number;
};

struct RecordedCall {
  Op op{};
  bool in_place = false, out = false;
  std::vector<RecordedInput> inputs;
  std::vector<TensorRef> outputs;
  std::vector<door::Attribute> attributes;
  std::string scope;  ///< Scope::path()
};

/// A tensor that was there before the function ran, or whose elements came from the host while it ran.
struct Outside {
  int argument = -1;                         ///< the first argument in this storage; -1: the function captured it
  std::shared_ptr<door::Observed> captured;  ///< where it is no argument: some tensor in this storage
  Tensor leaf;                               ///< the captured leaf with this storage, where the function used one
  /// elements from the host: all of the storage, as they were when they were first read
  Tensor constant;
};

/// A gradient that the function gave to a leaf.
struct RecordedGrad {
  uint64_t leaf;       ///< its storage
  TensorRef gradient;  ///< undefined: it was taken away
};

struct Recording {
  std::vector<RecordedCall> calls;
  std::vector<TensorRef> arguments, results;
  std::map<uint64_t, Outside> outside;  ///< by storage
  std::vector<RecordedGrad> grads;      ///< in the order of their last change
  /// What a graph cannot tell again, in the function's order; empty: all of it can. "item, in blocks.0: the host reads
  /// [8] f32 cpu".
  std::vector<std::string> obstacles;
};

/// Records this thread from here to finish(), or to its own end where the function throws.
class Recorder {
 public:
  /// Throws ValueError where this thread is being recorded already, or an argument is undefined.
  explicit Recorder(std::span<const Tensor> arguments);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// Ends the recording; `results` are what the function returned, undefined tensors included.
  Recording finish(std::span<const Tensor> results);
  /// Whether this thread is being recorded.
  static bool active();

 private:
  friend struct Listening;
  void before(const door::CallView& call);
  void after(const door::CallView& call);
  void fact(const FactView& fact);
  void meet(const Tensor& x, bool read);
  void obstacle(std::string what);
  void find_shared_memory();
  void find_leaves();
  void find_survivors();
  static size_t only_written(const door::CallView& call);

  /// What is known of storages that were made while recording.
  struct Inside {
    bool written = false;  ///< by a recorded call
    bool dead = false;
  };

  Recording recording_;
  std::vector<Tensor> arguments_;
  std::map<uint64_t, Inside> inside_;
  std::map<uint64_t, TensorRef> grads_;
  std::vector<uint64_t> grad_order_;
  std::optional<ModeScope> mode_;
};

}  // namespace lorry::trace
