#include "lorry/compile/epilogue.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "lorry/base/events.h"
#include "lorry/compile/neighbours.h"
#include "lorry/kernels/backend.h"
#include "lorry/ops/product.h"

namespace lorry::compiler {
namespace {

using namespace trace;
using kernels::MatmulArgs;
using kernels::MatmulEpilogue;

// ---- products -------------------------------------------------------------------------------------------------------

/// A product without addresses, and the operands that they come from: a, b, and c if there is one.
struct Product {
  MatmulArgs args;
  std::vector<Argument> operands;
};

/// A node as a product; none if it is none, or if an operand would have to be copied.
std::optional<Product> product_of(const Graph& graph, const Node& node) {
  const bool is_linear = node.op == Op::linear;
  if ((!is_linear && node.op != Op::matmul) || node.form != Node::pure || node.results[0] < 0) return std::nullopt;
  const Value& result = graph.values[static_cast<size_t>(node.results[0])];
  const Argument &a = node.arguments[0], &b = node.arguments[1];
  const Layout &of_a = a.window.layout, &of_b = b.window.layout;
  if (a.kind != Argument::value || b.kind != Argument::value || of_a.rank < 2 || of_b.rank < 2) return std::nullopt;
  const Dims sizes = result.layout.size_list(), batch = batch_sizes(result.layout);
  const auto factor = [&](const Layout& layout) {
    Dims expanded = batch;
    expanded.push_back(layout.sizes[layout.rank - 2]);
    expanded.push_back(layout.sizes[layout.rank - 1]);
    return kernels::Array{nullptr, result.dtype, expand(layout, expanded)};
  };
  Product product{.args = {.out = {nullptr, result.dtype, result.layout},
                           .a = factor(of_a),
                           .b = factor(is_linear ? transposed(of_b) : of_b),
                           .c = {}},
                  .operands = {a, b}};
  for (const kernels::Array* x : {&product.args.out, &product.args.a, &product.args.b})
    if (!kernels::has_unit_stride(x->layout)) return std::nullopt;
  if (is_linear && node.arguments[2].kind == Argument::value) {
    if (!node.arguments[2].window.layout.is_contiguous()) return std::nullopt;
    const Argument& c = product.operands.emplace_back(node.arguments[2]);
    product.args.c = {nullptr, result.dtype, expand(c.window.layout, sizes)};
    product.args.beta = 1;
  }
  return product;
}

class ProductKernel final : public kernels::FusedKernel {
 public:
  ProductKernel(const MatmulArgs& args, bool adds, MatmulEpilogue::Kind epilogue, Device device)
      : args_(args), adds_(adds), epilogue_(epilogue), device_(device) {}

  bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const override {
    MatmulArgs args = args_;
    args.out.data = outputs[0], args.a.data = inputs[0], args.b.data = inputs[1];
    if (adds_) args.c.data = inputs[2];
    MatmulEpilogue epilogue{.kind = epilogue_};
    switch (epilogue_) {
      case MatmulEpilogue::gelu_and_input:
        epilogue.aux = outputs[1];
        break;
      case MatmulEpilogue::gelu_backward_and_sums:
        epilogue.sums = outputs[1];
        [[fallthrough]];
      case MatmulEpilogue::gelu_backward:
        epilogue.aux = inputs[2];
        break;
      case MatmulEpilogue::sums_of_a:
        epilogue.sums = outputs[1];
        break;
      default:
        break;
    }
    const kernels::MatmulKernels& matmul = *kernels::backend(device_).matmul;
    if (matmul.with_epilogue(args, epilogue, stream)) return true;
    if (told_.exchange(true)) return false;
    const int r = args.out.layout.rank;
    const char* const why = matmul.refused(args, epilogue);
    events::emit(events::Kind::warning, "compile",
                 fmt::format("a product of [{}, {}] by [{}, {}] with {} is left to its operators: {}",
                             args.a.size(r - 2), args.a.size(r - 1), args.b.size(r - 2), args.b.size(r - 1),
                             kernels::name(epilogue_), why != nullptr ? why : "the library has no algorithm for it"));
    return false;
  }

