#include "lorry/parallel/member.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "lorry/base/env.h"
#include "lorry/base/error.h"

namespace lorry::parallel {
namespace {

/// How long a program has for ending by itself after a failure, and after the launcher has told it to end.
constexpr std::chrono::milliseconds kGrace{10'000}, kGraceOfSignal{700};
/// How much longer than the coordinator a rank waits for its verdict.
constexpr auto kMargin = std::chrono::seconds(5);

/// Set by SIGTERM: launchers send it to all ranks when one has ended.
std::atomic<bool> g_terminated = false;
std::atomic<int> g_wake = -1;

void on_terminate(int) {
  g_terminated = true;
  const uint64_t one = 1;
  if (const int wake = g_wake; wake >= 0) [[maybe_unused]]
    const ssize_t written = ::write(wake, &one, sizeof(one));
}

/// Leaves a handler alone that the program has set.
void handle_terminate() {
  struct sigaction now {};
  if (::sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction own {};
  own.sa_handler = on_terminate;
  own.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &own, nullptr);
}

/// What the processes of a run share, and those of another do not: it may use the same port.
std::string name_of_run() {
  for (const char* variable : {"PMIX_NAMESPACE", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"})
    if (const auto value = env::text(variable)) return *value;
  return "";
}

void write_address(const std::string& file, int port) {
  const std::string beside = file + ".new";
  std::ofstream(beside) << port << "\n";
  std::error_code error;
  std::filesystem::rename(beside, file, error);
  if (error)
    raise_as<IoError>("parallel", "rank 0 cannot write '{}', where the others look for it: {}", file, error.message());
}

}  // namespace

Member::Member(const Launch& launch, double timeout_s)
    : rank_(launch.rank), size_(launch.size), timeout_s_(timeout_s), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  try {
    arrive(launch);
  } catch (...) {
    ::close(wake_);
    throw;
  }
  g_wake = wake_;
  handle_terminate();
  thread_ = std::thread([this] { serve(); });
  try {
    std::unique_lock lock(mutex_);
    wait_until(lock, [&] { return all_arrived_; });
  } catch (...) {
    end_thread();
    throw;
  }
}

void Member::end_thread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake();
  thread_.join();
  g_wake = -1;
  ::close(wake_);
}

void Member::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
}

void Member::leave() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_left_, true)) return;
  for (const auto& [name, calls] : groups_) flush(false, *calls);
  send({.kind = Kind::leave});
}

Member::~Member() {
  if (std::uncaught_exceptions() > 0 && !has_failed()) fail("it was ended by an exception");
  leave();
  if (coordinator_ != nullptr) coordinator_->wait_for_all_to_leave();
  end_thread();
}

/// Connects, or throws.
void Member::arrive(const Launch& launch) {
  if (rank_ == 0) {
    Socket listening = listen_on(launch.host, launch.port);
    const int port = port_of(listening);
    coordinator_ = std::make_unique<Coordinator>(std::move(listening), size_, name_of_run(), timeout_s_);
    if (launch.host.empty()) write_address(launch.file, port);
    std::string why;
    socket_ = connect_to(launch.host.empty() ? "127.0.0.1" : launch.host, port, timeout_s_, why);
    if (!socket_) raise_as<ParallelError>("parallel", "rank 0 cannot reach itself at {}: {}", launch.host, why);
  } else {
    socket_ = connect_to_coordinator(launch);
  }
  send({.kind = Kind::hello, .numbers = {kProtocol, rank_, size_}, .texts = {LORRY_VERSION, name_of_run()}});
}

Socket Member::connect_to_coordinator(const Launch& launch) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_));
  std::string why = "it has not written " + launch.file;
  do {
    int port = launch.port;
    if (launch.host.empty()) std::ifstream(launch.file) >> port;
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    // A file may be one of a run that was killed, so its port is looked up again.
    if (port != 0)
      if (Socket socket =
              connect_to(launch.host.empty() ? "127.0.0.1" : launch.host, port, launch.host.empty() ? 0 : left, why))
        return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (Clock::now() < end);
  raise_as<ParallelError>("parallel", "start-up: rank 0 has not been found within {:g} s{}: {}", timeout_s_,
                          launch.host.empty() ? "" : fmt::format(" at {}:{}", launch.host, launch.port), why);
}

