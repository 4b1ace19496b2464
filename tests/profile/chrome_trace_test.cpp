#include "lorry/profile/chrome_trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "lorry/profile/text_writer.h"
#include "tests/profile/sample_recording.h"

namespace lorry::profile {
namespace {

using nlohmann::json;

struct Event {
  json all;
  int64_t begin = 0, end = 0;  ///< in nanoseconds
  std::pair<int64_t, int64_t> track;

  std::string text(const char* key) const { return all.at(key).get<std::string>(); }
  const json& argument(const char* key) const { return all.at("args").at(key); }
};

/// The events of a phase ("X", ...), in the order of the file.
std::vector<Event> events(const Recording& recording, std::string_view phase) {
  const json trace = json::parse(chrome_trace(recording));
  std::vector<Event> found;
  for (const json& x : trace.at("traceEvents")) {
    if (x.at("ph") != phase) continue;
    Event& event = found.emplace_back();
    event.all = x;
    const auto ns = [&](const char* key) { return x.contains(key) ? std::llround(x.at(key).get<double>() * 1000) : 0; };
    event.begin = ns("ts"), event.end = event.begin + ns("dur");
    event.track = {x.at("pid").get<int64_t>(), x.value("tid", int64_t{0})};
  }
  return found;
}

std::vector<Event> slices(const std::string& name, const Recording& recording = sample_recording()) {
  std::vector<Event> found = events(recording, "X");
  std::erase_if(found, [&](const Event& x) { return x.text("name") != name; });
  return found;
}

TEST(ChromeTrace, every_record_is_one_slice) {
  const Recording r = sample_recording();
  std::map<std::string, size_t> count, expected;
  for (const Event& x : events(r, "X")) ++count[x.text("cat")];
  for (const SpanRecord& x : r.spans) ++expected[x.kind == SpanKind::scope ? "user_annotation" : "cpu_op"];
  for (const DeviceRecord& x : r.device)
    ++expected[x.work == DeviceWork::kernel ? "kernel" : x.work == DeviceWork::copy ? "gpu_memcpy" : "gpu_memset"];
  expected["cuda_runtime"] = r.calls.size(), expected["cuda_sync"] = r.waits.size();
  EXPECT_EQ(count, expected);
}

void expect_nested(const std::vector<Event>& slices) {
  std::map<std::pair<int64_t, int64_t>, std::vector<Event>> open;
  for (const Event& x : slices) {
    std::vector<Event>& around = open[x.track];
    ASSERT_LE(around.empty() ? 0 : around.back().begin, x.begin) << x.all;
    while (!around.empty() && around.back().end <= x.begin) around.pop_back();
    ASSERT_LE(x.end, around.empty() ? INT64_MAX : around.back().end) << x.all << " overlaps what is around it";
    ASSERT_LE(x.begin, x.end) << x.all;
    around.push_back(x);
  }
}

TEST(ChromeTrace, slices_of_a_track_nest) { expect_nested(events(sample_recording(), "X")); }

/// Whatever other clocks say, spans are as they were recorded.
void expect_spans(const Recording& r, const std::vector<Event>& slices) {
  std::set<size_t> seen;
  for (const Event& x : slices) {
    if (x.text("cat") != "cpu_op" && x.text("cat") != "user_annotation") continue;
    const auto i = x.argument("External id").get<size_t>() - 1;
    ASSERT_TRUE(seen.insert(i).second);
    ASSERT_EQ(x.begin, r.spans.at(i).begin) << x.all;
    ASSERT_EQ(x.end, r.spans.at(i).end) << x.all;
  }
  ASSERT_EQ(seen.size(), r.spans.size());
}

TEST(ChromeTrace, spans_are_where_they_were) {
  const Recording r = sample_recording();
  expect_spans(r, events(r, "X"));
}

/// Spans in spans, with waits and calls whose clock is up to 500 ns off.
Recording with_random_clocks(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  Recording r;
  r.process = 4242, r.names = {"", "x"}, r.paths = r.lines = {""};
  r.threads = {{4242, "main", 0}};
  int64_t now = 1'000;
  std::vector<int32_t> open;
  for (int i = 0; i < 60; ++i) {
    const int32_t around = open.empty() ? kNone : open.back();
    const int64_t choice = below(4), begin = now + below(1000) - 500;
    if (choice == 0 && open.size() < 5) {
      open.push_back(static_cast<int32_t>(r.spans.size()));
      SpanRecord& x = r.spans.emplace_back();
      x.kind = SpanKind::call, x.begin = now, x.name = 1, x.parent = around;
    } else if (choice == 1 && !open.empty()) {
      r.spans[static_cast<size_t>(around)].end = now, open.pop_back();
    } else if (choice == 2) {
      r.calls.push_back({begin, begin + below(400), 1, 0, 0, around});
    } else {
      r.waits.push_back({begin, begin + below(400), 0, around, 1, 1, 0, 0});
    }
    now += below(300);
  }
  for (const int32_t x : open) r.spans[static_cast<size_t>(x)].end = now;
  return r;
}

TEST(ChromeTrace, slices_nest_whatever_the_clocks_say) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Recording r = with_random_clocks(seed);
    const std::vector<Event> slices = events(r, "X");
    ASSERT_EQ(slices.size(), r.spans.size() + r.calls.size() + r.waits.size());
    expect_nested(slices);
    expect_spans(r, slices);
    for (const Event& x : slices) {
      if (!x.all["args"].contains("External id")) continue;
      const SpanRecord& span = r.spans.at(x.argument("External id").get<size_t>() - 1);
      ASSERT_TRUE(span.begin <= x.begin && x.end <= span.end) << x.all;
    }
    if (HasFatalFailure()) return;
  }
}

