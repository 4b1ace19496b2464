#include "lorry/io/safetensors_header.h"

#include <gtest/gtest.h>

#include "tests/io/safetensors_bytes.h"
#include "tests/io/scratch.h"

namespace lorry::io::test {
namespace {

SafetensorsHeader parse(const std::string& file) { return parse_safetensors(bytes_of(file), "f"); }

const std::string kPair =
    R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";

TEST(SafetensorsHeader, a_well_formed_header_gives_names_types_sizes_and_places) {
  const SafetensorsHeader header =
      parse(file_of(R"({"__metadata__":{"k":"v"},"b":{"shape":[],"data_offsets":[8,9],"dtype":"U8"},)"
                    R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}  )",
                    std::string(9, 'x')));
  ASSERT_EQ(header.entries.size(), 2u);
  const uint64_t data = header.entries[0].begin;
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].dtype, kF32);
  EXPECT_EQ(header.entries[0].sizes, (Dims{2, 1}));
  EXPECT_EQ(header.entries[0].end, data + 8);
  EXPECT_EQ(header.entries[1].name, "b");
  EXPECT_EQ(header.entries[1].sizes, Dims{});
  EXPECT_EQ(header.entries[1].end, data + 9);
  EXPECT_EQ(header.metadata, (Metadata{{"k", "v"}}));
}

TEST(SafetensorsHeader, a_file_without_tensors_is_a_file) { EXPECT_TRUE(parse(file_of("{}")).entries.empty()); }

TEST(SafetensorsHeader, tensors_without_elements_take_no_room) {
  const auto header = parse(file_of(
      R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F64","shape":[3,0],"data_offsets":[0,0]},)"
      R"("c":{"dtype":"I8","shape":[0],"data_offsets":[4,4]}})",
      "1234"));
  EXPECT_EQ(header.entries.size(), 3u);
}

TEST(SafetensorsHeader, a_tensor_of_an_unknown_dtype_is_listed_apart) {
  const auto header = parse(file_of(R"({"a":{"dtype":"X8","shape":[3],"data_offsets":[0,3]},)"
                                    R"("b":{"dtype":"I8","shape":[2],"data_offsets":[3,5]},)"
                                    R"("c":{"dtype":"i8","shape":[1],"data_offsets":[5,6]}})",
                                    "123456"));
  ASSERT_EQ(header.entries.size(), 1u);
  EXPECT_EQ(header.entries[0].name, "b");
  ASSERT_EQ(header.unread.size(), 2u);
  EXPECT_EQ(header.unread[0].name, "a");
  EXPECT_EQ(header.unread[0].dtype, "X8");
  EXPECT_EQ(header.unread[1].name, "c");
}

struct Hostile {
  const char* what;
  std::string file;
  std::string message;
};

std::string one(const std::string& fields) { return R"({"w":{)" + fields + "}}"; }
std::string typed(const std::string& shape, const std::string& offsets) {
  return one(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets);
}

