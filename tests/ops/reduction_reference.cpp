#include "tests/ops/reduction_reference.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace lorry::test {
namespace {

using Real = long double;
using V = const std::vector<double>&;

/// The sum of f(element).
template <class F>
Real total(V x, F f) {
  Real sum = 0;
  for (const double v : x) sum += f(v);
  return sum;
}
Real itself(Real v) { return v; }
bool is_true(double v) { return v != 0; }

/// The first element that no other one beats, or NaN where one is.
template <class Beats>
Real chosen(V x, Beats beats) {
  Real best = x.at(0);
  for (const double v : x)
    if (std::isnan(v) || beats(v, best)) best = v;
  return best;
}

const std::map<Op, Real (*)(V)> kReferences = {
    {Op::sum, [](V x) { return total(x, itself); }},
    {Op::mean, [](V x) { return total(x, itself) / static_cast<Real>(x.size()); }},
    {Op::amax, [](V x) { return chosen(x, [](Real a, Real b) { return a > b; }); }},
    {Op::amin, [](V x) { return chosen(x, [](Real a, Real b) { return a < b; }); }},
    {Op::any, [](V x) -> Real { return std::any_of(x.begin(), x.end(), is_true); }},
    {Op::all, [](V x) -> Real { return std::all_of(x.begin(), x.end(), is_true); }},
};

}  // namespace

double reduction_reference(Op op, const std::vector<double>& elements) {
  return static_cast<double>(kReferences.at(op)(elements));
}

}  // namespace lorry::test