// ---- what the program calls -----------------------------------------------------------------------------------------

void Member::wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, bool patient) {
  const auto patience =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_)) + kMargin;
  const auto is_over = [&] { return done() || has_failed(); };
  bool ended = true;
  if (patient)
    changed_.wait(lock, is_over);
  else
    ended = changed_.wait_for(lock, patience, is_over);
  if (done()) return;  // also where a rank has failed since, for what came may say why
  lock.unlock();
  if (!ended) set_failed(fmt::format("the coordinator (rank 0) has not answered within {:g} s", timeout_s_));
  throw_failed();
}

std::vector<std::string> Member::exchange(const std::string& key, std::span<const int> members, std::string own,
                                          bool patient) {
  throw_if_failed();
  std::unique_lock lock(mutex_);
  Message message{.kind = Kind::exchange, .numbers = {patient}, .texts = {key, std::move(own)}};
  message.numbers.insert(message.numbers.end(), members.begin(), members.end());
  send(message);
  wait_until(
      lock, [&] { return exchanged_.contains(key); }, patient);
  return std::move(exchanged_.extract(key).mapped());
}

Member::Calls* Member::add_group(const std::string& name, std::span<const int> members) {
  const std::lock_guard lock(mutex_);
  Message message{.kind = Kind::group, .numbers = {}, .texts = {name}};
  message.numbers.assign(members.begin(), members.end());
  send(message);
  return groups_.emplace(name, std::make_unique<Calls>(name)).first->second.get();
}

int64_t Member::note_call(Calls& calls, uint64_t signature, const std::function<std::string()>& what) {
  throw_if_failed();
  std::unique_lock lock(mutex_);
  const int64_t number = calls.made_++;
  calls.unsent_.push_back(static_cast<int64_t>(signature));
  if (!calls.known_.insert(signature).second) return number;
  send({.kind = Kind::call_kind, .numbers = {static_cast<int64_t>(signature)}, .texts = {what()}});
  flush(true, calls);
  wait_until(lock, [&] { return calls.agreed_ > number; });
  return number;
}

void Member::report_overdue(Calls& calls, int64_t number) {
  const std::lock_guard lock(mutex_);
  flush(false, calls);
  send({.kind = Kind::overdue, .numbers = {number}, .texts = {calls.name_}});
}

void Member::throw_overdue(Calls& calls, int64_t number) {
  report_overdue(calls, number);
  std::unique_lock lock(mutex_);
  wait_until(lock, [] { return false; });
  throw_failed();
}

void Member::note_end(const Calls& calls) {
  const std::lock_guard lock(mutex_);
  send({.kind = Kind::ends, .texts = {calls.name_}});
}

void Member::note_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  send({.kind = Kind::beat, .numbers = {step}});
}

void Member::fail(const std::string& why) {
  const int64_t step = step_;
  std::string sentence =
      fmt::format("rank {} has failed{}: {}", rank_, step >= 0 ? fmt::format(" in step {}", step) : "", why);
  const std::lock_guard lock(mutex_);
  send({.kind = Kind::failed, .numbers = {rank_}, .texts = {std::move(sentence)}});
  is_told_ = true;
}

void Member::throw_failed() {
  is_told_ = true;
  std::string sentence;
  {
    const std::lock_guard lock(mutex_);
    sentence = sentence_;
  }
  const int64_t step = step_;
  if (step >= 0) sentence += fmt::format("; rank {} was in step {}", rank_, step);
  raise<ParallelError>("{}", sentence);
}

void Member::watch(Watched& what) {
  const std::lock_guard lock(watched_mutex_);
  watched_.push_back(&what);
}

void Member::unwatch(Watched& what) {
  const std::lock_guard lock(watched_mutex_);
  std::erase(watched_, &what);
}

// ---- the connection -------------------------------------------------------------------------------------------------

void Member::send(const Message& message) { send_message(socket_, message); }

