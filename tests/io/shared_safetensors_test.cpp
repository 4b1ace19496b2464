#include "lorry/io/shared_safetensors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "lorry/ops/ops.h"
#include "tests/io/scratch.h"

namespace lorry::io::test {
namespace {

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

const Metadata kMetadata{{"format", "pt"}};

TensorMap tensors() {
  return {{"a", arange(24).to(kF32).view({4, 6})},
          {"b", arange(7).to(kBF16)},
          {"c", full({}, 3.0, {.dtype = kF64})},
          {"none", zeros({0, 5})}};
}
TensorMap on_meta(const TensorMap& all) {
  TensorMap meta;
  for (const auto& [name, x] : all) meta[name] = empty(x.sizes(), {.dtype = x.dtype(), .device = kMeta});
  return meta;
}

TEST(SharedSafetensors, parts_of_several_writers_make_the_file_of_one) {
  const Scratch scratch;
  save_safetensors(scratch / "whole", tensors(), kMetadata);
  const TensorMap all = tensors();
  SharedSafetensors first(scratch / "parts", on_meta(all), kMetadata, true);
  SharedSafetensors second(scratch / "parts", on_meta(all), kMetadata, false);
  const Tensor a = all.at("a").view({24});
  second.write("a", 10, a.narrow(0, 10, 14));
  first.write("a", 0, a.narrow(0, 0, 10));
  first.write("c", 0, all.at("c"));
  second.write("b", 0, all.at("b").narrow(0, 0, 3));
  second.write("b", 3, all.at("b").narrow(0, 3, 4));
  first.write("none", 0, all.at("none"));
  first.commit(), second.commit();
  EXPECT_EQ(bytes_of(scratch / "parts"), bytes_of(scratch / "whole"));
}

TEST(SharedSafetensors, refuses_what_is_no_part_of_it) {
  const Scratch scratch;
  SharedSafetensors file(scratch / "file", tensors(), kMetadata, true);
  EXPECT_THROW(file.write("d", 0, ones({1})), ValueError);
  EXPECT_THROW(file.write("a", 20, ones({5})), ValueError);
  EXPECT_THROW(file.write("a", -1, ones({1})), ValueError);
  EXPECT_THROW(file.write("b", 0, ones({1})), ValueError) << "of another dtype";
  EXPECT_THROW(SharedSafetensors(scratch / "file", tensors(), kMetadata, true), IoError) << "it is there";
  EXPECT_THROW(SharedSafetensors(scratch / "other", tensors(), kMetadata, false), IoError) << "there is none";
  EXPECT_THROW(SharedSafetensors(scratch / "file", {{"a", ones({4})}}, kMetadata, false), IoError);
  EXPECT_THROW(SharedSafetensors(scratch / "x", {{"a", Tensor()}}, kMetadata, true), ValueError);
}

}  // namespace
}  // namespace lorry::io::test
