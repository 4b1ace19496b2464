#include "lorry/parallel/coordinator.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "lorry/base/error.h"

namespace lorry::parallel {
namespace {

constexpr size_t kMostStrangers = 256;

std::string seconds_text(std::chrono::duration<double> time) { return fmt::format("{:g} s", time.count()); }

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t shown = std::min(ranks.size(), kMost);
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? "" : is_last ? " and " : ", ", ranks[i]);
  }
  return shown < ranks.size() ? text + fmt::format(" and {} more", ranks.size() - shown) : text;
}

Coordinator::Coordinator(Socket listening, int size, std::string run, double timeout_s)
    : listening_(std::move(listening)), size_(size), run_(std::move(run)), timeout_(timeout_s) {
  thread_ = std::thread([this] { serve(); });
}

Coordinator::~Coordinator() {
  ends_ = true;
  thread_.join();
}

void Coordinator::wait_for_all_to_leave() const {
  const Time end = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_);
  while (left_ < size_ && !has_failed_ && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

void Coordinator::serve() {
  while (!ends_) {
    std::vector<pollfd> waiting{{.fd = listening_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) waiting.push_back({.fd = peer.socket.descriptor(), .events = POLLIN, .revents = 0});
    ::poll(waiting.data(), waiting.size(), kTick);
    const Time now = Clock::now();
    for (size_t i = 1; i < waiting.size(); ++i)
      if (waiting[i].revents != 0) receive(peers_[i - 1], now);
    if (waiting[0].revents != 0) accept(now);
    std::erase_if(peers_, [](const Peer& peer) { return peer.is_gone; });
    check_times(now);
  }
}

void Coordinator::accept(Time now) {
  while (Socket socket = accept_from(listening_)) {
    const auto strangers = std::ranges::count_if(peers_, [](const Peer& peer) { return peer.rank < 0; });
    if (static_cast<size_t>(strangers) < kMostStrangers)
      peers_.push_back({.socket = std::move(socket), .inbox = Inbox(kMostOfAStranger), .heard = now});
  }
}

void Coordinator::receive(Peer& from, Time now) {
  const bool is_open = from.inbox.receive(from.socket);
  from.heard = now;
  while (const std::optional<Message> message = from.inbox.next()) {
    handle(from, *message, now);
    if (from.is_gone) return;
  }
  if (!is_open || from.inbox.is_broken()) ended(from);
}

void Coordinator::ended(Peer& peer) {
  peer.is_gone = true;
  if (peer.rank >= 0 && !peer.has_left) fail(peer.rank, fmt::format("rank {} has ended{}", peer.rank, where(peer)));
}

std::string Coordinator::where(const Peer& peer) {
  std::string text;
  if (peer.step >= 0) text += fmt::format(" in step {}", peer.step);
  if (!peer.last_call.empty()) text += fmt::format("{} after {}", text.empty() ? "" : ",", peer.last_call);
  return text;
}

Coordinator::Peer* Coordinator::peer_of(int rank) {
  const auto found = std::ranges::find_if(peers_, [&](const Peer& peer) { return peer.rank == rank; });
  return found != peers_.end() ? &*found : nullptr;
}

std::string Coordinator::call_name(int64_t signature) const {
  const auto found = call_names_.find(signature);
  return found != call_names_.end() ? found->second : "a call";
}

void Coordinator::to_all(const Message& message) {
  for (const Peer& peer : peers_)
    if (peer.rank >= 0 && !peer.is_gone) send_message(peer.socket, message);
}

void Coordinator::fail(int rank, std::string sentence) {
  if (has_failed_) return;
  sentence_ = std::move(sentence), failed_rank_ = rank;
  to_all({.kind = Kind::failed, .numbers = {rank}, .texts = {sentence_}});
  has_failed_ = true;
}

void Coordinator::handle(Peer& from, const Message& message, Time now) {
  if (from.rank < 0) {
    if (message.kind == Kind::hello)
      handle_hello(from, message);
    else
      from.is_gone = true;
    return;
  }
  const auto has = [&](size_t numbers, size_t texts) {
    const bool right = message.numbers.size() >= numbers && message.texts.size() >= texts;
    if (!right) ended(from);
    return right;
  };
  switch (message.kind) {
    case Kind::group:
      if (!has(1, 1)) return;
      if (Group& group = groups_[message.texts[0]]; group.members.empty()) {
        for (const int64_t member : message.numbers) group.members.push_back(static_cast<int>(member));
        group.made.resize(group.members.size());
      }
      return;
    case Kind::exchange:
      return has(2, 2) ? handle_exchange(from, message, now) : void();
    case Kind::call_kind:
      if (has(1, 1)) call_names_[message.numbers[0]] = message.texts[0];
      return;
    case Kind::calls:
      return has(3, 1) ? handle_calls(from, message, now) : void();
    case Kind::beat:
      if (has(1, 0)) from.step = message.numbers[0];
      return;
    case Kind::overdue:
      return has(1, 1) ? handle_overdue(message, now) : void();
    case Kind::ends:
      return has(0, 1) ? handle_end(from, message.texts[0]) : void();
    case Kind::failed:
      return has(0, 1) ? fail(from.rank, message.texts[0]) : void();
    case Kind::leave:
      from.has_left = true, ++left_;
      for (const auto& [name, group] : groups_) check_leavers(name, group);
      for (const auto& [key, exchange] : exchanges_) check_leavers(key, exchange);
      return;
    default:
      ended(from);
  }
}

void Coordinator::handle_hello(Peer& from, const Message& message) {
  const auto refuse = [&](std::string why) {
    send_message(from.socket, {.kind = Kind::failed, .numbers = {-1}, .texts = {std::move(why)}});
    from.is_gone = true;
  };
  if (message.numbers.size() != 3 || message.texts.size() != 2) return refuse("the coordinator was sent no hello");
  if (message.texts[1] != run_)
    return refuse(
        "start-up: at the address of rank 0 listens rank 0 of another run; choose another port with "
        "LORRY_ADDRESS=HOST:PORT");
  const int64_t protocol = message.numbers[0], rank = message.numbers[1], size = message.numbers[2];
  const std::string& version = message.texts[0];
  if (version_.empty()) version_ = version;
  if (protocol != kProtocol || version != version_ || size != size_ || rank < 0 || rank >= size_) {
    std::string sentence = fmt::format(
        "start-up: rank {} of {} is of Lorry {} (protocol {}), where the coordinator expects one of {} ranks of Lorry "
        "{} (protocol {})",
        rank, size, version, protocol, size_, version_, kProtocol);
    refuse(sentence);
    return fail(-1, std::move(sentence));
  }
  if (peer_of(static_cast<int>(rank)) != nullptr) {
    std::string sentence = fmt::format("start-up: two processes say that they are rank {} of {}", rank, size_);
    refuse(sentence);
    return fail(static_cast<int>(rank), std::move(sentence));
  }
  from.rank = static_cast<int>(rank);
  from.inbox.allow(kMostBytes);
  if (has_failed_) send_message(from.socket, {.kind = Kind::failed, .numbers = {failed_rank_}, .texts = {sentence_}});
  if (++arrived_ == size_) to_all({.kind = Kind::welcome});
}

void Coordinator::handle_exchange(Peer& from, const Message& message, Time now) {
  Exchange& exchange = exchanges_[message.texts[0]];
  const std::vector<int64_t> members(message.numbers.begin() + 1, message.numbers.end());
  if (exchange.parts.empty()) exchange = {.members = members, .may_take_long = message.numbers[0] != 0, .begun = now};
  if (exchange.members != members)
    return fail(from.rank, fmt::format("rank {} names other members than rank {} for the same group ({})", from.rank,
                                       exchange.parts.begin()->first, message.texts[0]));
  exchange.parts[from.rank] = message.texts[1];
  if (exchange.parts.size() < exchange.members.size()) return check_leavers(message.texts[0], exchange);
  Message reply{.kind = Kind::exchanged, .texts = {message.texts[0]}};
  for (const int64_t member : exchange.members) reply.texts.push_back(exchange.parts[static_cast<int>(member)]);
  for (const int64_t member : exchange.members)
    if (const Peer* const peer = peer_of(static_cast<int>(member))) send_message(peer->socket, reply);
  exchanges_.erase(message.texts[0]);
}

void Coordinator::handle_calls(Peer& from, const Message& message, Time now) {
  const std::string& name = message.texts[0];
  Group& group = groups_[name];
  const auto member = std::ranges::find(group.members, from.rank) - group.members.begin();
  if (member == static_cast<ptrdiff_t>(group.members.size())) return ended(from);
  int64_t& made = group.made[static_cast<size_t>(member)];
  from.step = message.numbers[1];
  if (message.numbers[2] != made) return ended(from);
  for (size_t i = 3; i < message.numbers.size(); ++i, ++made) {
    const int64_t signature = message.numbers[i];
    const auto at = static_cast<size_t>(made - group.all_made);
    if (at == group.calls.size()) group.calls.push_back({signature, from.rank});
    const Call& call = group.calls[at];
    from.last_call = fmt::format("{} (call {} of {})", call_name(signature), made, name);
    if (call.signature != signature)
      return fail(from.rank, fmt::format("rank {} calls {} where rank {} calls {} (call {} of {})", from.rank,
                                         call_name(signature), call.first_rank, call_name(call.signature), made, name));
  }
  if (message.numbers[0] != 0) group.asking.emplace(from.rank, now);
  const int64_t all = *std::ranges::min_element(group.made);
  if (all > group.all_made) {
    group.calls.erase(group.calls.begin(), group.calls.begin() + (all - group.all_made));
    group.all_made = all;
  }
  for (auto it = group.asking.begin(); it != group.asking.end();) {
    const auto asker = std::ranges::find(group.members, it->first) - group.members.begin();
    const bool is_agreed = group.made[static_cast<size_t>(asker)] <= group.all_made;
    if (const Peer* const peer = is_agreed ? peer_of(it->first) : nullptr)
      send_message(peer->socket, {.kind = Kind::agreed, .numbers = {group.all_made}, .texts = {name}});
    it = is_agreed ? group.asking.erase(it) : std::next(it);
  }
  check_leavers(name, group);
}

/// A rank that has left makes no more calls, so whoever has made more than it waits in vain.
void Coordinator::check_leavers(const std::string& name, const Group& group) {
  if (group.calls.empty()) return;
  for (size_t i = 0; i < group.members.size(); ++i) {
    const Peer* const peer = peer_of(group.members[i]);
    if (group.made[i] > group.all_made || (peer != nullptr && !peer->has_left)) continue;
    return fail(group.members[i],
                fmt::format("rank {} has left{}, and rank {} calls {} (call {} of {})", group.members[i],
                            peer != nullptr ? where(*peer) : "", group.calls.front().first_rank,
                            call_name(group.calls.front().signature), group.all_made, name));
  }
}

void Coordinator::handle_end(Peer& from, const std::string& name) {
  Group& group = groups_[name];
  group.ending.insert(from.rank);
  if (group.ending.size() >= group.members.size()) return group.ending.clear();
  for (const auto& [key, exchange] : exchanges_) check_leavers(key, exchange);
}

bool Coordinator::ends_group_of(int rank, int other) const {
  return std::ranges::any_of(groups_, [&](const auto& named) {
    const Group& group = named.second;
    return group.ending.contains(rank) && !group.ending.contains(other) &&
           std::ranges::find(group.members, other) != group.members.end();
  });
}

void Coordinator::check_leavers(const std::string& key, const Exchange& exchange) {
  if (arrived_ < size_) return;
  for (const int64_t x : exchange.members) {
    const int member = static_cast<int>(x);
    const Peer* const peer = peer_of(member);
    if (exchange.parts.contains(member)) continue;
    const bool comes_to_nothing = peer == nullptr || peer->has_left;
    const auto waits = std::ranges::find_if(
        exchange.parts, [&](const auto& part) { return comes_to_nothing || ends_group_of(member, part.first); });
    if (waits == exchange.parts.end()) continue;
    return fail(member, fmt::format("rank {} has left{}, and rank {} waits for it in {}", member,
                                    peer != nullptr ? where(*peer) : "", waits->first, key));
  }
}

void Coordinator::handle_overdue(const Message& message, Time now) {
  const auto found = groups_.find(message.texts[0]);
  if (found == groups_.end()) return;
  const Group& group = found->second;
  const int64_t number = message.numbers[0];
  std::vector<int> behind;
  for (size_t i = 0; i < group.members.size(); ++i)
    if (group.made[i] <= number) behind.push_back(group.members[i]);
  if (behind.empty()) {
    const std::string late = fmt::format("all ranks have come to call {} of {}, and it is not done after {}", number,
                                         found->first, seconds_text(timeout_));
    // A rank that stopped in the call has not been silent for the whole time-out yet.
    const Peer* silent = nullptr;
    for (const int member : group.members)
      if (const Peer* const peer = peer_of(member); peer != nullptr && !peer->has_left)
        if (now - peer->heard > 2 * kBeat && (silent == nullptr || peer->heard < silent->heard)) silent = peer;
    if (silent == nullptr) return fail(-1, late);
    return fail(silent->rank, fmt::format("{}: rank {} has not been heard from for {:.0f} s{}", late, silent->rank,
                                          std::chrono::duration<double>(now - silent->heard).count(), where(*silent)));
  }
  const auto at = static_cast<size_t>(number - group.all_made);
  const std::string what = at < group.calls.size() ? call_name(group.calls[at].signature) : "a call";
  const Peer* const peer = peer_of(behind[0]);
  fail(behind[0], fmt::format("{} {} not come to {} (call {} of {}) within {}{}", ranks_text(behind),
                              behind.size() == 1 ? "has" : "have", what, number, found->first, seconds_text(timeout_),
                              peer != nullptr && peer->step >= 0 ? "; it is" + where(*peer) : ""));
}

void Coordinator::check_times(Time now) {
  if (now - last_beat_ >= kBeat) to_all({.kind = Kind::beat, .numbers = {-1}}), last_beat_ = now;
  if (has_failed_) return;
  std::vector<int> missing;
  for (int rank = 0; arrived_ < size_ && now - begun_ > timeout_ && rank < size_; ++rank)
    if (peer_of(rank) == nullptr) missing.push_back(rank);
  if (!missing.empty())
    return fail(missing[0], fmt::format("start-up: {} of {} {} not arrived within {}", ranks_text(missing), size_,
                                        missing.size() == 1 ? "has" : "have", seconds_text(timeout_)));
  for (Peer& peer : peers_) {
    if (peer.rank < 0 && now - peer.heard > timeout_) peer.is_gone = true;
    if (peer.rank >= 0 && !peer.has_left && now - peer.heard > timeout_)
      return fail(peer.rank,
                  fmt::format("rank {} has not been heard from for {}{}: it is stopped, or its machine cannot "
                              "be reached",
                              peer.rank, seconds_text(timeout_), where(peer)));
  }
  for (const auto& [key, exchange] : exchanges_) {
    if (exchange.may_take_long || now - exchange.begun <= timeout_) continue;
    std::vector<int> behind;
    for (const int64_t member : exchange.members)
      if (!exchange.parts.contains(static_cast<int>(member))) behind.push_back(static_cast<int>(member));
    return fail(behind[0], fmt::format("{} {} not come to {} within {}", ranks_text(behind),
                                       behind.size() == 1 ? "has" : "have", key, seconds_text(timeout_)));
  }
  for (const auto& [name, group] : groups_)
    for (const auto& [rank, since] : group.asking)
      if (now - since > timeout_ && !group.calls.empty())
        return handle_overdue({.kind = Kind::overdue, .numbers = {group.all_made}, .texts = {name}}, now);
}

}  // namespace lorry::parallel
