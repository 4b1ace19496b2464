#include "lorry/ops/random_capture.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lorry/device/cpu/calls.h"
#include "lorry/memory/upload.h"
#include "lorry/ops/creation.h"

namespace lorry {
namespace {

std::atomic<uint64_t> g_next_number{1};

}  // namespace

constinit thread_local RandomCapture* RandomCapture::t_capture = nullptr;

RandomCapture::RandomCapture(std::span<const Device> devices) {
  const ModeScope nobody_listens(0, kListenerModes);
  for (const Device device : devices)
    states_.push_back(zeros({static_cast<int64_t>(kMaxGenerators), 2}, {kI64, device}));
}

// ---- capture --------------------------------------------------------------------------------------------------------

RandomCapture::Scope::Scope(RandomCapture& capture, Calls calls) : capture_(capture) {
  if (t_capture != nullptr)
    raise_as<CaptureError>(running_or("random capture"), "this thread's draws are being captured already");
  capture.generators_.clear();
  capture.calls_ = calls;
  capture.number_ = g_next_number++;
  capture.first_new_ = detail::RandomSequence::next_id();
  t_capture = &capture;
}

RandomCapture::Scope::~Scope() {
  t_capture = nullptr;
  if (capture_.calls_ == Calls::wait) return;
  for (const Captured& x : capture_.generators_) x.sequence->take(x.draws);
}

size_t RandomCapture::row_of(detail::RandomSequence& sequence) {
  const auto found =
      std::ranges::find(generators_, &sequence, [](const Captured& x) -> const void* { return x.sequence.get(); });
  if (found != generators_.end()) return static_cast<size_t>(found - generators_.begin());
  if (generators_.size() == kMaxGenerators)
    raise_as<CaptureError>(running_or("random capture"),
                           "captured calls draw from too many generators; expected at most {}", kMaxGenerators);
  if (calls_ == Calls::run) {
    const detail::Draws none = sequence.take_by_value(0);
    const formula::RandomState now{none.first_.seed, none.first_.offset};
    write(generators_.size(), {&now, 1});
  }
  generators_.push_back({.sequence = sequence.shared_from_this()});
  return generators_.size() - 1;
}

detail::Draws RandomCapture::take(detail::RandomSequence& sequence, uint64_t count) {
  detail::Draws draws;
  draws.capture_ = this;
  draws.row_ = row_of(sequence);
  Captured& captured = generators_[draws.row_];
  draws.first_.offset = captured.next;
  captured.next += count;
  captured.draws = std::max(captured.draws, captured.next);
  return draws;
}

// ---- runs -----------------------------------------------------------------------------------------------------------

void RandomCapture::advance() {
  if (t_capture != nullptr)
    raise_as<CaptureError>(running_or("random capture"), "draws are advanced while this thread's draws are captured");
  std::array<formula::RandomState, kMaxGenerators> states;
  for (size_t row = 0; row < generators_.size(); ++row) {
    const formula::RandomKey first = generators_[row].sequence->take(generators_[row].draws).first_;
    states[row] = {first.seed, first.offset};
  }
  write(0, std::span(states).first(generators_.size()));
}

uint64_t RandomCapture::draws() const {
  uint64_t all = 0;
  for (const Captured& x : generators_) all += x.draws;
  return all;
}

const Tensor& RandomCapture::states(Device device) const {
  const auto found = std::ranges::find(states_, device, &Tensor::device);
  if (found == states_.end())
    raise_as<CaptureError>(running_or("random capture"),
                           "random numbers are drawn on a device that is not captured; got {}; capture the draws of "
                           "this device too",
                           device);
  return *found;
}

const formula::RandomState* RandomCapture::state(size_t row, Device device) const {
  return static_cast<const formula::RandomState*>(states(device).data_ptr()) + row;
}

void RandomCapture::write(size_t row, std::span<const formula::RandomState> states) const {
  const cpu::RecordCalls no_part_of_the_capture(nullptr);
  for (const Tensor& x : states_)
    memory::upload(static_cast<formula::RandomState*>(x.data_ptr()) + row, x.device(), states.data(),
                   static_cast<int64_t>(states.size_bytes()), current_stream(x.device()));
}

}  // namespace lorry