TEST(ChromeTrace, calls_and_waits_are_inside_the_span_that_made_them) {
  const Recording r = sample_recording();
  size_t checked = 0;
  for (const Event& x : events(r, "X")) {
    if ((x.text("cat") != "cuda_runtime" && x.text("cat") != "cuda_sync") || !x.all["args"].contains("External id"))
      continue;
    const SpanRecord& span = r.spans.at(x.argument("External id").get<size_t>() - 1);
    EXPECT_GE(x.begin, span.begin) << x.all;
    EXPECT_LE(x.end, span.end) << x.all;
    ++checked;
  }
  EXPECT_EQ(checked, 8u);
  // Moved as a whole where there is room, cut where there is none.
  const Event launch = slices("cudaLaunchKernel").front(), graph = slices("cudaGraphLaunch").front();
  EXPECT_EQ(std::pair(launch.begin, launch.end), std::pair(int64_t{1'500}, int64_t{1'620}));
  EXPECT_EQ(std::pair(graph.begin, graph.end), std::pair(int64_t{5'000}, int64_t{5'600}));
  const Event before = slices("cudaEventRecord").front(), after = slices("cudaEventQuery").front();
  EXPECT_EQ(std::pair(before.begin, before.end), std::pair(int64_t{3'050}, int64_t{3'100}));
  EXPECT_EQ(std::pair(after.begin, after.end), std::pair(int64_t{3'900}, int64_t{3'950}));
}

