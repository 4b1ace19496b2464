#pragma once

// Recording: the operator calls of a function of tensors, in the order in which the door announced them. The function
// runs as always: same calls, same bits, same memory. The recorder stores descriptions of tensors and keeps references
// only to tensors that existed before.
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
#include "lorry/trace/tracer.h"

namespace lorry::trace {

/// A description of a tensor without its memory: elements of a storage.
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

/// An input of a recorded call: a tensor (may be undefined), or a number.
struct RecordedInput {
  TensorRef tensor;
  std::optional<Scalar> number;
};

/// The description of a call's input. A tensor that was made from a number, and promotes like it, is a number.
RecordedInput input_of(const door::Input& x);

struct RecordedCall {
  Op op{};
  bool in_place = false, out = false;
  door::RunCall run = nullptr;  ///< CallView::run
  std::vector<RecordedInput> inputs;
  std::vector<TensorRef> outputs;
  std::vector<door::Attribute> attributes;
  /// The index in Recording::generators of the generator that the call's key was drawn from; the key's offset is then
  /// the number of the draw, from 0. -1: the key is constant.
  int32_t generator = -1;
  std::string scope;                     ///< Scope::path()
  std::vector<const void*> frames = {};  ///< call_stack()
};

/// A host function that was called between operator calls and is called again in each run (host_callback).
struct HostCallback {
  size_t position;  ///< the number of calls (in a graph: nodes) before it
  std::string name;
  std::shared_ptr<const std::function<void()>> call;
  bool is_for_all_sizes = false;  ///< whether a recording for other arguments would have the same
};

/// A storage that existed before the function ran, or whose elements came from the host while it ran.
struct Outside {
  int argument = -1;                               ///< the first argument in this storage; -1: the function captured it
  std::shared_ptr<door::Observed> captured;        ///< if it is not an argument: some tensor in this storage
  std::vector<std::shared_ptr<Captured>> tensors;  ///< the captured tensors in this storage
  std::shared_ptr<const Captured> leaf;            ///< among these, the leaf that requires a gradient
  /// Whether it was the gradient of `leaf`, or of argument `gradient_of`, when the function began.
  bool is_gradient = false;
  int gradient_of = -1;  ///< see is_gradient
  /// for elements from the host: a copy of the whole storage, made when it was first read
  Tensor constant;
};

/// A gradient that the function set.
struct RecordedGrad {
  uint64_t leaf;          ///< the leaf's storage
  TensorRef gradient;     ///< undefined: it was removed
  bool was_none = false;  ///< the leaf had no gradient, and the function did not read it before setting this one
};

/// A generator that existed before the function ran, and from which the function drew. Generators made by the function
/// give the same numbers in each run, so their keys are constants.
struct RecordedGenerator {
  std::shared_ptr<detail::RandomSequence> sequence;
  uint64_t draws = 0;
};

/// Sizes that the function's own code read, or by which it cut a tensor (slice, select): what it did next may depend on
/// them.
struct SizeRead {
  Dims sizes;
  const void* frames[16];  ///< the stack of the call (call_stack)
  int frame_count = 0;