const Hostile kHostile[] = {
    {"empty", "", "file is too short for a header length; got 0 bytes; expected at least 8"},
    {"seven bytes", "1234567", "file is too short for a header length; got 7 bytes; expected at least 8"},
    {"no header", file_of(""), "header does not begin with '{'"},
    {"length past the end", with_length(3, "{}"),
     "header reaches past the end of the file; got 3 bytes of header in a file of 10"},
    {"length of 100 MB and one", with_length(100'000'001, "{}"),
     "header is too large; got 100000001 bytes; expected at most 100000000"},
    {"length of 2^64 - 1", with_length(~0ull, "{}"),
     "header is too large; got 18446744073709551615 bytes; expected at most 100000000"},
    {"leading space", file_of(" {}"), "header does not begin with '{'"},
    {"a byte order mark", file_of("\xef\xbb\xbf{}"), "header does not begin with '{'"},
    {"a list", file_of("[]"), "header does not begin with '{'"},
    {"a NUL that hides the rest", file_of(std::string("{}\0trailing", 11)), "header has a control character at byte 2"},
    {"half of it", file_of("{"), "header is not JSON at byte 2: unexpected end of input; expected string literal"},
    {"two values", file_of("{}{}"), "header is not JSON at byte 3: unexpected '{'; expected end of input"},
    {"a comment", file_of("{}//"), "header is not JSON at byte 3: invalid literal"},
    {"bytes that are not UTF-8", file_of("{\"\xff\":1}"),
     "header is not JSON at byte 3: invalid string: ill-formed UTF-8 byte"},
    {"half a surrogate pair", file_of(R"({"\ud800":1})"), "header is not JSON at byte 9: invalid string: surrogate"},
    {"a number as a tensor", file_of(R"({"w":1})"), "header has a number as tensor 'w'; expected an object"},
    {"null as a tensor", file_of(R"({"w":null})"), "header has null as tensor 'w'; expected an object"},
    {"a list as a tensor", file_of(R"({"w":[]})"), "header has a list as tensor 'w'; expected an object"},
    {"depth", file_of(R"({"w":{"shape":[[)"),
     "header has a list in the shape of 'w'; expected whole numbers from 0 to 2^63 - 1"},
    {"a name twice", file_of(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"w":)"),
     "duplicate key 'w'; expected every name once"},
    {"dtype twice", file_of(one(R"("dtype":"F32","dtype":"F32")")), "tensor 'w' has dtype twice"},
    {"shape twice", file_of(one(R"("shape":[],"shape":[])")), "tensor 'w' has shape twice"},
    {"an unknown key", file_of(one(R"("stride":[1])")),
     "tensor 'w' has the unknown key 'stride'; expected dtype, shape and data_offsets"},
    {"no dtype", file_of(one(R"("shape":[],"data_offsets":[0,4])")),
     "tensor 'w' lacks dtype; expected dtype, shape and data_offsets"},
    {"no shape", file_of(one(R"("dtype":"F32","data_offsets":[0,4])")),
     "tensor 'w' lacks shape; expected dtype, shape and data_offsets"},
    {"no offsets", file_of(one(R"("dtype":"F32","shape":[])")),
     "tensor 'w' lacks data_offsets; expected dtype, shape and data_offsets"},
    {"data of an unknown dtype past the end",
     file_of(one(R"("dtype":"X8","shape":[8],"data_offsets":[0,8])"), "1234567"),
     "data of 'w' reaches past the end of the file; got an offset of 8 in 7 bytes of data"},
    {"data of an unknown dtype behind a hole",
     file_of(one(R"("dtype":"X8","shape":[8],"data_offsets":[1,9])"), "123456789"),
     "data of 'w' leaves a hole or overlaps; got an offset of 1; expected 0"},
    {"a number as dtype", file_of(one(R"("dtype":3)")), "header has a number as the dtype of 'w'; expected a string"},
    {"a string as shape", file_of(one(R"("shape":"3")")),
     "header has a string as the shape of 'w'; expected a list of sizes"},
    {"a negative size", file_of(one(R"("shape":[-1])")),
     "header has the negative number -1 in the shape of 'w'; expected whole numbers from 0 to 2^63 - 1"},
    {"a fraction", file_of(one(R"("shape":[1.5])")), "header has the number 1.5 in the shape of 'w'"},
    {"a size of 2^63", file_of(one(R"("shape":[9223372036854775808])")),
     "tensor 'w' has a size of 9223372036854775808; expected less than 2^63"},
    {"a size of 2^64", file_of(one(R"("shape":[18446744073709551616])")),
     "header has the number 18446744073709551616 in the shape of 'w'"},
    {"nine dimensions", file_of(typed("[1,1,1,1,1,1,1,1,1]", "[0,4]"), "1234"),
     "tensor 'w' has too many dimensions; expected at most 8"},
    {"one offset", file_of(typed("[]", "[0]")), "tensor 'w' has 1 data_offsets; expected 2"},
    {"three offsets", file_of(typed("[]", "[0,4,8]")), "tensor 'w' has more than 2 data_offsets; expected 2"},
    {"offsets backwards", file_of(typed("[]", "[4,0]"), "1234"), "data_offsets of 'w' run backwards; got [4, 0]"},
    {"a hole at the start", file_of(typed("[]", "[4,8]"), "12345678"),
     "data of 'w' leaves a hole or overlaps; got an offset of 4; expected 0"},
    {"an overlap",
     file_of(
         R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[],"data_offsets":[2,6]}})",
         "123456"),
     "data of 'b' leaves a hole or overlaps; got an offset of 2; expected 4"},
    {"two tensors in one place",
     file_of(
         R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
         "1234"),
     "data of 'b' leaves a hole or overlaps; got an offset of 0; expected 4"},
    {"fewer bytes than the shape", file_of(typed("[2]", "[0,4]"), "1234"),
     "shape and data of 'w' disagree; got [2] f32 in 4 bytes; expected 8"},
    {"more bytes than the shape", file_of(typed("[]", "[0,8]"), "12345678"),
     "shape and data of 'w' disagree; got [] f32 in 8 bytes; expected 4"},
    {"a product that wraps to 0", file_of(typed("[4294967296,4294967296]", "[0,0]")),
     "shape of 'w' is too large; got [4294967296, 4294967296] f32; expected less than 2^63 bytes"},
    {"a huge shape behind a size of 0", file_of(typed("[0,4294967296,4294967296]", "[0,0]")),
     "shape of 'w' is too large"},
    {"data past the end", file_of(typed("[2]", "[0,8]"), "1234567"),
     "data of 'w' reaches past the end of the file; got an offset of 8 in 7 bytes of data"},
    {"data after the end", file_of(typed("[2]", "[0,8]"), "123456789"),
     "file is longer than its tensors; got 9 bytes of data; expected 8"},
    {"data without tensors", file_of("{}", "1"), "file is longer than its tensors; got 1 bytes of data; expected 0"},
    {"metadata of another kind", file_of(R"({"__metadata__":1})"),
     "header has a number as __metadata__; expected an object of strings"},
    {"metadata null", file_of(R"({"__metadata__":null})"),
     "header has null as __metadata__; expected an object of strings"},
    {"a number in the metadata", file_of(R"({"__metadata__":{"k":1}})"),
     "header has a number as 'k' in __metadata__; expected a string"},
    {"an object in the metadata", file_of(R"({"__metadata__":{"k":{}}})"),
     "header has an object as 'k' in __metadata__; expected a string"},
    {"a metadata key twice", file_of(R"({"__metadata__":{"k":"v","k":"v"}})"),
     "duplicate key 'k' in __metadata__; expected every key once"},
    {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})"),
     "duplicate key '__metadata__'; expected every name once"},
    {"a name that would forge a line", file_of(R"({"a\nb'":1})"),
     R"(header has a number as tensor 'a\x0ab\x27'; expected an object)"},
};

