// The coordinator, spoken to over its socket: by ranks, by strangers, and by what is no message.

#include "lorry/parallel/coordinator.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <random>
#include <thread>

#include "lorry/base/error.h"
#include "lorry/parallel/launch.h"
#include "lorry/parallel/transport.h"

namespace lorry::parallel {
namespace {

/// A connection that reads messages with a time-out.
class Client {
 public:
  explicit Client(int port) : socket_(connect_to("127.0.0.1", port, 5, why_)) {}
  void send(const Message& message) const { send_message(socket_, message); }
  void send_bytes(const std::string& bytes) const {
    static_cast<void>(::send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void hello(int rank, int size, const std::string& run = "run") const {
    send({.kind = Kind::hello, .numbers = {kProtocol, rank, size}, .texts = {"1", run}});
  }
  /// The next message that is no beat; none after two seconds, or when the connection has ended.
  std::optional<Message> next() {
    for (int i = 0; i < 200; ++i) {
      is_open_ = inbox_.receive(socket_);
      while (std::optional<Message> message = inbox_.next())
        if (message->kind != Kind::beat) return message;
      if (!is_open_) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return std::nullopt;
  }
  bool is_open() const { return is_open_; }

 private:
  std::string why_;
  Socket socket_;
  Inbox inbox_{kMostBytes};
  bool is_open_ = true;
};

struct Served {
  explicit Served(int size, double timeout_s = 30) {
    Socket listening = listen_on("", 0);
    port = port_of(listening);
    coordinator = std::make_unique<Coordinator>(std::move(listening), size, "run", timeout_s);
  }
  int port;
  std::unique_ptr<Coordinator> coordinator;
};

TEST(Coordinator, welcomes_the_ranks_when_all_have_come) {
  Served served(2);
  Client a(served.port), b(served.port);
  a.hello(0, 2);
  b.hello(1, 2);
  for (Client* const client : {&a, &b}) {
    const auto message = client->next();
    ASSERT_TRUE(message);
    EXPECT_EQ(message->kind, Kind::welcome);
  }
  b.send({.kind = Kind::exchange, .numbers = {0, 0, 1}, .texts = {"key", "of b"}});
  a.send({.kind = Kind::exchange, .numbers = {0, 0, 1}, .texts = {"key", "of a"}});
  const auto exchanged = a.next();
  ASSERT_TRUE(exchanged);
  EXPECT_EQ(exchanged->texts, (std::vector<std::string>{"key", "of a", "of b"}));
}

TEST(Coordinator, processes_of_another_run_are_refused_and_change_nothing) {
  Served served(1);
  Client other(served.port), own(served.port);
  other.hello(0, 4, "another run");
  const auto refusal = other.next();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->kind, Kind::failed);
  EXPECT_NE(refusal->texts.at(0).find("another run"), std::string::npos);
  own.hello(0, 1);
  const auto welcome = own.next();
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->kind, Kind::welcome);
}

TEST(Coordinator, what_is_no_message_ends_its_connection_alone) {
  Served served(2);
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    Client stranger(served.port);
    std::string bytes;
    for (uint64_t n = random() % 300; n > 0; --n) bytes += static_cast<char>(random());
    stranger.send_bytes(bytes);
  }
  Client huge(served.port);
  huge.send_bytes("\xff\xff\xff\x7f more than is ever taken");
  EXPECT_FALSE(huge.next());
  EXPECT_FALSE(huge.is_open());
  Client own(served.port), other(served.port);
  own.hello(0, 2);
  other.hello(1, 2);
  const auto welcome = own.next();
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->kind, Kind::welcome);
  // A rank that breaks the protocol has failed.
  other.send({.kind = Kind::calls, .numbers = {1, 2, 3, 4}, .texts = {"no such group"}});
  const auto failed = own.next();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->kind, Kind::failed);
  EXPECT_EQ(failed->texts.at(0), "rank 1 has ended");
}

TEST(Coordinator, the_same_rank_twice_and_another_size_are_said) {
  Served served(2);
  Client a(served.port), b(served.port);
  a.hello(1, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  b.hello(1, 2);
  const auto failed = a.next();
  ASSERT_TRUE(failed);
  EXPECT_NE(failed->texts.at(0).find("two processes say that they are rank 1 of 2"), std::string::npos);
}

TEST(Coordinator, ranks_that_do_not_come_are_named) {
  Served served(3, 0.3);
  Client a(served.port);
  a.hello(1, 3);
  const auto failed = a.next();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->texts.at(0), "start-up: ranks 0 and 2 of 3 have not arrived within 0.3 s");
}

