#include "lorry/profile/session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "lorry/lorry.h"
#include "lorry/nn/layers.h"
#include "lorry/profile/chrome_trace.h"
#include "lorry/profile/diagnose.h"
#include "lorry/profile/table.h"
#include "tests/support/sanitizer.h"
#include "tests/support/scratch_folder.h"

// The functions of this namespace are a user's: source lines name them.
namespace user {

lorry::Tensor scaled(const lorry::Tensor& x) {
  const lorry::Scope here("scaling");
  return x.mul(3);
}

}  // namespace user

namespace lorry {
namespace {

using profile::kNone;
using profile::Recording;
using profile::Session;
using profile::SpanRecord;

std::vector<const SpanRecord*> calls_of(const Recording& r, const std::string& name) {
  std::vector<const SpanRecord*> found;
  for (const SpanRecord& x : r.spans)
    if (x.kind == SpanKind::call && r.name_of(x) == name) found.push_back(&x);
  return found;
}
const std::string& path_of(const Recording& r, const SpanRecord& x) { return r.paths[static_cast<size_t>(x.path)]; }

Tensor cpu_ones(const Dims& sizes) { return ones(sizes, {.device = kCPU}); }

TEST(Session, records_each_call_with_its_costs_and_operands) {
  const Tensor x = cpu_ones({8, 16}), w = cpu_ones({16, 4});
  Session session;
  const Tensor y = matmul(x, w).add(1);
  const Recording r = session.stop();
  const auto products = calls_of(r, "matmul");
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(products[0]->flops, 2 * 8 * 16 * 4);
  EXPECT_EQ(products[0]->bytes, 4 * (8 * 16 + 16 * 4 + 8 * 4));
  ASSERT_NE(products[0]->operands, kNone);
  const profile::OperandList& operands = r.operand_lists[static_cast<size_t>(products[0]->operands)];
  EXPECT_EQ(operands.inputs, 2);
  ASSERT_EQ(operands.operands.size(), 3u);
  EXPECT_EQ(operands.operands[0].sizes, Dims({8, 16}));
  EXPECT_EQ(operands.operands[2].sizes, Dims({8, 4}));
  const auto sums = calls_of(r, "add");
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(r.storages[static_cast<size_t>(sums[0]->storages)],
            r.storages[static_cast<size_t>(products[0]->storages) + 2])
      << "add reads what matmul wrote";
  EXPECT_TRUE(r.is_complete());
  for (const SpanRecord& span : r.spans) {
    EXPECT_LE(0, span.begin);
    EXPECT_LE(span.begin, span.end);
    EXPECT_LE(span.end, r.duration);
  }
}

TEST(Session, calls_know_their_module_and_lie_inside_its_span) {
  struct Net : nn::Layer<Net> {
    Net() { add("up", up); }
    Tensor forward(const Tensor& x) const { return up(x).relu(); }
    nn::Linear up{16, 4};
  } net;
  net.to(kCPU);
  Session session;
  const Scope step("step");
  const Tensor y = net(cpu_ones({2, 16}));
  const Recording r = session.stop();
  const auto products = calls_of(r, "linear");
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(path_of(r, *products[0]), "step/up");
  EXPECT_EQ(path_of(r, *calls_of(r, "relu").at(0)), "step");
  int32_t outer = products[0]->parent;
  std::string around;
  for (; outer != kNone; outer = r.spans[static_cast<size_t>(outer)].parent) {
    const SpanRecord& x = r.spans[static_cast<size_t>(outer)];
    EXPECT_LE(x.begin, products[0]->begin);
    EXPECT_GE(x.end, products[0]->end);
    around += r.name_of(x) + ";";
  }
  EXPECT_EQ(around, "up;(model);step;");
}

TEST(Session, backward_inherits_the_place_of_the_forward) {
  const Tensor x = cpu_ones({4}).requires_grad_();
  Session session;
  const Tensor y = user::scaled(x).sum();
  {
    const Scope elsewhere("elsewhere");
    y.backward();
  }
  const Recording r = session.stop();
  const SpanRecord* node = nullptr;
  for (const SpanRecord& span : r.spans)
    if (span.kind == SpanKind::backward && r.name_of(span) == "mul") node = &span;
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(path_of(r, *node), "scaling");
  const auto products = calls_of(r, "mul");
  ASSERT_EQ(products.size(), 2u) << "one forward, one backward";
  EXPECT_EQ(path_of(r, *products[1]), "scaling");
  EXPECT_EQ(products[0]->line, products[1]->line);
}

TEST(Session, lines_are_those_of_the_program) {
  Session session;
  const Tensor y = user::scaled(cpu_ones({4}));
  const Recording r = session.stop();
  const SpanRecord& call = *calls_of(r, "mul").at(0);
  // With line information it is this file, else the function's name.
  const std::string& line = r.lines[static_cast<size_t>(call.line)];
  EXPECT_TRUE(line.find("session_test.cpp") != std::string::npos || line.find("user::scaled") != std::string::npos)
      << line;
}

TEST(Session, one_session_at_a_time) {
  Session session;
  EXPECT_THROW(Session(), ValueError);
  std::thread other([] { EXPECT_THROW(Session(), ValueError); });
  other.join();
  const Tensor y = cpu_ones({4}).add(1);
  const Recording r = session.stop();
  EXPECT_EQ(calls_of(r, "add").size(), 1u) << "the refused sessions changed nothing";
  EXPECT_THROW(session.stop(), ValueError);
  EXPECT_THROW(Session({.max_spans = 0}), ValueError);
  Session next;
  EXPECT_TRUE(calls_of(next.stop(), "add").empty());
}

TEST(Session, records_other_threads_that_take_part) {
  Session session;
  const Tensor x = cpu_ones({4});
  std::thread silent([&] { static_cast<void>(x.mul(2)); });
  silent.join();
  std::thread heard([&] {
    const profile::RecordThread here(session);
    EXPECT_THROW(profile::RecordThread{session}, ValueError);
    static_cast<void>(x.add(2));
  });
  heard.join();
  const Recording r = session.stop();
  EXPECT_TRUE(calls_of(r, "mul").empty());
  const auto sums = calls_of(r, "add");
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0]->thread, 1);
  EXPECT_EQ(r.threads.size(), 2u);
  EXPECT_NE(r.threads[0].id, r.threads[1].id);
  std::thread late([&] { EXPECT_THROW(profile::RecordThread{session}, ValueError); });
  late.join();
}

