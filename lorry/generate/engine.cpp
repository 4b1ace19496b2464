#include "lorry/generate/engine.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/integers.h"
#include "lorry/device/device.h"
#include "lorry/device/stream.h"
#include "lorry/generate/blocks.h"
#include "lorry/generate/slots.h"
#include "lorry/ops/batch_invariant.h"
#include "lorry/ops/ops.h"

namespace lorry::generate {
namespace {

constexpr int64_t kMostDraws = int64_t{1} << 60;

/// A text and where it stands.
struct Sequence {
  int64_t id;
  Request request;  ///< with the tokens that are known; `drawn` counts them
  int64_t last;     ///< draw at which it ends
  int64_t slot = -1;
  std::vector<int32_t> blocks = {};
  int64_t start = 0;       ///< of the context in the tokens
  int64_t stored = 0;      ///< positions of the context whose keys and values are in the cache
  int64_t decode_id = -1;  ///< a new number each time decoding begins; -1 while it is not decoded
  int64_t enqueued = 0;    ///< draws that the device has done or will do, at most
  int64_t ends_at = 0;     ///< draw at which the device stops: `last`, or when the context is full

  int64_t size() const { return static_cast<int64_t>(request.tokens.size()); }
  int64_t prompt() const { return size() - request.drawn; }
  /// Positions before the last token, which the next step reads.
  int64_t prompt_positions() const { return size() - start - 1; }
  bool ends_with_stop() const {
    const auto drawn = std::span(request.tokens).last(static_cast<size_t>(request.drawn));
    return std::ranges::any_of(request.stops, [&](const std::vector<int64_t>& run) {
      return run.size() <= drawn.size() && std::ranges::equal(drawn.last(run.size()), run);
    });
  }
};

/// The tokens of steps that were enqueued, once they are done.
struct Pending {
  SlotCopy copy;
  Event done;
  std::vector<int64_t> decode_ids;  ///< of the sequence in each slot; -1: none
};

void check_positive(const char* name, int64_t value, int64_t most) {
  require<ValueError>(value > 0 && value <= most, "Engine: {} is out of range; got {}; expected 1 to {}", name, value,
                      most);
}

EngineOptions checked(EngineOptions o, const nn::GPT& model) {
  constexpr int64_t kMost = 1 << 16;
  check_positive("sequences", o.sequences, kMost);
  check_positive("block_size", o.block_size, kMost);
  check_positive("prefill_chunk", o.prefill_chunk, kMost);
  const Device device = model.tokens.weight.device();
  if (o.steps_ahead == 0) o.steps_ahead = device.is_cuda() ? 16 : 1;
  check_positive("steps_ahead", o.steps_ahead, kMost);
  require<ValueError>(o.blocks >= 0 && o.blocks <= INT32_MAX,
                      "Engine: blocks is out of range; got {}; expected 0 (enough) to {}", o.blocks, INT32_MAX);
  require<ValueError>(o.stops >= 0 && o.stops <= kMost && o.stop_length >= 0 && o.stop_length <= kMost,
                      "Engine: stops or stop_length is out of range; got {} and {}; expected 0 to {}", o.stops,
                      o.stop_length, kMost);
  require<ValueError>(!model.is_training() || model.config().dropout == 0,
                      "Engine: the model is in training mode, and has dropout; call model.eval()");
  o.block_size = std::min(o.block_size, model.config().context);
  if (o.blocks == 0) o.blocks = o.sequences * ceil_div(model.config().context, o.block_size);
  if (o.buckets.sizes.empty()) o.buckets.sizes = replay::default_sizes(o.buckets.padding, o.sequences);
  std::vector<int64_t>& sizes = o.buckets.sizes;
  std::ranges::sort(sizes);
  require<ValueError>(
      sizes.back() >= o.sequences || !o.buckets.padding,
      "Engine: no bucket holds all sequences; got {} sequences and a largest bucket of {}; give a larger "
      "size, or fewer sequences",
      o.sequences, sizes.back());
  // There are no more rows than sequences.
  std::erase_if(sizes, [&](int64_t size) { return size > o.sequences; });
  if (sizes.empty() || (o.buckets.padding && sizes.back() < o.sequences)) sizes.push_back(o.sequences);
  std::erase_if(o.buckets.executions, [&](const auto& of_size) { return of_size.first > o.sequences; });
  require<ValueError>(o.buckets.trial == nullptr, "Engine: buckets.trial is given; the engine sets it itself");
  o.buckets.device = device;
  if (model.split() && model.split()->size() > 1) {
    // What ranks do together they must all do, and in the same order.
    require<ValueError>(o.buckets.policy == replay::Policy::fixed &&
                            o.buckets.capture != replay::Capture::in_background && o.buckets.memory_budget == 0,
                        "Engine: the steps of a split model are chosen by time or memory, which differ between ranks; "
                        "use Policy::fixed, no capture in the background and no memory_budget");
    if (device.is_cpu())
      o.buckets.execution = replay::Execution::eager, o.buckets.compiled_up_to = 0, o.buckets.executions.clear();
  }
  if (o.buckets.follow.empty()) o.buckets.follow = model.named_parameters();
  return o;
}

}  // namespace

class Engine::State {
 public:
  State(const nn::GPT& model, EngineOptions options);

