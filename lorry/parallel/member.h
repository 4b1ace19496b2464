#pragma once

// A rank's side of the coordinator (coordinator.h): its connection, and the thread that watches it. One for a process.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "lorry/parallel/coordinator.h"
#include "lorry/parallel/launch.h"

namespace lorry::parallel {

class Member {
 public:
  /// Finds the other ranks; rank 0 also starts the coordinator. Returns when all have arrived. Throws ParallelError
  /// that names who has not within the time-out, and IoError if rank 0 cannot listen.
  Member(const Launch& launch, double timeout_s);
  /// Leaves, if it has not. While an exception is under way, it says that this rank has failed.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  double timeout_s() const { return timeout_s_; }
  /// Says that the others must not wait for this rank any more. What they do still reaches it.
  void leave();

  /// Hands out what each of the members, which are ranks in rising order, has under this key; in their order. Throws
  /// ParallelError if one does not come: within the time-out, or, if `patient`, before it ends or stops.
  std::vector<std::string> exchange(const std::string& key, std::span<const int> members, std::string own,
                                    bool patient = false);

  /// The calls of a group of ranks.
  class Calls;
  Calls* add_group(const std::string& name, std::span<const int> members);
  /// Says that this rank waits until all members end the group, as it does.
  void note_end(const Calls& calls);
  /// Notes the next call of a group. A call of this signature that has not been made before waits until all members
  /// have made the same: so no rank sends what another does not expect. Others are compared meanwhile. `what` says what
  /// the signature stands for. Returns the call's number. Throws ParallelError.
  int64_t note_call(Calls& calls, uint64_t signature, const std::function<std::string()>& what);
  /// A call of the group has taken longer than the time-out: asks the coordinator whose fault it is. All ranks fail.
  void report_overdue(Calls& calls, int64_t number);
  /// The same, and throws the sentence.
  [[noreturn]] void throw_overdue(Calls& calls, int64_t number);

  /// The step that this rank is in, for sentences.
  void note_step(int64_t step);
  /// Tells the others that this rank has failed.
  void fail(const std::string& why);
  bool has_failed() const { return has_failed_->load(std::memory_order_acquire); }
  /// The same for threads that may outlive this.
  std::shared_ptr<const std::atomic<bool>> failed_flag() const { return has_failed_; }
  /// Throws ParallelError if a rank has failed.
  void throw_if_failed() {
    if (has_failed()) [[unlikely]]
      throw_failed();
  }
  [[noreturn]] void throw_failed();

  /// What the watching thread looks after.
  class Watched {
   public:
    virtual ~Watched() = default;
    virtual void check_time() = 0;      ///< every 50 ms: whether something takes longer than the time-out
    virtual void abort() noexcept = 0;  ///< once, when a rank has failed: ends what this process waits for
  };
  void watch(Watched& what);
  /// Does not return while a function of it runs.
  void unwatch(Watched& what);

 private:
  using Clock = std::chrono::steady_clock;
  void arrive(const Launch& launch);
  void end_thread();
  void wake();
  Socket connect_to_coordinator(const Launch& launch);
  void serve();
  void handle(const Message& message);
  void flush(bool asks, Calls& calls);
  void send(const Message& message);
  void set_failed(std::string sentence);
  void end_process_if_stuck();
  void wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, bool patient = false);

  const int rank_, size_;
  const double timeout_s_;
  std::unique_ptr<Coordinator> coordinator_;  ///< on rank 0
  Socket socket_;
  int wake_ = -1;  ///< an eventfd that ends the watching thread's sleep

  std::mutex mutex_;  ///< of all below
  std::condition_variable changed_;
  bool all_arrived_ = false, has_left_ = false, ends_ = false;
  std::map<std::string, std::vector<std::string>> exchanged_;
  std::map<std::string, std::unique_ptr<Calls>> groups_;
  std::string sentence_;
  Clock::time_point failed_at_{}, heard_ = Clock::now(), last_beat_{};
  std::mutex watched_mutex_;
  std::vector<Watched*> watched_;

  std::atomic<int64_t> step_ = -1;
  const std::shared_ptr<std::atomic<bool>> has_failed_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> is_told_ = false;  ///< the program has been thrown the failure
  std::thread thread_;
};

/// What the coordinator is told of the calls of a group.
class Member::Calls {
 public:
  explicit Calls(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }

 private:
  friend class Member;
  const std::string name_;
  int64_t made_ = 0, agreed_ = 0;
  int64_t first_unsent_ = 0;
  std::vector<int64_t> unsent_;  ///< signatures
  std::unordered_set<uint64_t> known_;
};

}  // namespace lorry::parallel
