#include "lorry/profile/thread_log.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "lorry/base/call_stack.h"

namespace lorry::profile {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15u; }

/// In four chains, because each step of one waits for the multiplication before it. Frames beyond the depth are null.
uint64_t hash_of(const Place& place) {
  static_assert(kFrames % 4 == 0);
  uint64_t chains[4] = {place.path, static_cast<uint64_t>(place.depth), 0, 0};
  for (int i = 0; i < place.depth; i += 4)
    for (int k = 0; k < 4; ++k) chains[k] = mix(chains[k], reinterpret_cast<uintptr_t>(place.frames[i + k]));
  const uint64_t hash = mix(mix(chains[0], chains[1]), mix(chains[2], chains[3]));
  return hash ^ hash >> 32;
}

OperandRecord record_of(const Tensor* x) {
  OperandRecord record;
  if (x == nullptr || !x->defined()) {
    record.is_number = true;
    return record;
  }
  record.dtype = x->dtype(), record.device = x->device(), record.sizes = x->sizes();
  record.contiguous = x->node()->contiguous, record.pinned = x->node()->storage->pinned();
  record.requires_grad = x->node()->requires_grad;
  if (!record.contiguous) record.strides = x->strides();
  return record;
}

/// The words that tell lists of operands apart, and their hash.
class KeyWriter {
 public:
  explicit KeyWriter(size_t inputs) { add(inputs); }
  void add(const Tensor* x) {
    if (x == nullptr || !x->defined()) return add(uint64_t{0});
    const lorry::detail::TensorNode& node = *x->node();
    const Device device = x->device();
    const auto rank = static_cast<uint64_t>(node.layout.rank);
    add(uint64_t{1} | uint64_t{node.contiguous} << 1 | uint64_t{node.requires_grad} << 2 |
        uint64_t{node.storage->pinned()} << 3 | rank << 8 | static_cast<uint64_t>(node.dtype) << 16 |
        static_cast<uint64_t>(device.type) << 24 | static_cast<uint64_t>(static_cast<uint8_t>(device.index)) << 32);
    for (int d = 0; d < node.layout.rank; ++d) add(static_cast<uint64_t>(node.layout.sizes[d]));
    if (node.contiguous) return;
    for (int d = 0; d < node.layout.rank; ++d) add(static_cast<uint64_t>(node.layout.strides[d]));
  }
  std::span<const uint64_t> words() const { return {words_, count_}; }
  uint64_t hash() const { return hash_ ^ hash_ >> 32; }

