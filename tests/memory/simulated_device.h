#pragma once

// A device that exists only as bookkeeping: streams whose work is done when the test says so, events that are positions
// in a stream, and memory that is address space, whose pages can be discarded. It is the oracle of the caching
// allocator's tests: work enqueued on memory that earlier work of another tenancy may still use must be ordered behind
// it, and it knows which pages are in use.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "lorry/memory/caching_allocator.h"

namespace lorry::test {

class SimulatedDevice {
 public:
  static constexpr int64_t kAddressSpace = int64_t{16} << 30;

  /// `misaligned` offsets every piece of memory from the 2 MB boundary that the allocator's quick way relies on.
  explicit SimulatedDevice(int64_t capacity, bool misaligned = false)
      : capacity_(capacity), offset_(misaligned ? 4096 : 0) {
    mapping_ = mmap(nullptr, static_cast<size_t>(kAddressSpace), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(mapping_, MAP_FAILED);
    const auto start = reinterpret_cast<uintptr_t>(mapping_), page = uintptr_t{2} << 20;
    base_ = static_cast<char*>(mapping_) + ((start + page - 1) / page * page - start);
    gaps_[0] = kAddressSpace - (4 << 20);
  }
  ~SimulatedDevice() { munmap(mapping_, static_cast<size_t>(kAddressSpace)); }
  SimulatedDevice(const SimulatedDevice&) = delete;

  static Stream stream(int number) {
    return {{DeviceType::cuda, 0}, reinterpret_cast<void*>(static_cast<intptr_t>(number))};
  }

  /// Enqueues work that uses the bytes on behalf of a tenancy (one allocate to one release).
  void use(Stream on, const void* data, int64_t bytes, int64_t tenancy) {
    const std::scoped_lock lock(mutex_);
    const auto* low = static_cast<const char*>(data);
    for (int64_t page = (low - base_) / kPage; page <= (low + bytes - 1 - base_) / kPage; ++page) bring_back(page);
    for (const auto& [other, queue] : queues_)
      for (const Work& w : queue.pending)
        if (w.tenancy != tenancy && w.low < low + bytes && low < w.high && other != on.handle &&
            queues_[on.handle].behind[other] < w.position)
          ADD_FAILURE() << "tenancy " << tenancy << " on stream " << on.handle << " uses memory that tenancy "
                        << w.tenancy << " still uses on stream " << other;
    Queue& queue = queues_[on.handle];
    queue.pending.push_back({++queue.enqueued, low, low + bytes, tenancy});
  }
  /// What is enqueued on `later` from now on runs behind what is enqueued on `earlier` so far.
  void join(Stream later, Stream earlier) {
    if (later == earlier) return;
    const std::scoped_lock lock(mutex_);
    Queue &to = queues_[later.handle], &from = queues_[earlier.handle];
    for (const auto& [handle, position] : from.behind) to.behind[handle] = std::max(to.behind[handle], position);
    to.behind[earlier.handle] = from.enqueued;
    to.pending.push_back({++to.enqueued, nullptr, nullptr, -1, &from, from.enqueued});
  }
  /// Does the next `steps` pieces of a stream's work.
  void advance(Stream on, int64_t steps) {
    const std::scoped_lock lock(mutex_);
    finish(queues_[on.handle], steps);
  }
  void finish_all() {
    const std::scoped_lock lock(mutex_);
    for (auto& [handle, queue] : queues_) finish(queue, INT64_MAX);
  }
  void capture(Stream on, bool yes) {
    const std::scoped_lock lock(mutex_);
    queues_[on.handle].capturing = yes;
  }
  int64_t taken() const { return taken_; }
  /// Bytes in use: taken, less the pages that were discarded and not used since.
  int64_t present() {
    const std::scoped_lock lock(mutex_);
    return taken_ - discarded_pages_ * kPage;
  }
  /// How often the allocator asked whether a stream is captured.
  int64_t capture_questions() const { return capture_questions_; }
  int64_t pieces() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t events_in_use() const { return events_made_ - static_cast<int64_t>(idle_.size()); }

  std::unique_ptr<memory::Provider> provider() { return std::make_unique<Provider>(*this); }

 private:
  static constexpr int64_t kPage = 4096;
  void bring_back(int64_t page) {
    if (page < 0 || !discarded_[static_cast<size_t>(page)]) return;
    discarded_[static_cast<size_t>(page)] = false;
    --discarded_pages_;
  }

  struct Queue;
  struct Work {
    int64_t position;
    const char *low, *high;
    int64_t tenancy;
    Queue* awaited = nullptr;  // a join: the other stream, and how far it must be
    int64_t awaited_position = 0;
  };
  struct Queue {
    int64_t enqueued = 0, done = 0;
    std::map<void*, int64_t> behind;  // what is enqueued next runs behind this much of other streams
    bool capturing = false;
    std::deque<Work> pending;
  };
  struct Event {
    Queue* queue;
    int64_t position;
  };

  static void finish(Queue& queue, int64_t steps) {
    queue.done = steps > queue.enqueued - queue.done ? queue.enqueued : queue.done + steps;
    while (!queue.pending.empty() && queue.pending.front().position <= queue.done) {
      const Work work = queue.pending.front();
      queue.pending.pop_front();
      if (work.awaited != nullptr && work.awaited->done < work.awaited_position)
        finish(*work.awaited, work.awaited_position - work.awaited->done);
    }
  }

  class Provider final : public memory::Provider {
   public:
    explicit Provider(SimulatedDevice& device) : d_(device) {}
    void* take(int64_t bytes) override {
      const std::scoped_lock lock(d_.mutex_);
      if (d_.taken_ - d_.discarded_pages_ * kPage + bytes > d_.capacity_) return nullptr;
      const int64_t room = (bytes + (4 << 20) - 1) / (2 << 20) * (2 << 20);  // for the offset too
      for (auto gap = d_.gaps_.begin(); gap != d_.gaps_.end(); ++gap) {
        const auto [at, size] = *gap;
        if (size < room) continue;
        d_.gaps_.erase(gap);
        if (size > room) d_.gaps_[at + room] = size - room;
        d_.taken_ += bytes;
        d_.sizes_[at] = {bytes, room};
        return d_.base_ + at + d_.offset_;
      }
      ADD_FAILURE() << "the simulated address space is full";
      return nullptr;
    }
    bool waits_for_device() const override { return true; }
    void give_back(void* data, int64_t bytes) noexcept override {
      const waits::Reason reason(waits::Wait::memory);
      waits::around_noexcept("the host waited for a simulated device", [&] { wait_and_free(data, bytes); });
    }
    void wait_and_free(void* data, int64_t bytes) {
      const std::scoped_lock lock(d_.mutex_);
      for (auto& [handle, queue] : d_.queues_) {
        EXPECT_FALSE(queue.capturing) << "waited for the device during a capture";
        finish(queue, INT64_MAX);
      }
      const int64_t at = static_cast<char*>(data) - d_.base_ - d_.offset_, first = (at + d_.offset_) / kPage;
      for (int64_t page = first; page < first + bytes / kPage; ++page) d_.bring_back(page);
      const auto found = d_.sizes_.find(at);
      ASSERT_NE(found, d_.sizes_.end());
      ASSERT_EQ(found->second.first, bytes);
      int64_t room = found->second.second;
      d_.taken_ -= bytes;
      d_.sizes_.erase(found);
      auto next = d_.gaps_.lower_bound(at);
      if (next != d_.gaps_.end() && next->first == at + room) {
        room += next->second;
        next = d_.gaps_.erase(next);
      }
      if (next != d_.gaps_.begin() && std::prev(next)->first + std::prev(next)->second == at) {
        std::prev(next)->second += room;
      } else {
        d_.gaps_[at] = room;
      }
    }
    int64_t discard(void* data, int64_t bytes, int64_t page) noexcept override {
      const std::scoped_lock lock(d_.mutex_);
      const int64_t at = static_cast<char*>(data) - d_.base_, first = (at + page - 1) / page * page,
                    end = (at + bytes) / page * page;
      for (int64_t p = first / kPage; p < end / kPage; ++p) {
        d_.discarded_pages_ += !d_.discarded_[static_cast<size_t>(p)];
        d_.discarded_[static_cast<size_t>(p)] = true;
      }
      return std::max<int64_t>(0, end - first);
    }
    bool has_room(int64_t bytes, int64_t reserved) override { return reserved + bytes <= d_.capacity_; }
    void* record(Stream stream) noexcept override {
      const std::scoped_lock lock(d_.mutex_);
      Queue& queue = d_.queues_[stream.handle];
      EXPECT_FALSE(queue.capturing) << "an event was recorded into a capture";
      Event* event = nullptr;
      if (d_.idle_.empty()) {
        event = &d_.events_.emplace_back();
        ++d_.events_made_;
      } else {
        event = d_.idle_.back();
        d_.idle_.pop_back();
      }
      *event = {&queue, queue.enqueued};
      return event;
    }
    bool done(Stream stream, void* event) noexcept override {
      const std::scoped_lock lock(d_.mutex_);
      const Event* e = own(stream, event);
      return e->queue->done >= e->position;
    }
    void wait(Stream stream, void* event) noexcept override {
      const std::scoped_lock lock(d_.mutex_);
      const Event* e = own(stream, event);
      if (e->queue->done < e->position) finish(*e->queue, e->position - e->queue->done);
    }
    void recycle(Stream stream, void* event) noexcept override {
      const std::scoped_lock lock(d_.mutex_);
      d_.idle_.push_back(own(stream, event));
    }
    bool capturing(Stream stream) noexcept override {
      const std::scoped_lock lock(d_.mutex_);
      ++d_.capture_questions_;
      return d_.queues_[stream.handle].capturing;
    }
    void fill(void* data, unsigned char value, int64_t bytes, Stream) noexcept override {
      std::memset(data, value, static_cast<size_t>(bytes));
    }
    bool holds(const void* data, unsigned char value, int64_t bytes, Stream) noexcept override {
      const auto* at = static_cast<const unsigned char*>(data);
      return bytes == 0 || (at[0] == value && std::memcmp(at, at + 1, static_cast<size_t>(bytes - 1)) == 0);
    }

   private:
    /// An event, which must be the stream's.
    Event* own(Stream stream, void* event) {
      auto* const e = static_cast<Event*>(event);
      EXPECT_EQ(e->queue, &d_.queues_[stream.handle]) << "an event of another stream";
      return e;
    }

    SimulatedDevice& d_;
  };

  std::mutex mutex_;
  const int64_t capacity_, offset_;
  void* mapping_ = nullptr;
  char* base_ = nullptr;
  std::map<int64_t, int64_t> gaps_;  // free address space: where, bytes
  // what was taken: where, bytes asked for, bytes of address space
  std::map<int64_t, std::pair<int64_t, int64_t>> sizes_;
  std::map<void*, Queue> queues_;
  std::deque<Event> events_;
  std::vector<Event*> idle_;
  std::vector<bool> discarded_ = std::vector<bool>(static_cast<size_t>(kAddressSpace / kPage));
  int64_t taken_ = 0, discarded_pages_ = 0, events_made_ = 0, capture_questions_ = 0;
};

/// A caching allocator of such a device, and two streams.
struct Setting {
  explicit Setting(int64_t capacity = int64_t{1} << 30, memory::Caching caching = memory::Caching::on,
                   bool misaligned = false)
      : device(capacity, misaligned), allocator(device.provider(), "simulated:0", caching) {}
  SimulatedDevice device;
  memory::CachingAllocator allocator;
  const Stream first = SimulatedDevice::stream(0), second = SimulatedDevice::stream(1);

  void* allocate(int64_t bytes, Stream stream) { return allocator.allocate(bytes, stream); }
  void release(void* data, int64_t bytes) { allocator.release(data, bytes); }
};

}  // namespace lorry::test