TEST(ChromeTrace, every_piece_of_gpu_work_has_an_arrow_from_its_launch) {
  const Recording r = sample_recording();
  const std::vector<Event> slices = events(r, "X");
  const auto slice_at = [&](const Event& x) {
    const Event* found = nullptr;
    for (const Event& slice : slices)
      if (slice.track == x.track && slice.begin <= x.begin && x.begin <= slice.end) found = &slice;
    return found;
  };
  std::map<int64_t, Event> begins;
  for (const Event& x : events(r, "s"))
    EXPECT_TRUE(begins.emplace(x.all.at("id").get<int64_t>(), x).second) << "a number twice: " << x.all;
  const std::vector<Event> ends = events(r, "f");
  for (const Event& x : ends) {
    const Event *const work = slice_at(x), *const launch = slice_at(begins.at(x.all.at("id").get<int64_t>()));
    ASSERT_NE(work, nullptr) << x.all;
    ASSERT_NE(launch, nullptr) << x.all;
    EXPECT_EQ(x.begin, work->begin);
    EXPECT_EQ(launch->text("cat"), "cuda_runtime");
    EXPECT_EQ(launch->argument("correlation"), work->argument("correlation"));
    EXPECT_EQ(x.text("bp"), "e");
  }
  EXPECT_EQ(ends.size(), begins.size());
  EXPECT_EQ(ends.size(), r.device.size() - 2) << "all but those whose launch is not known";
}

TEST(ChromeTrace, work_that_overlaps_has_tracks_of_its_own) {
  const int64_t stream7 = slices(kStrangeNameInUtf8).back().track.second;
  EXPECT_EQ(stream7, 7);
  EXPECT_EQ(slices("on_another_stream").front().track.second, 13);
  EXPECT_NE(slices("beside").front().track.second, stream7);
  EXPECT_EQ(slices("Memcpy DtoH").front().track.second, stream7) << "the stream is free again";
  EXPECT_NE(slices("of_a_second_gpu").front().track.first, slices("beside").front().track.first);
  EXPECT_NE(slices("cudaMalloc").front().track, slices("cudaMemsetAsync").front().track);
}

TEST(ChromeTrace, what_ran_before_the_session_begins_with_it) {
  const Event before = slices("from_before").front();
  EXPECT_EQ(std::pair(before.begin, before.end), std::pair(int64_t{0}, int64_t{400}));
}

TEST(ChromeTrace, every_track_has_a_name) {
  std::map<std::pair<int64_t, int64_t>, std::string> threads;
  std::map<int64_t, std::string> processes;
  for (const Event& x : events(sample_recording(), "M")) {
    if (x.text("name") == "thread_name") threads[x.track] = x.argument("name").get<std::string>();
    if (x.text("name") == "process_name") processes[x.track.first] = x.argument("name").get<std::string>();
  }
  for (const Event& x : events(sample_recording(), "X")) {
    EXPECT_NE(threads[x.track], "") << x.all;
    EXPECT_NE(processes[x.track.first], "") << x.all;
  }
  EXPECT_EQ(threads.at({4242, 4242}), "main 4242");
  EXPECT_EQ(threads.at({0, 13}), "stream 13");
  EXPECT_EQ(processes.at(1), "cuda:1");
}

TEST(ChromeTrace, gpus_do_not_take_the_number_of_a_process_in_a_container) {
  Recording r = sample_recording();
  r.process = 1;
  std::set<int64_t> gpus, hosts;
  for (const Event& x : events(r, "X")) (x.all["args"].contains("device") ? gpus : hosts).insert(x.track.first);
  EXPECT_EQ(hosts, std::set<int64_t>{1});
  EXPECT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus.count(1), 0u);
}

TEST(ChromeTrace, kernels_tell_the_place_that_they_belong_to) {
  const std::vector<Event> replayed = slices("replayed_kernel");
  ASSERT_EQ(replayed.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(replayed[i].argument("Operator"), i < 2 ? "gelu" : "sum");
    EXPECT_EQ(replayed[i].argument("Module"), "block1.mlp");
    EXPECT_EQ(replayed[i].argument("Line"), "model.cpp:40");
  }
  const Event beside = slices("beside").front();
  EXPECT_EQ(beside.argument("Operator"), "linear");
  EXPECT_EQ(beside.argument("Module"), "block0.attention");
  EXPECT_EQ(slices("Memset").front().all["args"].count("Operator"), 0u) << "nobody knows";
}

