#include "lorry/io/safetensors.h"

#include <signal.h>
#include <sys/resource.h>

#include "lorry/ops/ops.h"
#include "tests/io/safetensors_bytes.h"
#include "tests/io/scratch.h"
#include "tests/support/host.h"

namespace lorry::io::test {
namespace {

const std::filesystem::path kData = LORRY_TEST_DATA;

/// Element i holds i.
Tensor counting(const Dims& sizes, DType dtype) {
  return arange(checked_numel(sizes), {.dtype = kF32}).to(dtype).view(sizes);
}

Tensor scalar(float value) { return full({}, value); }

/// Those of tests/peers/make_safetensors_reference.py. A dtype that came after the file was written is not among them.
TensorMap reference_tensors() {
  const TensorMap written = load_safetensors(kData / "reference.safetensors");
  TensorMap tensors;
  for (const DType dtype : kDTypes)
    if (const std::string of = fmt::format("of {}", name(dtype)); written.contains(of))
      tensors[of] = counting({2, 3}, dtype);
  tensors["empty"] = empty({0, 4});
  tensors["scalar \xc3\xa9"] = scalar(1.5f);
  return tensors;
}

/// What files call the element types.
std::string spellings() {
  std::string all;
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) all += all.empty() ? safetensors : ", " safetensors;
#include "lorry/layout/dtypes.def"
  return all;
}

using lorry::test::bytes_of;

void expect_same(const TensorMap& a, const TensorMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, x] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    const Tensor& y = b.at(name);
    EXPECT_EQ(x.dtype(), y.dtype()) << name;
    EXPECT_EQ(x.sizes(), y.sizes()) << name;
    EXPECT_EQ(bytes_of(x.contiguous()), bytes_of(y.contiguous())) << name;
  }
}

TEST(Safetensors, a_file_of_the_reference_writer_is_read) {
  Metadata metadata;
  expect_same(load_safetensors(kData / "reference.safetensors", &metadata), reference_tensors());
  EXPECT_EQ(metadata, (Metadata{{"format", "pt"}}));
}

TEST(Safetensors, the_same_tensors_give_the_bytes_of_the_reference_writer) {
  const Scratch scratch;
  save_safetensors(scratch / "a", reference_tensors(), {{"format", "pt"}});
  EXPECT_EQ(get(scratch / "a"), get(kData / "reference.safetensors"));
}

TEST(Safetensors, strided_tensors_are_written_in_row_major_order) {
  const Scratch scratch;
  const Tensor transposed = empty_strided({2, 3}, {1, 2});
  transposed.t().copy_(arange(6, {.dtype = kF32}).view({3, 2}));
  save_safetensors(scratch / "a", {{"x", transposed}});
  EXPECT_EQ(load_safetensors(scratch / "a").at("x").to_vector<float>(), (std::vector<float>{0, 2, 4, 1, 3, 5}));
}

TEST(Safetensors, aligned_tensors_share_the_mapping_and_writes_stay_private) {
  const Scratch scratch;
  save_safetensors(scratch / "a", {{"x", counting({4}, kF32)}, {"y", counting({4}, kF64)}});
  const std::string before = get(scratch / "a");
  const TensorMap tensors = load_safetensors(scratch / "a");
  const auto* x = static_cast<const char*>(tensors.at("x").data_ptr());
  EXPECT_EQ(x - static_cast<const char*>(tensors.at("y").data_ptr()), 32) << "both point into one mapped file";
  tensors.at("x").fill_(7);
  EXPECT_EQ(tensors.at("x").to_vector<float>(), std::vector<float>(4, 7));
  EXPECT_EQ(get(scratch / "a"), before);
}

TEST(Safetensors, tensors_outlive_the_file_and_its_replacement) {
  const Scratch scratch;
  save_safetensors(scratch / "a", {{"x", counting({1000}, kF32)}});
  const Tensor x = load_safetensors(scratch / "a").at("x");
  save_safetensors(scratch / "a", {{"x", counting({2}, kF32)}});
  std::filesystem::remove(scratch / "a");
  EXPECT_EQ(x.to_vector<float>()[999], 999);
}

TEST(Safetensors, a_file_may_be_saved_over_the_one_its_tensors_show) {
  const Scratch scratch;
  save_safetensors(scratch / "a", {{"x", counting({1000}, kF32)}});
  save_safetensors(scratch / "a", load_safetensors(scratch / "a"));
  EXPECT_EQ(load_safetensors(scratch / "a").at("x").to_vector<float>()[999], 999);
}

