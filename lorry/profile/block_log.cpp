#include "lorry/profile/block_log.h"

#include <atomic>
#include <exception>
#include <utility>

#include "lorry/base/error.h"
#include "lorry/base/scope.h"

namespace lorry::profile {
namespace {

constinit thread_local BlockLog* t_log = nullptr;
/// The observer before the first log. Logs of several threads share one entry in the chain.
constinit std::atomic<const memory::Observer*> g_before{nullptr};
constinit std::atomic<int> g_logs{0};

}  // namespace

const memory::Observer BlockLog::kObserver{.allocated = allocated, .released = released};

BlockLog::BlockLog(std::string allocator, int64_t (*size)(int64_t bytes))
    : allocator_(std::move(allocator)), size_(size) {
  t_log = this;
  if (g_logs.fetch_add(1) == 0) g_before.store(memory::set_observer(&kObserver));
}

BlockLog::~BlockLog() {
  t_log = nullptr;
  if (g_logs.fetch_sub(1) > 1) return;
  const memory::Observer* const now = memory::set_observer(nullptr);
  memory::set_observer(now == &kObserver ? g_before.load() : now);
}

void BlockLog::require_complete(const char* where) const {
  if (failed_) raise_as<ValueError>(where, "no memory is left for the list of blocks");
  if (memory::detail::g_observer.load() != &kObserver)
    raise_as<ValueError>(where, "a profile session began or ended meanwhile, so blocks were missed; try again");
}

void BlockLog::allocated(const memory::BlockView& block) noexcept {
  if (t_log != nullptr && t_log->allocator_ == block.allocator) return t_log->add(block);
  if (const memory::Observer* const before = g_before.load(std::memory_order_acquire)) before->allocated(block);
}

void BlockLog::released(const memory::BlockView& block) noexcept {
  if (t_log != nullptr && t_log->allocator_ == block.allocator) return t_log->remove(block);
  if (const memory::Observer* const before = g_before.load(std::memory_order_acquire)) before->released(block);
}

void BlockLog::add(const memory::BlockView& block) noexcept {
  try {
    const int64_t bytes = size_(block.bytes);
    std::string path = Scope::path();
    bytes_ += bytes;
    if (bytes_ > peak_.bytes) peak_ = {bytes_, phase_, block.made_by, path};
    blocks_[block.data] = {bytes, taken_++, std::move(path)};
  } catch (const std::exception&) {
    failed_ = true;
  }
}

void BlockLog::remove(const memory::BlockView& block) noexcept {
  const auto found = blocks_.find(block.data);
  if (found == blocks_.end()) return;
  bytes_ -= found->second.bytes;
  blocks_.erase(found);
}

}  // namespace lorry::profile