 private:
  const MatmulArgs args_;
  const bool adds_;
  const MatmulEpilogue::Kind epilogue_;
  const Device device_;
  mutable std::atomic<bool> told_ = false;
};

// ---- the pass -------------------------------------------------------------------------------------------------------

class Joiner {
 public:
  Joiner(const Graph& graph, std::vector<Unit>& units) : units_(graph, units) {}

  void run(bool all) {
    each_product(&Joiner::join_gelu);
    each_product(&Joiner::join_relu);
    // A bias's gradient joins the product before it rather than the one after it, which reads it.
    if (all) each_product(&Joiner::join_gelu_backward);
    if (all) each_product(&Joiner::join_sums);
    units_.finish();
  }

 private:
  void each_product(void (Joiner::*join)(int32_t n)) {
    for (int32_t n = 0; n < static_cast<int32_t>(units_.graph().nodes.size()); ++n)
      if (units_.is_free(n) && has_epilogues(units_.node(n))) (this->*join)(n);
  }
  const Node& node(int32_t n) const { return units_.node(n); }
  const Value& value(int32_t v) const { return units_.value(v); }
  int32_t result(int32_t n) const { return units_.result(n); }
  bool has_epilogues(const Node& product) const {
    return (product.op == Op::linear || product.op == Op::matmul) && product.results[0] >= 0 &&
           kernels::backend(value(product.results[0]).device).matmul->with_epilogue != nullptr;
  }

  /// Joins a product, which is the first node, and its neighbours. Returns why not; null if it did.
  /// operands: what the epilogue reads beside the product's operands. outputs: the result, and what the epilogue
  /// writes.
  const char* join(const std::vector<int32_t>& nodes, MatmulEpilogue::Kind epilogue, std::vector<Argument> operands,
                   std::vector<int32_t> outputs, int64_t bytes_saved) {
    const std::optional<Product> product = product_of(units_.graph(), node(nodes[0]));
    if (!product) return "an operand has to be copied";
    if (units_.host_is_called_between(nodes)) return "the host is called in between";
    if (!units_.may_join(nodes)) return "one of its results is needed before the product can be computed";
    const kernels::MatmulKernels& matmul = *kernels::backend(value(outputs[0]).device).matmul;
    if (const char* why = matmul.refused(product->args, {.kind = epilogue})) return why;
    Unit& unit = units_.join(nodes);
    unit.kind = Unit::product;
    unit.inputs = product->operands;
    unit.inputs.insert(unit.inputs.end(), operands.begin(), operands.end());
    unit.outputs = std::move(outputs);
    unit.epilogue = epilogue;
    unit.bytes_saved = bytes_saved;
    return nullptr;
  }

  void refuse(int32_t n, const char* why) {
    if (why != nullptr) units_.unit(n).refused = fmt::format("its product does not take it in: {}", why);
  }

  /// The free node that computes `op` of the whole value, element by element, in its layout; -1 if there is none.
  int32_t activation(int32_t input, Op op) const {
    return units_.free_reader(input, op, [&](const Node& x) {
      return units_.reads_whole(x.arguments[0], input) && x.results[0] >= 0 &&
             value(x.results[0]).layout == value(input).layout;
    });
  }
  bool is_read_elsewhere(int32_t v) const { return units_.readers(v).size() > 1 || units_.outlives(v); }

  void join_gelu(int32_t n) {
    const int32_t input = result(n), gelu = activation(input, Op::gelu_tanh);
    if (gelu < 0) return;
    const bool keeps = is_read_elsewhere(input);
    std::vector<int32_t> outputs{result(gelu)};
    if (keeps) outputs.push_back(input);
    refuse(gelu, join({n, gelu}, keeps ? MatmulEpilogue::gelu_and_input : MatmulEpilogue::gelu, {}, std::move(outputs),
                      units_.bytes(input) * (keeps ? 1 : 2)));
  }