TEST(Session, a_call_that_throws_is_recorded_as_failed) {
  const Tensor x = cpu_ones({4});
  Session session;
  try {
    const Scope outer("outer");
    static_cast<void>(matmul(cpu_ones({2, 3}), cpu_ones({4, 5})));
  } catch (const ShapeError&) {
  }
  EXPECT_THROW(
      {
        const Scope outer("outer");
        throw std::runtime_error("the program's own");
      },
      std::runtime_error);
  static_cast<void>(x.add(1));
  const Recording r = session.stop();
  const SpanRecord& after = *calls_of(r, "add").at(0);
  EXPECT_EQ(after.parent, kNone) << "scopes that an error left are closed";
  EXPECT_EQ(path_of(r, after), "");
}

TEST(Session, calls_beyond_the_limit_make_it_incomplete) {
  Session session({.max_spans = 5});
  Tensor x = cpu_ones({4});
  for (int i = 0; i < 20; ++i) x.add_(1);
  const Recording r = session.stop();
  EXPECT_EQ(r.spans.size(), 5u);
  ASSERT_FALSE(r.is_complete());
  const profile::Diagnosis d = profile::diagnose(r);
  EXPECT_FALSE(d.is_complete());
  EXPECT_TRUE(d.findings.empty());
  EXPECT_NE(profile::to_string(d).find("incomplete"), std::string::npos);
  EXPECT_EQ(x.select(0, 0).item<float>(), 21);
}

