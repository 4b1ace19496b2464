#pragma once

// Sockets between the ranks and their coordinator (coordinator.h), and the messages that they carry. What arrives may
// come from anybody who can reach the port: lengths are bounded, and what is no message ends the connection.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lorry::parallel {

/// Owns a socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// Listens on a port, 0: any; on this machine alone if host is a loopback address or empty. Throws IoError that says
/// what holds it up, such as a port that is taken.
Socket listen_on(const std::string& host, int port);
/// The port that it listens on.
int port_of(const Socket& listening);
/// The next connection; none if nobody waits.
Socket accept_from(const Socket& listening);
/// Connects within `seconds`, trying again while nobody listens. None if nobody did; `why` then says the last reason.
Socket connect_to(const std::string& host, int port, double seconds, std::string& why);

/// What a rank and the coordinator tell each other. On the wire: the bytes that follow (u32), the kind (u8), how many
/// numbers (u32) and the numbers (i64), how many texts (u32), and each text's length (u32) and bytes; little endian.
struct Message {
  enum class Kind : uint8_t {
    hello,      ///< to the coordinator: {protocol, rank, size}, {version of Lorry, which run it is of}
    welcome,    ///< from it: all have arrived
    group,      ///< to: {members...}, {name}
    exchange,   ///< to: {whether it may take long, members...}, {key, what this rank has}
    exchanged,  ///< from: {key, what each member has...}
    call_kind,  ///< to: {signature}, {what it is of}
    calls,      ///< to: {whether an agreement is awaited, step, first call's number, signatures...}, {group}
    agreed,     ///< from: {how many calls of the group all members have made alike}, {group}
    beat,       ///< both ways, every second; to: {step}
    overdue,    ///< to: {the call's number}, {group}: the call has taken longer than the time-out
    ends,       ///< to: {}, {group}: this rank waits until all members end the group
    failed,     ///< both ways: {rank}, {one sentence}
    leave,      ///< to: this rank has nothing more to do with the others
    count
  };
  Kind kind{};
  std::vector<int64_t> numbers = {};
  std::vector<std::string> texts = {};
};

using Kind = Message::Kind;

/// Sends a whole message. False if the other side is gone or does not take it for 10 s.
bool send_message(const Socket& to, const Message& message);

/// What has arrived of messages.
class Inbox {
 public:
  /// most: bytes of a message
  explicit Inbox(size_t most) : most_(most) {}
  void allow(size_t most) { most_ = most; }

  /// Takes what has arrived, without waiting. False: the other side has ended.
  bool receive(const Socket& from);
  /// The next whole message. None if there is none yet, or if what came is no message.
  std::optional<Message> next();
  bool is_broken() const { return is_broken_; }

 private:
  size_t most_;
  std::string bytes_;
  bool is_broken_ = false;
};

}  // namespace lorry::parallel