  void join_relu(int32_t n) {
    const int32_t input = result(n), relu = activation(input, Op::relu);
    if (relu < 0) return;
    if (is_read_elsewhere(input)) return refuse(relu, "its operand is read elsewhere too");
    refuse(relu, join({n, relu}, MatmulEpilogue::relu, {}, {result(relu)}, 2 * units_.bytes(input)));
  }

  void join_gelu_backward(int32_t n) {
    if (node(n).op != Op::matmul) return;
    const int32_t gradient = result(n);
    const int32_t gelu = units_.free_reader(gradient, Op::gelu_tanh_backward, [&](const Node& g) {
      return units_.reads_whole(g.arguments[0], gradient) && g.results[0] >= 0 &&
             value(g.results[0]).layout == value(gradient).layout && g.arguments[1].kind == Argument::value &&
             g.arguments[1].window.layout == value(gradient).layout && g.arguments[1].dtype == value(gradient).dtype;
    });
    if (gelu < 0) return;
    if (is_read_elsewhere(gradient)) return refuse(gelu, "its first operand is read elsewhere too");
    const int32_t out = result(gelu);
    const int64_t columns = value(out).layout.sizes[value(out).layout.rank - 1];
    const int32_t sum =
        value(out).layout.is_contiguous()
            ? units_.free_reader(out, Op::sum,
                                 [&](const Node& s) {
                                   return sums_rows(s) &&
                                          s.arguments[0].window.layout.numel() == value(out).layout.numel() &&
                                          value(s.results[0]).layout.numel() == columns;
                                 })
            : -1;
    std::vector<int32_t> nodes{n, gelu}, outputs{out};
    if (sum >= 0) nodes.push_back(sum), outputs.push_back(result(sum));
    refuse(gelu, join(nodes, sum < 0 ? MatmulEpilogue::gelu_backward : MatmulEpilogue::gelu_backward_and_sums,
                      {node(gelu).arguments[1]}, std::move(outputs), units_.bytes(out) * (sum < 0 ? 2 : 3)));
  }

  void join_sums(int32_t n) {
    if (node(n).op != Op::matmul || node(n).arguments[0].kind != Argument::value) return;
    const Argument& a = node(n).arguments[0];
    if (a.window.layout.rank != 2) return;
    const int32_t sum = units_.free_reader(a.value_index, Op::sum, [&](const Node& s) {
      const Window& rows = s.arguments[0].window;
      return sums_rows(s) && rows.layout.rank == 2 && rows.layout == transposed(a.window.layout) &&
             rows.offset == a.window.offset;
    });
    if (sum >= 0) refuse(sum, join({n, sum}, MatmulEpilogue::sums_of_a, {}, {result(n), result(sum)}, units_.bytes(a)));
  }

  /// Whether a sum over all dimensions but the last reads contiguous memory, and leaves such memory.
  bool sums_rows(const Node& sum) const {
    const Argument& x = sum.arguments[0];
    const auto* dims = std::get_if<Dims>(&sum.attributes[0]);
    if (x.kind != Argument::value || dims == nullptr || sum.results[0] < 0) return false;
    const int rank = x.window.layout.rank;
    if (rank < 2 || !x.window.layout.is_contiguous() || x.dtype != value(sum.results[0]).dtype) return false;
    for (int d = 0; d < rank; ++d)
      if (dims->contains(d) == (d == rank - 1)) return false;
    return value(sum.results[0]).layout.is_contiguous();
  }

  Neighbours units_;
};

}  // namespace

void join_products(const Graph& graph, std::vector<Unit>& units, bool all) { Joiner(graph, units).run(all); }

std::unique_ptr<const kernels::FusedKernel> make_product(const Graph& graph, const Unit& unit) {
  const std::optional<Product> product = product_of(graph, graph.nodes[static_cast<size_t>(unit.nodes[0])]);
  return std::make_unique<ProductKernel>(product->args, product->operands.size() > 2, unit.epilogue,
                                         graph.values[static_cast<size_t>(unit.outputs[0])].device);
}

}  // namespace lorry::compiler