TEST(Coordinator, a_rank_that_ends_a_group_comes_to_nothing_else_before_the_others_do) {
  Served served(3);
  Client ranks[] = {Client(served.port), Client(served.port), Client(served.port)};
  for (int i = 0; i < 3; ++i) ranks[i].hello(i, 3);
  for (Client& rank : ranks) ASSERT_EQ(rank.next().value().kind, Kind::welcome);
  const auto exchange = [](const std::string& key) {
    return Message{.kind = Kind::exchange, .numbers = {1, 0, 1, 2}, .texts = {key, ""}};
  };
  for (const int i : {0, 1}) {
    ranks[i].send({.kind = Kind::group, .numbers = {0, 1}, .texts = {"pair"}});
    ranks[i].send({.kind = Kind::ends, .texts = {"pair"}});
    ranks[i].send(exchange("one"));
  }
  ranks[2].send(exchange("one"));
  for (Client& rank : ranks) EXPECT_EQ(rank.next().value().kind, Kind::exchanged);  // both had ended it
  for (const int i : {0, 1}) ranks[i].send({.kind = Kind::group, .numbers = {0, 1}, .texts = {"another"}});
  ranks[1].send({.kind = Kind::ends, .texts = {"another"}});
  ranks[2].send(exchange("two"));  // rank 1 does not wait for this one
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ranks[0].send(exchange("two"));
  const auto failed = ranks[0].next();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->texts.at(0), "rank 1 has left, and rank 0 waits for it in two");
}

TEST(Coordinator, a_rank_that_stops_in_a_call_to_which_it_came_is_named) {
  Served served(2);
  Client a(served.port), b(served.port);
  a.hello(0, 2);
  b.hello(1, 2);
  for (Client* const client : {&a, &b}) {
    ASSERT_EQ(client->next().value().kind, Kind::welcome);
    client->send({.kind = Kind::group, .numbers = {0, 1}, .texts = {"pair"}});
    client->send({.kind = Kind::calls, .numbers = {0, 4, 0, 7}, .texts = {"pair"}});
  }
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    a.send({.kind = Kind::beat, .numbers = {4}});
  }
  a.send({.kind = Kind::overdue, .numbers = {0}, .texts = {"pair"}});
  const auto failed = a.next();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->texts.at(0).find("all ranks have come to call 0 of pair, and it is not done after 30 s: rank 1 has "
                                     "not been heard from for"),
            0)
      << failed->texts.at(0);
}

TEST(Coordinator, a_port_that_is_taken_is_an_error) {
  const Socket first = listen_on("127.0.0.1", 0);
  EXPECT_THROW(static_cast<void>(listen_on("127.0.0.1", port_of(first))), IoError);
  EXPECT_THROW(static_cast<void>(listen_on("no.such.host.invalid", 4000)), IoError);
}

TEST(Messages, come_whole_in_any_pieces) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Socket a(pair[0]), b(pair[1]);
  const Message sent{
      .kind = Kind::calls, .numbers = {-1, INT64_MAX, INT64_MIN, 0}, .texts = {"", std::string(1000, 'x')}};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(send_message(a, sent));
  Inbox inbox(kMostBytes);
  ASSERT_TRUE(inbox.receive(b));
  for (int i = 0; i < 3; ++i) {
    const auto got = inbox.next();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->kind, sent.kind);
    EXPECT_EQ(got->numbers, sent.numbers);
    EXPECT_EQ(got->texts, sent.texts);
  }
  EXPECT_FALSE(inbox.next());
  EXPECT_FALSE(inbox.is_broken());
}

/// Sets variables of the environment for a scope.
class Variables {
 public:
  Variables(std::initializer_list<std::pair<const char*, const char*>> list) {
    for (const auto& [name, value] : list) ::setenv(name, value, 1), names_.push_back(name);
  }
  ~Variables() {
    for (const char* name : names_) ::unsetenv(name);
  }

 private:
  std::vector<const char*> names_;
};

TEST(Launch, is_read_from_the_environment_of_each_launcher) {
  EXPECT_EQ(launched().size, 1);
  {
    const Variables variables{
        {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
    const Launch x = launched();
    EXPECT_EQ(x.launcher, Launcher::torchrun);
    EXPECT_EQ(std::tuple(x.rank, x.size, x.local_rank, x.host, x.port), std::tuple(3, 8, 1, "10.0.0.1", 29500));
    const Variables address{{"LORRY_ADDRESS", "[::1]:4000"}};
    EXPECT_EQ(launched().host, "::1");
    EXPECT_EQ(launched().port, 4000);
  }
  for (const char* wrong : {"host", "host:", ":1", "host:0", "host:70000", "host:1x"}) {
    const Variables address{{"LORRY_ADDRESS", wrong}};
    EXPECT_THROW(static_cast<void>(launched()), ValueError) << wrong;
  }
  const Variables variables{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}};
  EXPECT_THROW(static_cast<void>(launched()), ValueError);
}

TEST(Gpus, are_refused_where_two_ranks_have_the_same) {
  const std::vector<int> ranks{1, 4, 6};
  EXPECT_NO_THROW(require_own_gpus("even", ranks, std::vector<std::string>{"a", "b", "c"}));
  try {
    require_own_gpus("even", ranks, std::vector<std::string>{"a", "b", "a"});
    FAIL() << "accepted";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("ranks 1 and 6 gave group even"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lorry::parallel
