#include "lorry/parallel/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "lorry/base/error.h"

namespace lorry::parallel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kHeader = 4;

struct AddressList {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list{nullptr, ::freeaddrinfo};
  std::string why;
};
AddressList addresses_of(const char* host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM, hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  AddressList result;
  if (const int error = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found); error != 0)
    result.why = ::gai_strerror(error);
  result.list.reset(found);
  return result;
}

void set_options(int descriptor) {
  const int on = 1;
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof(v4));
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof(v6));
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

/// Connects within `milliseconds`; 0 or the error's number.
int connect_once(int descriptor, const addrinfo& to, int milliseconds) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
  if (::connect(descriptor, to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
    if (::poll(&waiting, 1, milliseconds) <= 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  ::fcntl(descriptor, F_SETFL, flags);
  return 0;
}

void write_number(std::string& to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i) & 0xff);
}

/// Reads a message. What is not there reads as 0, and is remembered.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    const std::string_view part = take(bytes);
    for (size_t i = 0; i < part.size(); ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(part[i])) << (8 * i);
    return value;
  }
  std::optional<Message> message() {
    Message x{.kind = static_cast<Message::Kind>(number(1))};
    const uint64_t numbers = number(4);
    is_whole_ = is_whole_ && numbers <= left_.size() / 8;
    for (uint64_t i = 0; is_whole_ && i < numbers; ++i) x.numbers.push_back(static_cast<int64_t>(number(8)));
    const uint64_t texts = number(4);
    is_whole_ = is_whole_ && texts <= left_.size() / 4;
    for (uint64_t i = 0; is_whole_ && i < texts; ++i) x.texts.emplace_back(take(number(4)));
    if (!is_whole_ || !left_.empty() || x.kind >= Message::Kind::count) return std::nullopt;
    return x;
  }

 private:
  std::string_view take(uint64_t bytes) {
    is_whole_ = is_whole_ && bytes <= left_.size();
    if (!is_whole_) return {};
    const std::string_view part = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return part;
  }
  std::string_view left_;
  bool is_whole_ = true;
};

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket listen_on(const std::string& host, int port) {
  const AddressList own = addresses_of(host.empty() ? "127.0.0.1" : host.c_str(), port, 0);
  if (!own.list)
    raise_as<IoError>("parallel", "the address of rank 0 is not known; got '{}' ({}); set LORRY_ADDRESS=HOST:PORT",
                      host, own.why);
  std::string why;
  for (const addrinfo* x = own.list.get(); x != nullptr; x = x->ai_next) {
    Socket socket(::socket(x->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    const int on = 1;
    ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ::fcntl(socket.descriptor(), F_SETFL, O_NONBLOCK);
    // A name that others use may stand for another address of this machine, so all of them are listened on.
    int error = 0;
    if (is_loopback(*x->ai_addr)) {
      error = ::bind(socket.descriptor(), x->ai_addr, x->ai_addrlen);
    } else {
      const AddressList any = addresses_of(x->ai_family == AF_INET ? "0.0.0.0" : "::", port, AI_NUMERICHOST);
      error = any.list ? ::bind(socket.descriptor(), any.list->ai_addr, any.list->ai_addrlen) : -1;
    }
    if (error == 0 && ::listen(socket.descriptor(), SOMAXCONN) == 0) return socket;
    why = std::strerror(errno);
  }
  raise_as<IoError>("parallel", "rank 0 cannot listen on {}:{}: {}; choose another port with LORRY_ADDRESS=HOST:PORT",
                    host, port, why);
}

int port_of(const Socket& listening) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  ::getsockname(listening.descriptor(), reinterpret_cast<sockaddr*>(&own), &size);
  sockaddr_in v4;
  std::memcpy(&v4, &own, sizeof(v4));  // the port lies at the same place in both families
  return ntohs(v4.sin_port);
}

Socket accept_from(const Socket& listening) {
  Socket socket(::accept4(listening.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket) set_options(socket.descriptor());
  return socket;
}

Socket connect_to(const std::string& host, int port, double seconds, std::string& why) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  do {
    const AddressList to = addresses_of(host.c_str(), port, 0);
    if (!to.list) why = to.why;
    for (const addrinfo* x = to.list.get(); x != nullptr; x = x->ai_next) {
      Socket socket(::socket(x->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!socket) continue;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      const int error = connect_once(socket.descriptor(), *x, static_cast<int>(std::max<int64_t>(left, 1)));
      if (error == 0) {
        set_options(socket.descriptor());
        return socket;
      }
      why = std::strerror(error);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < end);
  return {};
}

bool send_message(const Socket& to, const Message& message) {
  std::string bytes(kHeader, '\0');
  bytes += static_cast<char>(message.kind);
  write_number(bytes, message.numbers.size(), 4);
  for (const int64_t x : message.numbers) write_number(bytes, static_cast<uint64_t>(x), 8);
  write_number(bytes, message.texts.size(), 4);
  for (const std::string& x : message.texts) {
    write_number(bytes, x.size(), 4);
    bytes += x;
  }
  std::string size;
  write_number(size, bytes.size() - kHeader, kHeader);
  bytes.replace(0, kHeader, size);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(to.descriptor(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool Inbox::receive(const Socket& from) {
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::recv(from.descriptor(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    bytes_.append(buffer, static_cast<size_t>(n));
    if (bytes_.size() > most_ + kHeader) return true;  // the rest when these are read
  }
}

std::optional<Message> Inbox::next() {
  if (is_broken_ || bytes_.size() < kHeader) return std::nullopt;
  const auto size = static_cast<size_t>(Reader(std::string_view(bytes_).substr(0, kHeader)).number(kHeader));
  is_broken_ = size > most_;
  if (is_broken_ || bytes_.size() < kHeader + size) return std::nullopt;
  Reader reader(std::string_view(bytes_).substr(kHeader, size));
  std::optional<Message> message = reader.message();
  bytes_.erase(0, kHeader + size);
  is_broken_ = !message;
  return message;
}

}  // namespace lorry::parallel