TEST(ChromeTrace, arguments_of_a_call_arrive) {
  const Event linear = slices("linear").front();
  EXPECT_EQ(linear.argument("Bytes"), 4096);
  EXPECT_EQ(linear.argument("Flops"), 8192);
  EXPECT_EQ(linear.argument("Line"), "model.cpp:12 forward(\"x\")");
  EXPECT_EQ(linear.argument("Input Dims"), json::parse("[[2, 3], []]"));
  EXPECT_EQ(linear.argument("Input type"), json::parse(R"(["f32", "number"])"));
  EXPECT_EQ(slices("linear backward").front().argument("Failed"), true);
  EXPECT_EQ(slices("Memcpy DtoH").front().argument("bytes"), 4);
  const json trace = json::parse(chrome_trace(sample_recording()));
  EXPECT_EQ(trace.at("complete"), false);
  EXPECT_EQ(trace.at("incomplete"), json::parse(R"(["CUPTI dropped 1 \"record\""])"));
}

TEST(ChromeTrace, memory_counts_on_from_what_was_in_use_before) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const Event& x : events(sample_recording(), "C"))
    counts.emplace_back(x.text("name"), x.argument("bytes in use").get<int64_t>());
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"cpu", 1024}, {"cuda:0", 4096}, {"cpu", 24}, {"cuda:0", 0}};
  EXPECT_EQ(counts, expected);
}

TEST(ChromeTrace, strange_names_survive) {
  EXPECT_EQ(slices(kStrangeNameInUtf8).size(), 2u) << "a call and a kernel";
  size_t threads = 0;
  for (const Event& x : events(sample_recording(), "M"))
    threads += x.argument(x.text("name") == "process_sort_index" ? "sort_index" : "name") ==
               std::string(kStrangeNameInUtf8) + " 4243";
  EXPECT_EQ(threads, 1u);
}

TEST(JsonString, every_character_is_read_back_as_it_was) {
  for (uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 61) {
    if (c >= 0xd800 && c < 0xe000) continue;  // halves of UTF-16
    std::string text = "<";
    if (c < 0x80)
      text += static_cast<char>(c);
    else if (c < 0x800)
      (text += static_cast<char>(0xc0 | c >> 6)) += static_cast<char>(0x80 | (c & 63));
    else if (c < 0x10000)
      ((text += static_cast<char>(0xe0 | c >> 12)) += static_cast<char>(0x80 | (c >> 6 & 63))) +=
          static_cast<char>(0x80 | (c & 63));
    else
      (((text += static_cast<char>(0xf0 | c >> 18)) += static_cast<char>(0x80 | (c >> 12 & 63))) +=
       static_cast<char>(0x80 | (c >> 6 & 63))) += static_cast<char>(0x80 | (c & 63));
    text += ">";
    ASSERT_EQ(json::parse(json_string(text)).get<std::string>(), text) << "character " << c;
  }
}

TEST(JsonString, any_bytes_are_valid_json) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text(random() % 12, '\0');
    // The bytes at the edges of UTF-8's rules, and those of JSON.
    const std::string_view edges = "\x7f\x80\xbf\xc0\xc1\xc2\xdf\xe0\xed\xef\xf0\xf4\xf5\xff\x9f\xa0\x8f\x90\"\\a\n";
    for (char& c : text) c = random() % 4 == 0 ? static_cast<char>(random()) : edges[random() % edges.size()];
    const json read = json::parse(json_string(text), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(read.is_string()) << "trial " << trial << ": " << json_string(text);
    // What is UTF-8 is unchanged: nlohmann's writer refuses anything else.
    bool is_utf8 = true;
    try {
      json(text).dump();
    } catch (const json::type_error&) {
      is_utf8 = false;
    }
    EXPECT_EQ(read.get<std::string>() == text, is_utf8) << "trial " << trial << ": " << json_string(text);
  }
}

}  // namespace
}  // namespace lorry::profile