void Member::flush(bool asks, Calls& calls) {
  if (calls.unsent_.empty()) return;
  Message message{.kind = Kind::calls, .numbers = {asks, step_, calls.first_unsent_}, .texts = {calls.name_}};
  message.numbers.insert(message.numbers.end(), calls.unsent_.begin(), calls.unsent_.end());
  calls.first_unsent_ += static_cast<int64_t>(calls.unsent_.size());
  calls.unsent_.clear();
  send(message);
}

void Member::set_failed(std::string sentence) {
  {
    const std::lock_guard lock(mutex_);
    if (has_failed()) return;
    sentence_ = std::move(sentence), failed_at_ = Clock::now();
    has_failed_->store(true, std::memory_order_release);
  }
  changed_.notify_all();
  const std::lock_guard lock(watched_mutex_);
  for (Watched* const x : watched_) x->abort();
}

void Member::handle(const Message& message) {
  if (message.kind == Kind::failed && message.numbers.size() == 1 && message.texts.size() == 1)
    return set_failed(message.texts[0]);
  {
    const std::lock_guard lock(mutex_);
    if (message.kind == Kind::welcome) {
      all_arrived_ = true;
    } else if (message.kind == Kind::exchanged && !message.texts.empty()) {
      exchanged_[message.texts[0]].assign(message.texts.begin() + 1, message.texts.end());
    } else if (message.kind == Kind::agreed && message.numbers.size() == 1 && message.texts.size() == 1) {
      if (const auto found = groups_.find(message.texts[0]); found != groups_.end())
        found->second->agreed_ = message.numbers[0];
    }
  }
  changed_.notify_all();
}

void Member::serve() {
  Inbox inbox(kMostBytes);
  bool is_open = true;
  for (;;) {
    pollfd waiting[] = {{.fd = is_open ? socket_.descriptor() : -1, .events = POLLIN, .revents = 0},
                        {.fd = wake_, .events = POLLIN, .revents = 0}};
    ::poll(waiting, 2, kTick);
    const Clock::time_point now = Clock::now();
    if (waiting[0].revents != 0) {
      is_open = inbox.receive(socket_);
      heard_ = now;
      while (const std::optional<Message> message = inbox.next()) handle(*message);
    }
    bool ends, has_left;
    {
      const std::lock_guard lock(mutex_);
      ends = ends_, has_left = has_left_;
      for (const auto& [name, calls] : groups_) flush(false, *calls);
      if (now - last_beat_ >= kBeat) send({.kind = Kind::beat, .numbers = {step_}}), last_beat_ = now;
    }
    if (ends) return;
    if (!is_open && !has_left) set_failed("rank 0, which coordinates the others, has ended");
    if (!has_left && std::chrono::duration<double>(now - heard_).count() > timeout_s_)
      set_failed(
          fmt::format("rank 0, which coordinates the others, has not been heard from for {:g} s: it is "
                      "stopped, or its machine cannot be reached",
                      timeout_s_));
    if (!has_failed()) {
      const std::lock_guard lock(watched_mutex_);
      for (Watched* const x : watched_) x->check_time();
    }
    end_process_if_stuck();
  }
}

/// The thread that computes may wait for something that never comes, or may be about to be killed by the launcher.
void Member::end_process_if_stuck() {
  static Clock::time_point terminated_at{};
  const Clock::time_point now = Clock::now();
  const bool terminated = g_terminated;
  if (terminated && terminated_at == Clock::time_point{}) terminated_at = now;
  // Why the launcher ends this rank is about to be heard, if another rank has ended.
  const auto since_signal = terminated ? now - terminated_at : Clock::duration::zero();
  // A program that was told may go on for as long as the launcher lets it.
  const bool ends = !has_failed() || is_told_ ? since_signal > kGraceOfSignal
                                              : since_signal > kGraceOfSignal / 2 || now - failed_at_ > kGrace;
  if (!ends) return;
  const std::string why = has_failed() ? sentence_ : "the launcher has ended this rank (SIGTERM)";
  const int64_t step = step_;
  std::fprintf(stderr, "lorry: %s%s\n", why.c_str(),
               step >= 0 ? fmt::format("; rank {} was in step {}", rank_, step).c_str() : "");
  std::fflush(stderr);
  std::_Exit(1);
}

}  // namespace lorry::parallel