TEST(Session, results_are_the_same_to_the_bit) {
  const auto train = [] {
    manual_seed(7);
    nn::Linear layer(8, 8);
    layer.to(kCPU);
    const Tensor x = randn({4, 8}, {.device = kCPU});
    for (int i = 0; i < 3; ++i) {
      layer(x).gelu().pow(2).mean().backward();
      for (const Tensor& p : layer.parameters()) {
        const NoGrad no_grad;
        p.sub_(p.grad() * 0.1);
      }
      layer.zero_grad();
    }
    return layer.parameters()[0].detach().clone();
  };
  const Tensor alone = train();
  Session session;
  const Tensor heard = train();
  session.stop();
  EXPECT_TRUE(equal(alone, heard));
}

TEST(Session, fused_units_are_spans_with_the_costs_of_the_whole) {
  const Tensor x = cpu_ones({256, 256}), y = cpu_ones({256, 256});
  const auto f = compile([](const Tensor& a, const Tensor& b) {
    const Scope here("inside");
    return a.add(b).mul(a);
  });
  for (int i = 0; i < 3; ++i) static_cast<void>(f(x, y));
  Session session;
  static_cast<void>(f(x, y));
  const Recording r = session.stop();
  const SpanRecord* unit = nullptr;
  for (const SpanRecord& span : r.spans)
    if (span.kind == SpanKind::unit) unit = &span;
  ASSERT_NE(unit, nullptr);
  EXPECT_EQ(r.name_of(*unit), "add+mul");
  EXPECT_EQ(path_of(r, *unit), "inside");
  EXPECT_EQ(unit->bytes, 3 * x.nbytes()) << "two operands are read, one result is written";
  EXPECT_EQ(unit->flops, 2 * x.numel());
}

TEST(Session, replayed_calls_know_where_they_were_captured) {
  const Tensor x = cpu_ones({16, 16});
  replay::Graph graph(
      [&] {
        const Scope here("captured");
        return std::vector{user::scaled(x).add(1)};
      },
      {.device = kCPU});
  Session session;
  graph.replay();
  graph.replay();
  const Recording r = session.stop();
  std::map<std::string, int> names;
  for (const SpanRecord& span : r.spans) {
    if (span.kind != SpanKind::replayed) continue;
    ++names[r.name_of(span)];
    EXPECT_EQ(path_of(r, span), r.name_of(span) == "mul" ? "captured/scaling" : "captured");
    ASSERT_NE(span.parent, kNone);
    EXPECT_EQ(r.spans[static_cast<size_t>(span.parent)].kind, SpanKind::replay);
  }
  EXPECT_EQ(names["mul"], 2);
  EXPECT_EQ(names["add"], 2);
}

TEST(Session, replayed_calls_have_the_costs_of_those_that_were_captured) {
  const Tensor x = cpu_ones({16, 8}), w = cpu_ones({8, 4});
  const auto step = [&] { return std::vector{matmul(x, w).add(1)}; };
  replay::Graph graph(step, {.device = kCPU});
  Session session;
  step();
  graph.replay();
  const Recording r = session.stop();
  for (const char* name : {"matmul", "add"}) {
    const SpanRecord& eager = *calls_of(r, name).at(0);
    const auto replayed = std::ranges::find_if(
        r.spans, [&](const SpanRecord& s) { return s.kind == SpanKind::replayed && r.name_of(s) == name; });
    ASSERT_NE(replayed, r.spans.end()) << name;
    EXPECT_GT(eager.bytes, 0);
    EXPECT_EQ(replayed->bytes, eager.bytes) << name;
    EXPECT_EQ(replayed->flops, eager.flops) << name;
    EXPECT_EQ(replayed->dtype, eager.dtype) << name;
  }
}