TEST(SafetensorsHeader, every_malformed_file_is_refused_in_its_own_words) {
  for (const Hostile& h : kHostile) {
    SCOPED_TRACE(h.what);
    const std::string text = message<FormatError>([&] { parse(h.file); });
    EXPECT_TRUE(text.starts_with("safetensors 'f': " + h.message)) << text;
  }
}

TEST(SafetensorsHeader, a_file_cut_at_any_byte_is_refused) {
  const std::string whole = file_of(kPair, std::string(9, 'x'));
  ASSERT_EQ(parse(whole).entries.size(), 2u);
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(parse(whole.substr(0, length)), FormatError) << length;
}

TEST(SafetensorsHeader, a_file_with_any_bit_flipped_is_refused_or_still_consistent) {
  const std::string whole = file_of(kPair, std::string(9, 'x'));
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    try {
      for (const SafetensorsEntry& e : parse(flipped).entries) EXPECT_LE(e.end, flipped.size()) << bit;
    } catch (const FormatError&) {
    }
  }
}

TEST(SafetensorsHeader, deep_nesting_is_refused_at_its_first_level) {
  EXPECT_THROW(parse(file_of("{\"w\":" + std::string(10'000'000, '['))), FormatError);
  EXPECT_THROW(parse(file_of([] {
                 std::string text;
                 for (int i = 0; i < 1'000'000; ++i) text += "{\"a\":";
                 return text;
               }())),
               FormatError);
}

TEST(SafetensorsHeader, what_is_written_is_read_back_with_data_at_a_multiple_of_8) {
  std::vector<SafetensorsEntry> entries(3);
  entries[0] = {"quote \" and \\ and \xc3\xa9", kF64, {2}, 0, 0};
  entries[1] = {"scalar", kBF16, {}, 0, 0};
  entries[2] = {"empty", kBool, {0, 5}, 0, 0};
  const Metadata metadata{{"format", "pt"}, {"two\nlines", "\""}};
  std::string file = format_safetensors_header(entries, metadata);
  EXPECT_EQ(file.size() % 8, 0u);
  file.resize(entries.back().end);
  const SafetensorsHeader header = parse(file);
  EXPECT_EQ(header.metadata, metadata);
  ASSERT_EQ(header.entries.size(), entries.size());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(header.entries[i].name, entries[i].name);
    EXPECT_EQ(header.entries[i].dtype, entries[i].dtype);
    EXPECT_EQ(header.entries[i].sizes, entries[i].sizes);
    EXPECT_EQ(header.entries[i].begin, entries[i].begin);
    EXPECT_EQ(header.entries[i].end, entries[i].end);
  }
}

TEST(SafetensorsHeader, names_that_a_reader_would_refuse_are_not_written) {
  const auto text = [](std::vector<std::string> names) {
    std::vector<SafetensorsEntry> entries(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) entries[i].name = names[i];
    return message<ValueError>([&] { format_safetensors_header(entries, {}); });
  };
  EXPECT_EQ(text({"a", "a"}), "safetensors: tensor name 'a' is there twice");
  EXPECT_EQ(text({"__metadata__"}), "safetensors: tensor name '__metadata__' is reserved");
  EXPECT_EQ(text({"\xff"}), "safetensors: a name is not UTF-8; got '\xff'");
}

TEST(SafetensorsHeader, a_long_name_is_cut_between_characters) {
  EXPECT_EQ(printable(std::string(100, 'x')), std::string(100, 'x'));
  EXPECT_EQ(printable(std::string(101, 'x')), std::string(100, 'x') + "...");
  EXPECT_EQ(printable(std::string(99, 'x') + "\xc3\xa9"), std::string(99, 'x') + "...");
}

}  // namespace
}  // namespace lorry::io::test