  /// Where it was read, as far as that is known: "train.cpp:31", or the function's name; empty if unknown.
  std::string where() const;
};

/// A view that the function made, perhaps only to look at it.
struct ViewCall {
  Op op{};
  Layout from, to;
  int64_t offset = 0;  ///< of the first element of `to`, from that of `from`
  std::vector<door::Attribute> attributes;
};

/// A recording stores no more size reads.
inline constexpr size_t kMostSizeReads = 4096;

struct Recording {
  std::vector<RecordedCall> calls;
  std::vector<TensorRef> arguments, results;
  std::map<uint64_t, Outside> outside;  ///< by storage
  std::vector<RecordedGrad> grads;      ///< ordered by their last change
  size_t backward_from = SIZE_MAX;      ///< index of the first call of the function's backward
  std::vector<HostCallback> callbacks;
  std::vector<RecordedGenerator> generators;
  /// Things that a graph cannot repeat, in order; empty if there are none. Example: "item, in blocks.0: the host reads
  /// [8] f32 cpu".
  std::vector<std::string> obstacles;
  std::vector<SizeRead> size_reads;
  std::vector<ViewCall> views;
  bool went_on_after_error = false;  ///< an operator threw, and the function caught that
  bool may_initialise = false;       ///< an obstacle may be one-time initialisation: memory that stays
};

/// Records the calls of this thread, from its construction to finish(), or to its destruction if the function throws.
class Recorder final : private Tracer {
 public:
  /// Throws ValueError if this thread is being recorded already, or if an argument is undefined.
  explicit Recorder(std::span<const Tensor> arguments);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// The captured leaves that require a gradient, among those read so far.
  std::vector<std::shared_ptr<const Captured>> leaves() const;
  /// The following calls are the backward of the calls so far, with these gradients of results as further arguments.
  /// Then results of the function may require a gradient, and its tape is kept.
  void begin_backward(std::span<const Tensor> gradients);
  /// Ends the recording. results: what the function returned, undefined tensors included.
  Recording finish(std::span<const Tensor> results);
  /// Whether this thread is being recorded.
  static bool active();
  /// If this thread is being recorded: marks the recording as not repeatable, because of `what`.
  static void refuse(std::string_view what);

 private:
  void before(const door::CallView& call) override;
  void after(const door::CallView& call) override;
  void fact(const FactView& fact) override;
  void note(const Tensor& x, bool read, bool with_gradients);
  void note_leaf(const Tensor& x);
  void capture(Outside& from, const Tensor& x, bool with_gradients);
  void add_argument(const Tensor& x);
  void obstacle(std::string what);
  void note_size_read(Dims sizes);
  void note_view(const door::CallView& view);
  void draw(const Generator& generator, const formula::RandomKey& key);
  void number_draw(RecordedCall& call) const;
  bool is_written(const Tensor& x) const;
  void find_shared_memory();
  void find_leaves();
  void find_gradients();
  void find_survivors(const std::vector<uint64_t>& on_tape);
  friend void host_callback(std::string name, std::function<void()> call, bool is_for_all_sizes);
  static size_t only_written(const door::CallView& call);

  /// A storage that was made while recording.
  struct Inside {
    bool written = false;  ///< by a recorded call
    bool dead = false;
  };

  Recording recording_;
  std::vector<Tensor> arguments_;
  std::set<const void*> argument_nodes_;
  std::map<uint64_t, Inside> inside_;
  std::map<uint64_t, TensorRef> grads_;          ///< by the leaf's storage
  std::map<uint64_t, const void*> grad_leaves_;  ///< the leaves' nodes
  std::vector<uint64_t> grad_order_;
  struct SeenLeaf {
    Tensor leaf;
    TensorRef gradient;  ///< its gradient at that time
  };
  std::map<uint64_t, SeenLeaf> leaves_;  ///< by storage: leaves that were seen before they got another gradient
  bool captured_history_ = false;        ///< a captured tensor that was read has a history
  std::vector<Tensor> written_;          ///< captured tensors written by calls that autograd recorded
  /// The draws so far, by key: the generator and the number of the draw. Generator -1: it was made by the function.
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
  /// generators with this id or a higher one were made by the function
  const uint64_t first_inside_ = detail::RandomSequence::next_id();
  const uint32_t number_;  ///< the number of this recording; tensors made meanwhile store it
  std::optional<TracerScope> tracing_;
  std::optional<ModeScope> hears_sizes_;
  const uint32_t errors_ = t_recorded_errors;
};

/// Calls `call`, and, if this thread is being recorded, calls it again at the same point in each run of the graph. For
/// host code other than operators, such as a schedule that sets the next learning rate. Operators in `call` are not
/// recorded. Everything it refers to must outlive the graph. It must not read what the function writes, because in a
/// run that may not be written yet. is_for_all_sizes: it has nothing to do with the function's arguments, so that runs
/// for other sizes may call it too without recording the function again. Throws CaptureError while a graph is captured
/// (replay/graph.h), which repeats no host code.
void host_callback(std::string name, std::function<void()> call, bool is_for_all_sizes = false);

}  // namespace lorry::trace
