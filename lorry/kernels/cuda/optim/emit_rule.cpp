#include "lorry/kernels/cuda/optim/emit_rule.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

namespace lorry::kernels::cuda {
namespace {

using recording::Node;
using recording::Term;

constexpr const char* kKernel = R"(#include "lorry/kernels/cuda/optim/{header}"

namespace lorry::formula {{

struct Recorded {{
  static constexpr int kStates = {states};
  static constexpr unsigned kNotNegative = {not_negative};
  struct Settings {{}};
  struct Progress {{}};
  template <class V>
  struct Hyper {{
    V at[{numbers}];
    unsigned update;
    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {{
      Hyper<To> to;
#pragma unroll
      for (int k = 0; k < {numbers}; ++k) to.at[k] = f(at[k]);
      to.update = update;
      return to;
    }}
  }};

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {{
{updates}  }}
}};

/// Reads the rule's own hyper block, whose type generated code does not know.
template <>
struct HyperBlock<Recorded, {compute}> {{
  alignas(8) unsigned char bytes[{bytes}];

  template <class T>
  LORRY_INLINE T read(int offset) const {{
    return *reinterpret_cast<const T*>(bytes + offset);
  }}
  LORRY_INLINE Recorded::Hyper<{compute}> numbers() const {{
    Recorded::Hyper<{compute}> h;
#pragma unroll
    for (int k = 0; k < {numbers}; ++k) h.at[k] = read<{compute}>({hyper} + k * int{{sizeof({compute})}});
    h.update = 0;
#pragma unroll
    for (int k = 0; k < {flags}; ++k)
      h.update |= unsigned{{read<bool>({hyper} + {numbers} * int{{sizeof({compute})}} + k)}} << k;
    return h;
  }}
  LORRY_INLINE double next_steps() const {{ return read<double>({next_steps}); }}
  LORRY_INLINE void advance() {{}}
}};

}}  // namespace lorry::formula

namespace lorry::kernels::cuda {{

using Rule = formula::Recorded;
using Body = {body};
using Source = {source}<Body::kArrays>;

extern "C" __global__ void __launch_bounds__(kListThreads, Body::kBlocks)
    {name}(const __grid_constant__ Body body, const Ending ending, const __grid_constant__ Source source) {{
  lorry::cuda::begin_programmatic();
  over_tile(body, ending, source);
}}

}}  // namespace lorry::kernels::cuda
)";

/// The text of a number, exact to the bit.
std::string constant(double x) { return fmt::format("V(__longlong_as_double({:#x}ll))", std::bit_cast<uint64_t>(x)); }

std::string operand(const RecordedUpdate& update, const Term& x) {
  if (x.is_constant()) return constant(x.constant);
  const Node& node = update.nodes[static_cast<size_t>(x.node)];
  switch (node.from) {
    case Node::From::param:
      return "p";
    case Node::From::grad:
      return "grad";
    case Node::From::state:
      return fmt::format("s{}", node.index);
    case Node::From::hyper:
      return fmt::format("h.at[{}]", node.index);
    default:
      return fmt::format("v{}", x.node);
  }
}

/// The text of an operation, as in the formulas of pointwise.def.
std::string value(const RecordedUpdate& update, const Node& node) {
  const auto in = [&](size_t k) { return operand(update, node.in[k]); };
  const auto between = [&](const char* sign) { return fmt::format("{} {} {}", in(0), sign, in(1)); };
  switch (node.op) {
    case Pointwise::add:
      return between("+");
    case Pointwise::sub:
      return between("-");
    case Pointwise::mul:
      return between("*");
    case Pointwise::div:
      return between("/");
    case Pointwise::lt:
      return between("<");
    case Pointwise::le:
      return between("<=");
    case Pointwise::gt:
      return between(">");
    case Pointwise::ge:
      return between(">=");
    case Pointwise::eq:
      return between("==");
    case Pointwise::ne:
      return between("!=");
    case Pointwise::logical_and:
      return between("&");
    case Pointwise::logical_or:
      return between("|");
    case Pointwise::logical_not:
      return fmt::format("!{}", in(0));
    case Pointwise::neg:
      return fmt::format("-{}", in(0));
    case Pointwise::sqrt:
      return fmt::format("sqrt({})", in(0));
    case Pointwise::abs:
      return fmt::format("abs({})", in(0));
    case Pointwise::where:
      return fmt::format("select({}, {}, {})", in(0), in(1), in(2));
    default:
      raise_as<Error>("optimizer step", "a recorded rule has operator {}, which rules do not have",
                      static_cast<int>(node.op));
  }
}

/// The text of an update. All old values are read before any new one is written.
std::string statements(const RecordedRule& rule, const RecordedUpdate& update, const char* indent) {
  std::string text = fmt::format("{}[[maybe_unused]] const V p = param;\n", indent);
  for (int k = 0; k < rule.states; ++k)
    text += fmt::format("{}[[maybe_unused]] const V s{} = states[{}];\n", indent, k, k);
  const std::vector<bool> needed = update.needed();
  for (size_t n = 0; n < update.nodes.size(); ++n)
    if (const Node& node = update.nodes[n]; needed[n] && node.from == Node::From::operation)
      text += fmt::format("{}const auto v{} = {};\n", indent, n, value(update, node));
  text += fmt::format("{}param = {};\n", indent, operand(update, update.results[0]));
  for (int k = 0; k < rule.states; ++k)
    text += fmt::format("{}states[{}] = {};\n", indent, k, operand(update, update.results[static_cast<size_t>(k) + 1]));
  return text;
}

}  // namespace

std::string emit_step(const RecordedRule& rule, const std::string& name, const std::string& body,
                      const std::string& source) {
  std::string updates;
  for (uint32_t u = 0, left = rule.reachable; left != 0; ++u) {
    if (!(left >> u & 1)) continue;
    left ^= 1u << u;
    const std::string condition = left != 0 ? fmt::format("if (h.update == {}) ", u) : "";
    updates += fmt::format("    {}{{\n{}    }}{}\n", condition, statements(rule, rule.updates[u], "      "),
                           left != 0 ? " else" : "");
  }
  return fmt::format(kKernel, fmt::arg("states", rule.states), fmt::arg("not_negative", rule.not_negative),
                     fmt::arg("numbers", rule.block.numbers), fmt::arg("updates", updates),
                     fmt::arg("compute", rule.compute == kF64 ? "double" : "float"),
                     fmt::arg("bytes", rule.block.bytes), fmt::arg("hyper", rule.block.hyper),
                     fmt::arg("flags", rule.block.flags), fmt::arg("next_steps", rule.block.next_steps),
                     fmt::arg("body", body), fmt::arg("source", source), fmt::arg("name", name),
                     fmt::arg("header", body.starts_with("StepCompressed") ? "step_compressed.h" : "step.h"));
}

}  // namespace lorry::kernels::cuda
