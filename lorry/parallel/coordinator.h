#pragma once

// The coordinator: a thread of rank 0 that all ranks are connected to. No tensor passes through it. It lets the ranks
// find each other, compares the calls that they make, and tells all of them when one has failed: then no rank waits
// for what will not come, and every rank can say whose fault it was.
//
//   - A rank whose connection ends before it has left has died.
//   - A rank that has sent nothing for as long as the time-out is stopped, or cannot be reached.
//   - Calls are numbered in each group. If two ranks make different ones under the same number, both are named.
//   - A call that takes longer than the time-out is the fault of the ranks that have not come to it.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lorry/parallel/socket.h"

namespace lorry::parallel {

class Coordinator {
 public:
  /// Serves the `size` ranks of a run, which is a name that they share, from a thread of its own.
  Coordinator(Socket listening, int size, std::string run, double timeout_s);
  /// Ends at once, whoever is still connected.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  /// Waits until all ranks have left or one has failed, at most as long as the time-out.
  void wait_for_all_to_leave() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  struct Peer {
    Socket socket;
    Inbox inbox;
    Time heard;
    int rank = -1;  ///< unknown before its hello
    int64_t step = -1;
    std::string last_call = {};
    bool has_left = false;
    bool is_gone = false;
  };
  struct Call {
    int64_t signature;
    int first_rank;  ///< that made it
  };
  struct Group {
    std::vector<int> members;
    std::vector<int64_t> made;   ///< by member: how many calls
    std::deque<Call> calls;      ///< that not all members have made yet
    int64_t all_made = 0;        ///< calls before those
    std::map<int, Time> asking;  ///< ranks that wait for an agreement, since when
    std::set<int> ending;        ///< ranks that wait until all members end the group
  };
  struct Exchange {
    std::vector<int64_t> members = {};
    bool may_take_long = false;
    std::map<int, std::string> parts = {};
    Time begun = {};
  };

  void serve();
  void accept(Time now);
  void receive(Peer& from, Time now);
  void handle(Peer& from, const Message& message, Time now);
  void handle_hello(Peer& from, const Message& message);
  void handle_exchange(Peer& from, const Message& message, Time now);
  void handle_calls(Peer& from, const Message& message, Time now);
  void handle_overdue(const Message& message, Time now);
  void handle_end(Peer& from, const std::string& name);
  void check_times(Time now);
  void check_leavers(const std::string& name, const Group& group);
  void check_leavers(const std::string& key, const Exchange& exchange);
  /// Whether the rank waits for another, in the end of a group, and comes to nothing else before.
  bool ends_group_of(int rank, int other) const;
  void ended(Peer& peer);
  void fail(int rank, std::string sentence);
  void to_all(const Message& message);
  /// The calls' numbers and contents, for sentences: "all_reduce of f32 [3, 4]".
  std::string call_name(int64_t signature) const;
  /// "in step 17, after all_reduce of f32 [3, 4]"
  static std::string where(const Peer& peer);
  Peer* peer_of(int rank);

  const Socket listening_;
  const int size_;
  const std::string run_;
  const std::chrono::duration<double> timeout_;
  const Time begun_ = Clock::now();
  std::deque<Peer> peers_;
  int arrived_ = 0;
  std::string version_;  ///< of the first rank that came
  std::map<std::string, Group> groups_;
  std::map<std::string, Exchange> exchanges_;
  std::map<int64_t, std::string> call_names_;
  std::string sentence_;  ///< of the failure
  int failed_rank_ = -1;
  Time last_beat_ = begun_;
  std::atomic<int> left_ = 0;
  std::atomic<bool> has_failed_ = false, ends_ = false;
  std::thread thread_;
};

/// "rank 3", "ranks 1 and 3", "ranks 1, 2 and 5"; of more than eight the first eight and how many more.
std::string ranks_text(const std::vector<int>& ranks);

/// How often both sides say that they are there, and how long they sleep at most, in milliseconds.
inline constexpr std::chrono::seconds kBeat{1};
inline constexpr int kTick = 50;
/// What both sides speak; another number is refused.
inline constexpr int64_t kProtocol = 2;
/// The largest messages: of a rank, and of somebody who has not said hello.
inline constexpr size_t kMostBytes = size_t{1} << 24, kMostOfAStranger = 4096;

}  // namespace lorry::parallel
