// What is built into the command is what the published models have.

#include "lorry/bench/shapes.h"

#include <gtest/gtest.h>

#include "lorry/base/error.h"

namespace lorry::bench {
namespace {

TEST(Shapes, every_model_has_its_published_number_of_tensors_and_elements) {
  const struct {
    const char* model;
    int64_t tensors, elements;
  } kExpected[] = {{"resnet50", 161, 25557032},           {"vit_b_16", 152, 86567656},
                   {"efficientnet_b0", 213, 5288548},     {"gpt2", 148, 124439808},
                   {"llama-1b", 146, 1235814400},         {"tiny-4096x1024", 4096, 4194304},
                   {"one-huge-2^30", 1, int64_t{1} << 30}};
  ASSERT_EQ(model_shapes().size(), std::size(kExpected));
  for (const auto& [name, tensors, elements] : kExpected) {
    const ModelShapes& model = model_shapes(name);
    EXPECT_EQ(model.tensors(), tensors) << name;
    EXPECT_EQ(model.elements(), elements) << name;
    EXPECT_EQ(model.shapes().size(), static_cast<size_t>(tensors)) << name;
  }
}

TEST(Shapes, parameters_come_in_the_order_of_the_model) {
  const std::vector<Dims> shapes = model_shapes("gpt2").shapes();
  EXPECT_EQ(shapes[0], (Dims{50257, 768}));
  EXPECT_EQ(shapes[1], (Dims{1024, 768}));
  EXPECT_EQ(shapes[4], (Dims{768, 2304}));
  EXPECT_EQ(shapes.back(), Dims{768});
}

TEST(Shapes, an_unknown_model_is_refused_with_the_names) {
  try {
    model_shapes("gpt9");
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("'gpt9'; expected one of resnet50, vit_b_16"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lorry::bench