TEST(Safetensors, misaligned_data_is_copied_into_place) {
  const Scratch scratch;
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  put(scratch / "a", file_of(header, std::string("\x09\x00\x00\x80\x3f", 5)));
  const Tensor b = load_safetensors(scratch / "a").at("b");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data_ptr()) % 4, 0u);
  EXPECT_EQ(b.item<float>(), 1.0f);
}

TEST(Safetensors, a_tensor_of_an_unknown_dtype_is_refused_by_name_and_the_others_load) {
  const Scratch scratch;
  const std::string header = R"({"a":{"dtype":"X8","shape":[3],"data_offsets":[0,3]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})";
  put(scratch / "a", file_of(header, std::string("\x01\x02\x03\x00\x00\x80\x3f", 7)));
  std::vector<UnreadTensor> unread;
  const TensorMap tensors = load_safetensors(scratch / "a", nullptr, &unread);
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors.at("b").item<float>(), 1.0f);
  ASSERT_EQ(unread.size(), 1u);
  EXPECT_EQ(why_unread(unread[0]),
            "tensor 'a' has a dtype that this reader does not take; got 'X8'; expected one of " + spellings());
  EXPECT_EQ(message<FormatError>([&] { load_safetensors(scratch / "a"); }),
            "safetensors '" + (scratch / "a").string() + "': " + why_unread(unread[0]));
}

TEST(Safetensors, a_malformed_file_is_named_in_the_error) {
  const Scratch scratch;
  put(scratch / "a", "short");
  EXPECT_EQ(message<FormatError>([&] { load_safetensors(scratch / "a"); }),
            "safetensors '" + (scratch / "a").string() +
                "': file is too short for a header length; got 5 bytes; expected at least 8");
}

TEST(Safetensors, a_full_disk_keeps_the_former_file) {
  const Scratch scratch;
  save_safetensors(scratch / "a", {{"x", counting({10}, kF32)}});
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limited{4096, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limited);
  const std::string text = message<IoError>([&] {
    save_safetensors(scratch / "a", {{"x", counting({10'000}, kF32)}});
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(text, "cannot write '" + (scratch / "a").string() + "': File too large");
  EXPECT_EQ(load_safetensors(scratch / "a").at("x").numel(), 10);
  EXPECT_EQ(scratch.names(), std::set<std::string>{"a"});
}

TEST(Safetensors, an_undefined_tensor_is_not_written) {
  const Scratch scratch;
  EXPECT_EQ(message<ValueError>([&] {
              save_safetensors(scratch / "a", {{"x", Tensor()}});
            }),
            "safetensors: tensor 'x' is undefined; expected a tensor");
  EXPECT_TRUE(scratch.names().empty());
}

TEST(Restore, copies_by_name_into_tensors_of_any_layout) {
  const Tensor target = empty_strided({2, 3}, {1, 2});
  restore({{"w", target}}, {{"w", counting({2, 3}, kF32)}}, "load");
  EXPECT_EQ(target.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST(Restore, what_differs_is_named_and_nothing_is_copied) {
  const Tensor a = counting({2}, kF32), b = counting({3}, kF32);
  const TensorMap targets{{"a", a}, {"b", b}};
  const Tensor nine = counting({2}, kF32).add(9);
  EXPECT_EQ(message<ShapeError>([&] {
              restore(targets, {{"a", nine}, {"b", counting({4}, kF32)}}, "load");
            }),
            "load: 'b' has another shape; got [4] f32 cpu; expected [3] f32 cpu");
  EXPECT_EQ(message<DTypeError>([&] {
              restore(targets, {{"a", nine}, {"b", counting({3}, kF64)}}, "load");
            }),
            "load: 'b' has another dtype; got [3] f64 cpu; expected [3] f32 cpu");
  EXPECT_EQ(message<FormatError>([&] {
              restore(targets, {{"a", nine}}, "load");
            }),
            "load: 'b' is missing; expected [3] f32 cpu");
  EXPECT_EQ(message<FormatError>([&] {
              restore(targets, {{"a", nine}, {"b", counting({3}, kF32)}, {"c", nine}}, "load");
            }),
            "load: 'c' is unexpected; got [2] f32 cpu");
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{0, 1}));
}

}  // namespace
}  // namespace lorry::io::test
