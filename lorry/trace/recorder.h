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
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lorry/ops/dispatch/listener.h"
#include "lorry/ops/random_sequence.h"
#include "lorry/trace/captured.h"

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

/// Makes a call from its announcement.
using RunCall = std::vector<Tensor> (*)(const door::CallView& call);

struct RecordedCall {
  Op op{};
  bool in_place = false, out = false;
  RunCall run = nullptr;  ///< null: foreach::run
  std::vector<RecordedInput> inputs;
  std::vector<TensorRef> outputs;
  std::vector<door::Attribute> attributes;
  /// The generator of Recording::generators whose draw the call's key numbers, from 0; -1: the key is as it was.
  int32_t generator = -1;
  std::string scope;  ///< Scope::path()
};

/// What the host did between calls and does again in each run (host_callback).
struct HostCallback {
  size_t position;  ///< how many calls (of a graph: nodes) come before it
  std::string name;
  std::shared_ptr<const std::function<void()>> call;
};

/// A tensor that was there before the function ran, or whose elements came from the host while it ran.
struct Outside {
  int argument = -1;                               ///< the first argument in this storage; -1: the function captured it
  std::shared_ptr<door::Observed> captured;        ///< where it is no argument: some tensor in this storage
  std::vector<std::shared_ptr<Captured>> tensors;  ///< the captured ones in this storage
  std::shared_ptr<const Captured> leaf;            ///< of these the leaf that requires a gradient
  /// Whether it was the gradient of `leaf`, or of an argument, when the function began.
  bool is_gradient = false;
  int gradient_of = -1;  ///< that argument
  /// elements from the host: all of the storage, as they were when they were first read
  Tensor constant;
};

/// A gradient that the function gave to a leaf.
struct RecordedGrad {
  uint64_t leaf;          ///< its storage
  TensorRef gradient;     ///< undefined: it was taken away
  bool was_none = false;  ///< the function found none, and did not look for one before it set this
};

/// A generator that was there before the function ran, and that it drew from. One that is made inside gives the same
/// numbers in each run: its keys stay as they are.
struct RecordedGenerator {
  std::shared_ptr<detail::RandomSequence> sequence;
  uint64_t draws = 0;
};

struct Recording {
  std::vector<RecordedCall> calls;
  std::vector<TensorRef> arguments, results;
  std::map<uint64_t, Outside> outside;  ///< by storage
  std::vector<RecordedGrad> grads;      ///< in the order of their last change
  size_t backward_from = SIZE_MAX;      ///< the calls from here on are the function's backward
  std::vector<HostCallback> callbacks;
  std::vector<RecordedGenerator> generators;
  /// What a graph cannot tell again, in the function's order; empty: all of it can. "item, in blocks.0: the host reads
  /// [8] f32 cpu".
  std::vector<std::string> obstacles;
  bool may_settle = false;  ///< one of them is what happens in a first call only: memory is made that stays
};

/// Records this thread from here to finish(), or to its own end where the function throws.
class Recorder {
 public:
  /// Throws ValueError where this thread is being recorded already, or an argument is undefined.
  explicit Recorder(std::span<const Tensor> arguments);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// The captured leaves that require a gradient, of those that calls have read so far.
  std::vector<std::shared_ptr<const Captured>> leaves() const;
  /// What follows is the backward of what was recorded so far: it reads these gradients of results as further
  /// arguments. The results of the function may require a gradient then, and its tape stays.
  void begin_backward(std::span<const Tensor> gradients);
  /// Ends the recording; `results` are what the function returned, undefined tensors included.
  Recording finish(std::span<const Tensor> results);
  /// Whether this thread is being recorded.
  static bool active();
  /// The recording of this thread, if there is one, cannot be repeated: `what` happens, beside the calls.
  static void refuse(std::string_view what);

 private:
  friend struct Listening;
  void before(const door::CallView& call);
  void after(const door::CallView& call);
  void fact(const FactView& fact);
  void meet(const Tensor& x, bool read, bool with_gradients);
  void meet_leaf(const Tensor& x);
  void capture(Outside& from, const Tensor& x, bool with_gradients);
  void add_argument(const Tensor& x);
  void obstacle(std::string what);
  void draw(const Generator& generator, const formula::RandomKey& key);
  void number_draw(RecordedCall& call) const;
  bool is_written(const Tensor& x) const;
  void find_shared_memory();
  void find_leaves();
  void find_gradients();
  void find_survivors(const std::vector<uint64_t>& on_tape);
  friend class RunBy;
  friend void host_callback(std::string name, std::function<void()> call);
  static size_t only_written(const door::CallView& call);

  /// What is known of storages that were made while recording.
  struct Inside {
    bool written = false;  ///< by a recorded call
    bool dead = false;
  };

  Recording recording_;
  std::vector<Tensor> arguments_;
  std::set<const void*> argument_nodes_;
  std::map<uint64_t, Inside> inside_;
  std::map<uint64_t, TensorRef> grads_;          ///< by the leaf's storage
  std::map<uint64_t, const void*> grad_leaves_;  ///< their leaves' nodes
  std::vector<uint64_t> grad_order_;
  struct MetLeaf {
    Tensor leaf;
    TensorRef gradient;  ///< that it had
  };
  std::map<uint64_t, MetLeaf> leaves_;  ///< by storage: those that were met before they got another gradient
  bool captured_history_ = false;       ///< a captured tensor that a call read has one
  std::vector<Tensor> written_;         ///< captured ones, by calls of which autograd was told
  RunCall run_ = nullptr;
  /// The draws so far: by key the generator and its draw's number; generator -1: it was made inside.
  struct KeyOrder {
    bool operator()(const formula::RandomKey& a, const formula::RandomKey& b) const {
      return std::tie(a.seed, a.offset, a.state) < std::tie(b.seed, b.offset, b.state);
    }
  };
  struct RecordedDraw {
    int32_t generator;
    uint64_t number;
  };
  std::map<formula::RandomKey, RecordedDraw, KeyOrder> draws_;
  const uint64_t first_inside_ = detail::RandomSequence::next_id();  ///< generators from here on were made inside
  const uint32_t number_;  ///< of this recording: tensors that are made meanwhile have it
  std::optional<ModeScope> mode_;
};

/// Calls that are recorded in this scope are made again by `run`: rows of rooms that trace knows nothing of.
class RunBy {
 public:
  explicit RunBy(RunCall run);
  ~RunBy();
  RunBy(const RunBy&) = delete;
  RunBy& operator=(const RunBy&) = delete;

 private:
  Recorder* recorder_;
  RunCall before_ = nullptr;
};

/// What the host does beside operators, such as a schedule that sets the next learning rate: calls `call` now and,
/// where this thread is being recorded, again in each run of the graph, in its turn. Operators in it are not recorded.
/// It refers to what outlives the graph, and reads nothing that the function writes: that may not be there yet.
void host_callback(std::string name, std::function<void()> call);

}  // namespace lorry::trace