  void prepare();
  int64_t submit(Request request);
  void cancel(int64_t id);
  std::vector<Update> step();
  bool idle() const { return waiting_.empty() && active_.empty() && updates_.empty(); }
  EngineStats stats() const;

 private:
  replay::BucketOptions buckets();
  void check(const Request& request) const;
  int64_t blocks_for(const Sequence& s) const;
  int64_t free_slot() const;
  void admit();
  void compact();
  bool reads_behind() const { return options_.steps_ahead > 1; }
  void prefill();
  void begin_decoding(Sequence& s);
  bool decode();
  void read(const Pending& pending);
  void append_drawn(Sequence& s, const int64_t* outputs, int64_t drawn, bool ended);
  void end(Sequence& s, std::vector<int64_t> tokens, End why);

  const nn::GPT& model_;
  const EngineOptions options_;
  const Device device_;
  nn::PagedCache cache_;
  Slots slots_;
  const int64_t window_;
  Blocks blocks_;
  std::deque<Sequence> waiting_;
  std::vector<std::unique_ptr<Sequence>> active_;  ///< in the order in which they joined
  std::deque<Pending> pending_;
  std::vector<Update> updates_;
  int64_t next_id_ = 0, next_decode_id_ = 0;
  replay::BucketSet<std::function<void(int64_t)>> decode_;  ///< a step of the first n slots
  int64_t uncopied_ = 0;                                    ///< steps whose draws were not copied for the host
  int64_t ahead_ = 1;  ///< steps to enqueue next: few after somebody joined, so that first tokens are seen soon
  EngineStats stats_;
};

namespace {

int64_t window_of(const EngineOptions& o) { return std::max(o.steps_ahead, std::max<int64_t>(o.stop_length, 1)); }

SlotSizes slot_sizes(const nn::GPT& model, const EngineOptions& o) {
  return {.slots = o.sequences,
          .max_blocks = ceil_div(model.config().context, o.block_size),
          .window = window_of(o),
          .stops = o.stop_length > 0 ? o.stops : 0,
          .stop_length = o.stop_length,
          .seen = o.penalties ? model.config().vocab : 0};
}

}  // namespace

Engine::State::State(const nn::GPT& model, EngineOptions options)
    : model_(model),
      options_(checked(std::move(options), model)),
      device_(model.tokens.weight.device()),
      cache_(model.config(), options_.blocks, options_.block_size,
             {.dtype = model.tokens.weight.dtype(), .device = device_}, model.split() ? model.split()->size() : 1),
      slots_(slot_sizes(model, options_), device_),
      window_(window_of(options_)),
      blocks_(options_.blocks),
      decode_([this](int64_t rows) { slots_.draw(model_.forward(slots_.batch(rows), cache_)); }, buckets()) {}

/// Nothing happens to rows of padding, so all rows are padding in runs that nobody asked for.
replay::BucketOptions Engine::State::buckets() {
  replay::BucketOptions buckets = options_.buckets;
  buckets.trial = [this](bool begins) { begins ? slots_.pause() : slots_.resume(); };
  return buckets;
}

void Engine::State::prepare() {
  const NoGrad quiet;
  const BatchInvariant invariant(options_.batch_invariant);
  decode_.prepare(options_.sequences);
}

EngineStats Engine::State::stats() const {
  EngineStats stats = stats_;
  stats.buckets = decode_.stats();
  return stats;
}

/// For all positions that the text can reach.
int64_t Engine::State::blocks_for(const Sequence& s) const {
  const int64_t positions = s.prompt_positions() + s.last - s.request.drawn;  // the last draw is not stored
  return ceil_div(std::min(positions, model_.config().context), options_.block_size);
}

void Engine::State::check(const Request& r) const {
  const int64_t size = static_cast<int64_t>(r.tokens.size()), vocab = model_.config().vocab;
  const auto check_token = [&](int64_t token) {
    require<IndexError>(token >= 0 && token < vocab, "token {} is not in the vocabulary; expected {}", token,
                        IndexRange{0, vocab});
  };
  require<ValueError>(size > 0, "the request has no tokens; expected at least one to go on from");
  require<ValueError>(r.drawn >= 0 && r.drawn < size, "drawn is out of range; got {} of {} tokens; expected 0 to {}",
                      r.drawn, size, size - 1);
  require<ValueError>(r.limit > 0 && r.limit <= kMostDraws, "limit is out of range; got {}; expected 1 to {}", r.limit,
                      kMostDraws);
  std::ranges::for_each(r.tokens, check_token);
  const Sampling& s = r.sampling;
  // They are stored in f32.
  const auto temperature = static_cast<float>(s.temperature), top_p = static_cast<float>(s.top_p),
             penalty = static_cast<float>(s.repetition_penalty);
  require<ValueError>(temperature >= 0 && std::isfinite(temperature),
                      "temperature is out of range; got {}; expected 0 or more", s.temperature);
  require<ValueError>(s.top_k >= 0, "top_k is negative; got {}; expected 0 (all) or more", s.top_k);
  require<ValueError>(top_p > 0 && s.top_p <= 1, "top_p is out of range; got {}; expected more than 0, at most 1",
                      s.top_p);
  require<ValueError>(std::isnormal(penalty) && penalty > 0,
                      "repetition_penalty is out of range; got {}; expected more than 0", s.repetition_penalty);
  require<ValueError>(s.repetition_penalty == 1 || options_.penalties,
                      "the engine was made without penalties; got a repetition_penalty of {}; set "
                      "EngineOptions::penalties",
                      s.repetition_penalty);
  require<ValueError>(static_cast<int64_t>(r.stops.size()) <= options_.stops,
                      "too many stops; got {}; expected at most {} (EngineOptions::stops)", r.stops.size(),
                      options_.stops);
  for (const auto& run : r.stops) {
    require<ValueError>(!run.empty() && static_cast<int64_t>(run.size()) <= options_.stop_length,
                        "a stop is empty or too long; got {} tokens; expected 1 to {} (EngineOptions::stop_length)",
                        run.size(), options_.stop_length);
    std::ranges::for_each(run, check_token);
  }
}

int64_t Engine::State::submit(Request request) {
  const Running running("submit");
  check(request);
  Sequence s{.id = next_id_, .request = std::move(request), .last = 0};
  s.last = s.request.drawn + s.request.limit;
  s.start = context_start(s.prompt(), s.size(), model_.config().context);
  require<ValueError>(blocks_for(s) <= options_.blocks,
                      "the request needs more positions than the cache has; got {} blocks of {}; expected at most {}; "
                      "ask for fewer tokens, or give EngineOptions::blocks",
                      blocks_for(s), options_.block_size, options_.blocks);
  waiting_.push_back(std::move(s));
  return next_id_++;
}

void Engine::State::cancel(int64_t id) {
  const auto is_it = [&](const auto& s) { return s.id == id; };
  if (const auto found = std::ranges::find_if(waiting_, is_it); found != waiting_.end()) {
    waiting_.erase(found);
    updates_.push_back({id, {}, End::cancelled});
    return;
  }
  for (const auto& s : active_)
    if (s->id == id) return end(*s, {}, End::cancelled);
}

int64_t Engine::State::free_slot() const {
  for (int64_t slot = 0; slot < options_.sequences; ++slot)
    if (std::ranges::none_of(active_, [&](const auto& s) { return s->slot == slot; })) return slot;
  return -1;
}

/// Lets waiting texts join, first come, first served.
void Engine::State::admit() {
  while (!waiting_.empty()) {
    const int64_t slot = free_slot(), needed = blocks_for(waiting_.front());
    if (slot < 0 || blocks_.available() < needed) return;
    slots_.set_blocks(slot, blocks_.first(needed));
    auto s = std::make_unique<Sequence>(std::move(waiting_.front()));
    waiting_.pop_front();
    s->slot = slot;
    s->blocks = blocks_.take(needed);
    active_.push_back(std::move(s));
  }
}

/// Moves sequences to lower slots where that makes the steps smaller.
void Engine::State::compact() {
  if (!waiting_.empty()) return;
  const auto rows = [&](int64_t n) {
    const auto found = std::ranges::lower_bound(options_.buckets.sizes, n);
    return options_.buckets.padding && found != options_.buckets.sizes.end() ? *found : n;
  };
  while (!active_.empty()) {
    const auto highest = std::ranges::max_element(active_, {}, [](const auto& s) { return s->slot; });
    Sequence& s = **highest;
    const int64_t slot = free_slot();
    if (slot < 0 || slot > s.slot || rows(static_cast<int64_t>(active_.size())) >= rows(s.slot + 1)) return;
    slots_.move(s.slot, slot);
    s.slot = slot;
  }
}

/// Reads a chunk of the prompts of those that have joined. Where a prompt is read, decoding begins.
void Engine::State::prefill() {
  std::vector<int64_t> tokens;
  std::vector<int32_t> positions, slots;
  std::vector<std::pair<Sequence*, int64_t>> read;
  for (const auto& s : active_) {
    if (s->decode_id >= 0) continue;
    const int64_t end =
        std::min(s->prompt_positions(), s->stored + options_.prefill_chunk - static_cast<int64_t>(tokens.size()));
    for (int64_t position = s->stored; position < end; ++position) {
      tokens.push_back(s->request.tokens[static_cast<size_t>(s->start + position)]);
      positions.push_back(static_cast<int32_t>(position));
      slots.push_back(static_cast<int32_t>(s->slot));
    }
    read.emplace_back(s.get(), end);
  }
  if (!tokens.empty()) {
    const auto on_device = [&](const auto& values) { return from_data(values, device_); };
    model_.prefill({on_device(tokens), on_device(positions), on_device(slots), slots_.block_table()}, cache_);
    stats_.prefilled += static_cast<int64_t>(tokens.size());
  }
  for (const auto& [s, end] : read) {
    s->stored = end;
    if (end == s->prompt_positions()) begin_decoding(*s);
  }
}

void Engine::State::begin_decoding(Sequence& s) {
  const int64_t drawn = s.request.drawn;
  s.ends_at = std::min(s.last, drawn + model_.config().context - s.stored);
  s.enqueued = drawn;
  slots_.join(s.slot, s.request, s.ends_at, s.stored);
  s.decode_id = next_decode_id_++;
  ahead_ = 1;
}

/// Enqueues steps, and a copy of what they draw. Returns whether there are any.
bool Engine::State::decode() {
  int64_t rows = 0, steps = 0;
  for (const auto& s : active_) {
    if (s->decode_id < 0) continue;
    rows = std::max(rows, s->slot + 1);
    steps = std::max(steps, s->ends_at - s->enqueued);
  }
  // After a failure there may be steps whose draws were not copied; the device keeps the last `window_` ones.
  steps = std::min({steps, ahead_, window_ - uncopied_});
  if (steps == 0 && uncopied_ == 0) return false;
  for (int64_t step = 0; step < steps; ++step) {
    decode_(rows);
    ++stats_.steps, ++uncopied_;
    for (const auto& s : active_)
      if (s->decode_id >= 0) s->enqueued = std::min(s->ends_at, s->enqueued + 1);
  }
  ahead_ = std::min(2 * ahead_, options_.steps_ahead);
  Pending pending{slots_.copy(!reads_behind()), Event(device_),
                  std::vector<int64_t>(static_cast<size_t>(options_.sequences), -1)};
  pending.done.record(current_stream(device_));
  for (const auto& s : active_) pending.decode_ids[static_cast<size_t>(s->slot)] = s->decode_id;
  pending_.push_back(std::move(pending));
  uncopied_ = 0;
  return true;
}

void Engine::State::read(const Pending& pending) {
  if (!pending.done.done()) {
    ++stats_.waits;
    pending.done.synchronize();
  }
  for (size_t slot = 0; slot < pending.decode_ids.size(); ++slot) {
    // A sequence that has ended or was cancelled since is not found.
    const auto found = std::ranges::find_if(
        active_, [&](const auto& s) { return s->decode_id >= 0 && s->decode_id == pending.decode_ids[slot]; });
    if (found == active_.end()) continue;
    append_drawn(**found, pending.copy.outputs.data<int64_t>() + static_cast<int64_t>(slot) * window_,
                 pending.copy.drawn.data<int64_t>()[slot], pending.copy.slots.data<int32_t>()[slot] < 0);
  }
}

void Engine::State::append_drawn(Sequence& s, const int64_t* outputs, int64_t drawn, bool ended) {
  std::vector<int64_t> tokens;
  for (int64_t k = s.request.drawn; k < drawn; ++k) tokens.push_back(outputs[k % window_]);
  s.request.tokens.insert(s.request.tokens.end(), tokens.begin(), tokens.end());
  s.request.drawn = drawn;
  stats_.tokens += static_cast<int64_t>(tokens.size());
  if (ended && s.ends_with_stop()) return end(s, std::move(tokens), End::stop);
  if (ended && drawn == s.last) return end(s, std::move(tokens), End::limit);
  if (!tokens.empty()) updates_.push_back({s.id, std::move(tokens), End::none});
  if (!ended) return;
  // The context is full.
  s.start = context_start(s.prompt(), s.size(), model_.config().context);
  s.stored = 0;
  s.decode_id = -1;
}

void Engine::State::end(Sequence& s, std::vector<int64_t> tokens, End why) {
  if (why == End::cancelled) slots_.leave(s.slot);
  updates_.push_back({s.id, std::move(tokens), why});
  blocks_.give_back(s.blocks);
  std::erase_if(active_, [&](const auto& other) { return other.get() == &s; });
}

std::vector<Update> Engine::State::step() {
  const NoGrad quiet;
  const BatchInvariant invariant(options_.batch_invariant);
  // Errors that kernels report are thrown here, before anything has changed.
  device::throw_reported(device_);
  const device::DeferReports half_way;
  admit();
  compact();
  prefill();
  const bool enqueued = decode();
  // The newest steps run on while the host looks at earlier ones.
  const size_t unread = enqueued && reads_behind() ? 1 : 0;
  for (; pending_.size() > unread; pending_.pop_front()) read(pending_.front());
  return std::exchange(updates_, {});
}

Engine::Engine(const nn::GPT& model, EngineOptions options)
    : state_(std::make_unique<State>(model, std::move(options))) {}
Engine::~Engine() = default;
void Engine::prepare() { state_->prepare(); }
int64_t Engine::submit(Request request) { return state_->submit(std::move(request)); }
void Engine::cancel(int64_t request) { state_->cancel(request); }
std::vector<Update> Engine::step() { return state_->step(); }
bool Engine::idle() const { return state_->idle(); }
EngineStats Engine::stats() const { return state_->stats(); }

std::vector<std::vector<int64_t>> generate(const nn::GPT& model, std::vector<Request> requests, EngineOptions options) {
  options.sequences = std::clamp<int64_t>(static_cast<int64_t>(requests.size()), 1, options.sequences);
  Engine engine(model, std::move(options));
  std::vector<std::vector<int64_t>> texts(requests.size());
  for (Request& request : requests) engine.submit(std::move(request));
  while (!engine.idle())
    for (const Update& update : engine.step()) {
      auto& text = texts[static_cast<size_t>(update.request)];
      text.insert(text.end(), update.tokens.begin(), update.tokens.end());
    }
  return texts;
}

}  // namespace lorry::generate
