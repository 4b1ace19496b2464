// Graphs of functions on meta: the same as elsewhere, and run there they tell the layouts of what they make.

#include <gtest/gtest.h>

#include "lorry/compile/program.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

Tensors function(const Tensors& x) {
  const Tensor hidden = gelu(matmul(x[0], x[1].t()) + x[2]), top = hidden.slice(1, 0, 4);
  top.mul_(2);
  x[2].add_(hidden.sum({0}));
  return {softmax(hidden, -1), top.t() * 3, layer_norm(hidden, {6}), hidden.view({-1})};
}

Tensors arguments(Device device, int64_t rows) {
  return {empty({rows, 5}, {.device = device}).normal_(), empty({6, 5}, {.device = device}).normal_(),
          zeros({6}, {.device = device})};
}

trace::Graph recorded(const Tensors& given) {
  trace::Recorder recorder(given);
  const Tensors results = function(given);
  return trace::functionalise(recorder.finish(results));
}

std::string without(std::string text, Device device) {
  const std::string place = fmt::format(" {}", device);
  for (size_t at = text.find(place); at != std::string::npos; at = text.find(place)) text.erase(at, place.size());
  return text;
}

TEST(CompileMeta, a_function_gives_the_graph_that_it_gives_elsewhere) {
  const Device here = default_device();
  EXPECT_EQ(without(trace::to_string(recorded(arguments(kMeta, 3))), kMeta),
            without(trace::to_string(recorded(arguments(here, 3))), here));
}

TEST(CompileMeta, graphs_and_programs_tell_the_layouts_of_what_a_function_makes) {
  const Tensors want = function(arguments(default_device(), 7)), given = arguments(kMeta, 7);
  const trace::Graph graph = recorded(arguments(kMeta, 7));
  const compiler::Program program(graph);
  for (const Tensors& got : {trace::interpret(graph, given), program.run(given)}) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].device(), kMeta);
      EXPECT_EQ(got[i].layout(), want[i].layout()) << i;
      EXPECT_EQ(got[i].dtype(), want[i].dtype()) << i;
    }
  }
}

}  // namespace
}  // namespace lorry::test