 private:
  void add(uint64_t word) {
    words_[count_++] = word;
    hash_ = mix(hash_, word);
  }
  uint64_t words_[1 + kMostOperands * (1 + 2 * kMaxRank)];
  size_t count_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace

ThreadLog::ThreadLog(uint32_t n, bool stacks)
    : number(n), names(1), paths(1), places(1), operand_lists(1), part_lists(1), stacks_(stacks) {
  place_table_.resize(1024), operand_table_.resize(1024);
  open_.reserve(64);
  thread.id = syscall(SYS_gettid);
}

void ThreadLog::begin(uint64_t now) {
  counters_ = counters();
  thread.cpu_ns = -counters_.cpu_ns;
  last_ = now;
}

ThreadLog::Counters ThreadLog::counters() {
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return {steady_ns(), thread_cpu_ns(), use.ru_nvcsw};
}

void ThreadLog::note_long_gap(uint64_t now) {
  const Counters was = counters_;
  counters_ = counters();
  const int64_t off = std::max<int64_t>(0, (counters_.ns - was.ns) - (counters_.cpu_ns - was.cpu_ns));
  count(gaps.push({last_, now, counters_.sleeps > was.sleeps ? off : 0}));
  last_ = now;
}

LoggedSpan* ThreadLog::open(SpanKind kind, size_t most) noexcept {
  const uint32_t parent = innermost_number();
  try {
    open_.push_back({&lost_span_, 0});
  } catch (const std::bad_alloc&) {
    lose();
    return nullptr;
  }
  if (LoggedSpan* const span = spans.appended() < most ? spans.append() : nullptr)
    open_.back().span = span, open_.back().number = static_cast<uint32_t>(spans.appended());
  else
    lose();
  LoggedSpan* const opened = open_.back().span;
  opened->kind = kind, opened->parent = parent;
  return opened;
}

void ThreadLog::close(uint64_t end) {
  if (open_.empty()) return;
  LoggedSpan& span = *open_.back().span;
  // Time off the processor inside a call is not that of the next gap.
  if (end - span.begin > kLongGap) [[unlikely]]
    note_counters();
  span.end = last_ = end;
  open_.pop_back();
  if (open_.empty()) spans.publish();
}

uint32_t ThreadLog::here() {
  Place place;
  place.path = path_;
  if (stacks_) place.depth = call_stack(place.frames);
  return number_of(place);
}

uint32_t ThreadLog::number_of(const Place& place) {
  const size_t mask = place_table_.size() - 1;
  size_t at = hash_of(place) & mask;
  for (; place_table_[at] != 0; at = (at + 1) & mask)
    if (places[place_table_[at]] == place) return place_table_[at];
  if (places.size() >= kMostPlaces) return 0;
  const auto added = static_cast<uint32_t>(places.size());
  {
    const std::scoped_lock lock(mutex);
    places.push_back(place);
  }
  place_table_[at] = added;
  if (places.size() * 2 > place_table_.size()) grow_table();
  return added;
}

void ThreadLog::grow_table() {
  std::vector<uint32_t> larger(place_table_.size() * 2);
  const size_t mask = larger.size() - 1;
  for (uint32_t i = 1; i < places.size(); ++i) {
    size_t at = hash_of(places[i]) & mask;
    while (larger[at] != 0) at = (at + 1) & mask;
    larger[at] = i;
  }
  place_table_ = std::move(larger);
}

uint32_t ThreadLog::name(std::string_view text) {
  if (text.empty()) return 0;
  const auto [at, is_new] = name_numbers_.try_emplace(std::string(text), static_cast<uint32_t>(names.size()));
  if (is_new) {
    const std::scoped_lock lock(mutex);
    names.emplace_back(text);
  }
  return at->second;
}

void ThreadLog::enter(std::string path) {
  outer_paths_.push_back(path_);
  const auto [at, is_new] = path_numbers_.try_emplace(std::move(path), static_cast<uint32_t>(paths.size()));
  if (is_new) {
    const std::scoped_lock lock(mutex);
    paths.push_back(at->first);
  }
  path_ = at->first.empty() ? 0 : at->second;
}

void ThreadLog::leave() {
  if (outer_paths_.empty()) return;
  path_ = outer_paths_.back();
  outer_paths_.pop_back();
}

uint32_t ThreadLog::place_of(const std::string& path, const std::vector<const void*>& frames) {
  if (path.empty() && frames.empty()) return 0;
  Place place;
  enter(path);
  place.path = path_;
  leave();
  place.depth = static_cast<int>(std::min<size_t>(frames.size(), kFrames));
  std::copy_n(frames.begin(), place.depth, place.frames);
  return number_of(place);
}

void ThreadLog::describe(LoggedSpan& span, const SpanView& view) {
  const uint64_t key = view.id * 8 + static_cast<uint64_t>(view.kind);
  LoggedSpan made;
  const auto known = view.id != 0 ? described_.find(key) : described_.end();
  if (known != described_.end()) {
    made = known->second;
  } else {
    SpanDescription text;
    if (view.describe != nullptr) view.describe(view.object, text);
    made.name = name(text.name), made.place = place_of(text.path, text.frames);
    made.note_cost(text.cost), made.origin_or_parts = view.origin;
    if (!text.parts.empty()) {
      std::vector<LoggedPart> parts;
      for (const SpanPart& x : text.parts) parts.push_back({name(x.name), place_of(x.path, x.frames), x.nodes, x.cost});
      const std::scoped_lock lock(mutex);
      made.origin_or_parts = static_cast<uint32_t>(part_lists.size());
      part_lists.push_back(std::move(parts));
    }
    if (view.id != 0) described_.emplace(key, made);
  }
  span.name = made.name, span.place = made.place;
  span.bytes = made.bytes, span.flops = made.flops, span.dtype = made.dtype;
  span.origin_or_parts = made.origin_or_parts;
}

void ThreadLog::note_operands(LoggedSpan& span, const door::CallView& call) {
  const size_t inputs = std::min(call.inputs.size(), kMostOperands);
  const size_t outputs = std::min(call.outputs.size(), kMostOperands - inputs);
  span.first_storage = static_cast<uint32_t>(storages.appended());
  KeyWriter key(inputs);
  const auto add = [&](const Tensor* x) {
    key.add(x);
    count(storages.push(x != nullptr && x->defined() ? x->node()->storage->id() : 0));
  };
  for (size_t i = 0; i < inputs; ++i) add(call.inputs[i].tensor());
  for (size_t i = 0; i < outputs; ++i) add(&call.outputs[i]);
  OperandKey& found = find_operands(key.hash(), key.words());
  span.operands = found.number;
  if (found.number != 0) return;
  OperandList list{.inputs = static_cast<int32_t>(inputs), .operands = {}};
  for (size_t i = 0; i < inputs; ++i) list.operands.push_back(record_of(call.inputs[i].tensor()));
  for (size_t i = 0; i < outputs; ++i) list.operands.push_back(record_of(&call.outputs[i]));
  span.operands = static_cast<uint32_t>(operand_lists.size());
  found = {key.hash(), key_words_.size(), key.words().size(), span.operands};
  key_words_.insert(key_words_.end(), key.words().begin(), key.words().end());
  {
    const std::scoped_lock lock(mutex);
    operand_lists.push_back(std::move(list));
  }
  if (operand_lists.size() * 2 > operand_table_.size()) grow_operand_table();
}

ThreadLog::OperandKey& ThreadLog::find_operands(uint64_t hash, std::span<const uint64_t> key) {
  const size_t mask = operand_table_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    OperandKey& x = operand_table_[at];
    const auto first = key_words_.begin() + static_cast<std::ptrdiff_t>(x.first);
    if (x.number == 0 || (x.hash == hash && x.words == key.size() && std::equal(key.begin(), key.end(), first)))
      return x;
  }
}

void ThreadLog::grow_operand_table() {
  std::vector<OperandKey> larger(operand_table_.size() * 2);
  const size_t mask = larger.size() - 1;
  for (const OperandKey& x : operand_table_) {
    if (x.number == 0) continue;
    size_t at = x.hash & mask;
    while (larger[at].number != 0) at = (at + 1) & mask;
    larger[at] = x;
  }
  operand_table_ = std::move(larger);
}

}  // namespace lorry::profile
