#include "lorry/ops/random_sequence.h"

#include <utility>

#include "lorry/ops/random_capture.h"
#include "lorry/tensor/facts.h"

namespace lorry {
namespace {

constinit thread_local bool t_rewound = false;

void announce(Fact fact, const Generator& generator, const formula::RandomKey* key = nullptr) {
  if (detail::facts_heard() && !generator.sequence()->named())
    detail::announce_fact({.fact = fact, .generator = &generator, .key = key});
}

}  // namespace

// ---- generators -----------------------------------------------------------------------------------------------------

Generator::Generator(uint64_t seed) : sequence_(std::make_shared<detail::RandomSequence>(State{seed, 0})) {}
Generator::Generator(const formula::RandomKey& first) : sequence_(std::make_shared<detail::RandomSequence>(first)) {}

void Generator::manual_seed(uint64_t seed) {
  const Running running("manual_seed");
  set_state({seed, 0});
}

Generator::State Generator::state() const {
  announce(Fact::generator_read, *this);
  return sequence_->state();
}

void Generator::set_state(const State& state) {
  announce(Fact::generator_set, *this);
  sequence_->set_state(state);
}

formula::RandomKey Generator::next(Device device) {
  const formula::RandomKey key = sequence_->take(1).key(device);
  if (!t_rewound) announce(Fact::draw, *this, &key);
  return key;
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

namespace detail {

formula::RandomKey next_key(Generator* generator, Device device) {
  return (generator != nullptr ? *generator : default_generator()).next(device);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

uint64_t RandomSequence::next_id() {
  default_generator();
  return s_next_id;
}

/// The capture that counts this thread's draws of the sequence.
RandomCapture* RandomSequence::capture() const {
  RandomCapture* const capture = RandomCapture::t_capture;
  return capture == nullptr || named_ || id_ >= capture->first_new_ ? nullptr : capture;
}

Draws RandomSequence::take(uint64_t count) {
  RandomCapture* const captured = capture();
  return captured != nullptr ? captured->take(*this, count) : take_by_value(count);
}

Draws RandomSequence::take_by_value(uint64_t count) {
  Draws draws;
  const std::scoped_lock lock(mutex_);
  draws.first_ = {state_.seed, state_.offset, memory_};
  state_.offset += count;
  return draws;
}

Generator::State RandomSequence::state() const {
  if (capture() != nullptr)
    raise_as<CaptureError>(running_or("generator"),
                           "a generator's state is read while its draws are captured; expected a read between runs");
  const std::scoped_lock lock(mutex_);
  return state_;
}

void RandomSequence::set_state(const Generator::State& state) {
  if (capture() != nullptr)
    raise_as<CaptureError>(running_or("generator"),
                           "a generator is seeded while its draws are captured; got seed {} and offset {}; seed it "
                           "between runs",
                           state.seed, state.offset);
  const std::scoped_lock lock(mutex_);
  state_ = state;
}

RandomSequence::Position RandomSequence::position() {
  if (RandomCapture* const captured = capture())
    return {{0, captured->generators_[captured->row_of(*this)].next}, captured->number_};
  return {state(), 0};
}

void RandomSequence::rewind(const Position& to) {
  RandomCapture* const captured = capture();
  if (to.capture != (captured != nullptr ? captured->number_ : 0))
    raise_as<CaptureError>(running_or("generator"),
                           "draws are to be made again in another capture than at first; run forward and backward of "
                           "a checkpointed function in one capture, or both outside");
  if (captured == nullptr) return set_state(to.state);
  captured->generators_[captured->row_of(*this)].next = to.state.offset;
}

RewindScope::RewindScope(Generator& generator, const RandomSequence::Position& to)
    : sequence_(generator.sequence()), before_(sequence_->position()) {
  sequence_->rewind(to);
  inside_another_ = std::exchange(t_rewound, true);
}

RewindScope::~RewindScope() {
  t_rewound = inside_another_;
  sequence_->rewind(before_);
}

formula::RandomKey Draws::key(Device device, uint64_t i) const {
  formula::RandomKey key = first_;
  key.offset += i;
  if (capture_ != nullptr) key.state = capture_->state(row_, device);
  return key;
}

}  // namespace detail
}  // namespace lorry