TEST(Session, operands_say_which_of_them_gradients_are_recorded_for) {
  const Tensor x = cpu_ones({4}), w = cpu_ones({4}).requires_grad_();
  Session session;
  static_cast<void>(w.mul(2).add(x));
  const Recording r = session.stop();
  const auto operands = [&](const char* name) {
    return r.operand_lists[static_cast<size_t>(calls_of(r, name).at(0)->operands)].operands;
  };
  EXPECT_TRUE(operands("mul")[0].requires_grad);
  EXPECT_TRUE(operands("add")[0].requires_grad) << "what is computed from it too";
  EXPECT_FALSE(operands("add")[1].requires_grad);
}

TEST(Session, a_forked_child_records_nothing_and_the_parent_goes_on) {
  Session session;
  Tensor x = cpu_ones({4});
  x.add_(1);
  const pid_t child = fork();
  if (child == 0) {
    x.mul_(2);
    const Recording r = session.stop();
    _exit(r.is_complete() || !r.spans.empty() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  x.add_(1);
  const Recording r = session.stop();
  EXPECT_EQ(calls_of(r, "add").size(), 2u);
  EXPECT_TRUE(calls_of(r, "mul").empty());
  EXPECT_TRUE(r.is_complete());
}

TEST(Session, a_process_that_ends_early_saves_its_trace) {
  if (test::kAddressSanitizer) GTEST_SKIP() << "its leak check takes what the parent's threads hold for lost";
  const test::ScratchFolder folder;
  const std::string path = (folder / "trace.json").string();
  const pid_t child = fork();
  if (child == 0) {
    static Session session({.save_to = path});  // where a GPU was traced before, the child must not touch it
    static_cast<void>(cpu_ones({4}).add(1));
    std::exit(3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  int sums = 0;
  for (const auto& event : json["traceEvents"]) sums += event["name"] == "add";
  EXPECT_EQ(sums, 1);
}

TEST(Session, a_session_that_an_error_ends_saves_its_trace) {
  const test::ScratchFolder folder;
  const std::string path = (folder / "trace.json").string();
  EXPECT_THROW(
      {
        Session session({.save_to = path});
        static_cast<void>(cpu_ones({4}).add(1));
        throw std::runtime_error("the program's own");
      },
      std::runtime_error);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Session, a_thread_may_outlive_the_session) {
  std::atomic<int> stage{0};
  auto session = std::make_unique<Session>();
  std::thread other([&] {
    const Scope around("serve");
    std::optional<profile::RecordThread> here(std::in_place, *session);
    Tensor x = cpu_ones({4});
    for (int i = 0; i < 10; ++i) x.add_(1);
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    x.add_(1);  // the session is over, and another one records
    here.reset();
    x.add_(1);
    stage = 3;
  });
  while (stage != 1) std::this_thread::yield();
  const Recording r = session->stop();
  session.reset();
  EXPECT_FALSE(r.is_complete()) << "a thread had not left";
  Session next;
  stage = 2;
  other.join();
  EXPECT_EQ(stage, 3);
  const Recording second = next.stop();
  EXPECT_TRUE(second.is_complete());
  EXPECT_TRUE(calls_of(second, "add").empty()) << "the thread takes no part in the next session";
}

TEST(Session, other_threads_may_allocate_while_sessions_begin_and_end) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      while (!done) static_cast<void>(empty({1 << 20}, {.device = kCPU}));
    });
  for (int i = 0; i < 50; ++i) {
    Session session;
    static_cast<void>(cpu_ones({4}).add(1));
    EXPECT_EQ(calls_of(session.stop(), "add").size(), 1u);
  }
  done = true;
  for (std::thread& t : threads) t.join();
}

TEST(Session, a_handler_of_events_that_comes_and_goes_changes_nothing) {
  Session session;
  int heard = 0;
  const events::Handler before = events::set_handler([&](const events::Event& event) {
    heard += event.kind == events::Kind::warning;  // a GPU is waited for
  });
  session.stop();
  events::emit(events::Kind::warning, "test", "text");
  EXPECT_EQ(heard, 1) << "the session's end leaves the handler alone";
  events::set_handler(before);
  events::emit(events::Kind::warning, "test", "text");
}

TEST(Session, a_child_may_go_on_after_its_session) {
  Session session;
  const pid_t child = fork();
  if (child == 0) {
    session.stop();
    events::emit(events::Kind::warning, "test", "text");
    Session own;
    static_cast<void>(cpu_ones({4}).add(1));
    _exit(calls_of(own.stop(), "add").size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Session, a_backward_of_another_session_has_no_place_here) {
  const Tensor x = cpu_ones({4}).requires_grad_();
  Tensor y;
  {
    Session first;
    y = user::scaled(x).sum();
    first.stop();
  }
  Session second;
  {
    const Scope here("unrelated");
    static_cast<void>(cpu_ones({4}).add(1));
  }
  y.backward();
  const Recording r = second.stop();
  for (const SpanRecord& span : r.spans)
    if (span.kind == SpanKind::backward) {
      EXPECT_EQ(path_of(r, span), "");
    }
}

TEST(Session, memory_that_does_not_exist_is_not_counted) {
  Session session;
  const Tensor huge = empty({1 << 28}, {.device = kMeta});
  const Recording r = session.stop();
  for (const profile::MemoryRecord& m : r.memory)
    EXPECT_FALSE(r.names[static_cast<size_t>(m.allocator)].starts_with("meta"));
}

TEST(Session, a_trace_that_cannot_be_written_leaves_the_recording) {
  Session session;
  static_cast<void>(cpu_ones({4}).add(1));
  const Recording r = session.stop();
  EXPECT_THROW(profile::write_chrome_trace(r, "/nowhere/at/all/trace.json"), IoError);
  if (access("/dev/full", W_OK) == 0) {
    const test::ScratchFolder folder;
    EXPECT_THROW(profile::write_chrome_trace(r, "/proc/self/trace.json"), IoError);
    const std::string path = (folder / "trace.json").string();
    profile::write_chrome_trace(r, path);
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(std::filesystem::path(path).parent_path()), {}), 1)
        << "nothing is left beside it";
  }
}

TEST(Session, a_table_counts_every_call_once) {
  Session session;
  Tensor x = cpu_ones({64});
  for (int i = 0; i < 7; ++i) x.add_(1);
  for (int i = 0; i < 3; ++i) x.mul_(1);
  const Recording r = session.stop();
  const profile::Table by_calls = profile::table(r, {.sort_by = profile::SortBy::calls});
  ASSERT_GE(by_calls.rows.size(), 2u);
  EXPECT_EQ(by_calls.rows[0].name, "add");
  EXPECT_EQ(by_calls.rows[0].calls, 7);
  EXPECT_EQ(by_calls.rows[0].bytes, 7 * 2 * 64 * 4);
  int64_t calls = 0;
  for (const profile::TableRow& row : by_calls.rows) calls += row.calls;
  EXPECT_EQ(calls, by_calls.total.calls);
  const profile::Table shortened = profile::table(r, {.row_limit = 1});
  EXPECT_EQ(shortened.rows.size(), 1u);
  EXPECT_EQ(shortened.rows[0].calls + shortened.rest.calls, calls);
  EXPECT_THROW(profile::table(r, {.row_limit = -1}), ValueError);
  EXPECT_EQ(nlohmann::json::parse(profile::to_json(by_calls))["total"]["calls"], calls);
  const profile::Table shapes = profile::table(r, {.by = profile::GroupBy::shape});
  EXPECT_TRUE(std::ranges::any_of(shapes.rows, [](const auto& row) { return row.name == "add([64] f32, number)"; }))
      << profile::to_string(shapes);
}

}  // namespace
}  // namespace lorry
