// What the first sample of each row should give in f64, in plain loops over row-major elements: no operator computes
// it. Sizes are the sample's, and written out.

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

#include "lorry/formula/pointwise.h"
#include "tests/ops/operator_samples.h"
#include "tests/ops/reduction_reference.h"

namespace lorry::test {
namespace {

using V = std::vector<double>;
using In = std::vector<V>;

/// The elements of the first operand at these places.
V picked(const In& in, const std::vector<size_t>& places) {
  V out;
  for (const size_t place : places) out.push_back(in[0][place]);
  return out;
}
/// `count` elements, each from its number.
template <class F>
V each(size_t count, F f) {
  V out;
  for (size_t i = 0; i < count; ++i) out.push_back(f(i));
  return out;
}
/// f of every row of four, which gives a row.
template <class F>
V rows(const V& x, F f) {
  V out;
  for (size_t i = 0; i < x.size(); i += 4) {
    const V row = f(V(x.begin() + static_cast<std::ptrdiff_t>(i), x.begin() + static_cast<std::ptrdiff_t>(i) + 4));
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}
/// f of every row of four, which gives a number.
template <class F>
V folded(const V& x, F f) {
  return rows(x, [&](const V& row) { return V{f(row)}; });
}
size_t at(double position) { return static_cast<size_t>(position); }
double total(const V& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double product(const V& x) { return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>()); }
double largest(const V& x) { return *std::max_element(x.begin(), x.end()); }
double smallest(const V& x) { return *std::min_element(x.begin(), x.end()); }
double variance(const V& x) {
  const double mean = total(x) / static_cast<double>(x.size());
  double sum = 0;
  for (const double v : x) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(x.size());
}
double log_of_exponentials(const V& x) {
  double sum = 0;
  for (const double v : x) sum += std::exp(v);
  return std::log(sum);
}
V log_softmax_of(const V& x) {
  return each(x.size(), [&](size_t i) { return x[i] - log_of_exponentials(x); });
}
V softmax_of(const V& x) {
  return each(x.size(), [&](size_t i) { return std::exp(x[i] - log_of_exponentials(x)); });
}

/// beta * c + alpha * a b for `batches` of [m, k] and [k, n]; c may be empty.
V multiplied(const V& a, const V& b, size_t batches, size_t m, size_t k, size_t n, const V& c = {}, double beta = 0,
             double alpha = 1) {
  return each(batches * m * n, [&](size_t i) {
    const size_t batch = i / (m * n), row = i / n % m, column = i % n;
    double sum = 0;
    for (size_t j = 0; j < k; ++j) sum += a[(batch * m + row) * k + j] * b[(batch * k + j) * n + column];
    return (c.empty() ? 0 : beta * c[i]) + alpha * sum;
  });
}

/// Three rows of four by a weight of two rows.
V linear_of(const In& in) {
  return each(6, [&](size_t i) {
    const double *x = &in[0][i / 2 * 4], *w = &in[1][i % 2 * 4];
    return std::inner_product(x, x + 4, w, in[2][i % 2]);
  });
}

/// One head's attention: rows of `width` numbers that begin at q + i * stride.
struct Head {
  const double *q, *k, *v, *mask;
  size_t queries, keys, width, stride;
  bool causal;

  V out(size_t i) const {
    V scores;
    for (size_t j = 0; j < (causal ? i + 1 : keys); ++j) {
      double sum = 0;
      for (size_t e = 0; e < width; ++e) sum += q[i * stride + e] * k[j * stride + e];
      scores.push_back(sum / std::sqrt(static_cast<double>(width)) + (mask ? mask[i * keys + j] : 0));
    }
    const V weights = softmax_of(scores);
    return each(width, [&](size_t e) {
      double sum = 0;
      for (size_t j = 0; j < weights.size(); ++j) sum += weights[j] * v[j * stride + e];
      return sum;
    });
  }
};

V attention(const In& in) {
  V out;
  for (size_t h = 0; h < 2; ++h)
    for (size_t i = 0; i < 3; ++i) {
      const V row = Head{&in[0][h * 12], &in[1][h * 20], &in[2][h * 20], in[3].data(), 3, 5, 4, 4, false}.out(i);
      out.insert(out.end(), row.begin(), row.end());
    }
  return out;
}
V packed_attention(const In& in) {
  V out;
  for (size_t b = 0; b < 2; ++b)
    for (size_t i = 0; i < 3; ++i)
      for (size_t h = 0; h < 2; ++h) {
        const double* first = &in[0][b * 36 + h * 2];
        const V row = Head{first, first + 4, first + 8, nullptr, 3, 3, 2, 12, true}.out(i);
        out.insert(out.end(), row.begin(), row.end());
      }
  return out;
}

/// The offset of position `at` of a sequence in caches of [6, 2, 2, 3].
size_t in_cache(const V& block_table, double slot, size_t position) {
  return at(block_table[at(slot) * 3 + position / 2]) * 12 + position % 2 * 6;
}
V paged_write(const In& in) {
  V cache = in[0];
  for (size_t i = 0; i < 4; ++i)
    for (size_t e = 0; e < 6 && in[5][i] >= 0; ++e)
      cache[in_cache(in[4], in[5][i], at(in[6][i])) + e] = in[2][i * 6 + e];
  return cache;
}
V paged_attention(const In& in) {
  return each(48, [&](size_t n) {
    const size_t i = n / 12, head = n / 3 % 4, e = n % 3;
    if (in[4][i] < 0) return 0.0;
    V scores, values;
    for (size_t j = 0; j <= at(in[5][i]); ++j) {
      const size_t first = in_cache(in[3], in[4][i], j) + head / 2 * 3;
      scores.push_back(0.5 * std::inner_product(&in[1][first], &in[1][first] + 3, &in[0][i * 12 + head * 3], 0.0));
      values.push_back(in[2][first + e]);
    }
    const V weights = softmax_of(scores);
    return std::inner_product(weights.begin(), weights.end(), values.begin(), 0.0);
  });
}

V cross_entropy_of(const In& in) {
  double loss = 0, weights = 0;
  for (size_t n = 0; n < 3; ++n) {
    const V log_p = log_softmax_of(
        V(in[0].begin() + static_cast<std::ptrdiff_t>(4 * n), in[0].begin() + static_cast<std::ptrdiff_t>(4 * n) + 4));
    const size_t target = at(in[1][n]);
    loss -= 0.9 * in[2][target] * log_p[target];
    for (size_t c = 0; c < 4; ++c) loss -= 0.1 / 4 * in[2][c] * log_p[c];
    weights += in[2][target];
  }
  return {loss / weights};
}

V written(const In& in, double keep, double scale) {
  V out = in[0];
  for (size_t i = 0; i < 8; ++i) {
    double& element = out[at(in[1][i / 4]) * 4 + i % 4];
    element = keep * element + scale * in[2][i];
  }
  return out;
}
V scattered(const In& in, double keep) {
  V out = in[0];
  for (size_t i = 0; i < 8; ++i) {
    double& element = out[at(in[1][i]) * 4 + i % 4];
    element = keep * element + in[2][i];
  }
  return out;
}

/// The number of a signed 8-bit code of the dynamic map, by its definition (formula/quantize.h).
double block_number(uint32_t code) {
  const uint32_t m = code & 0x7f;
  if (m == 0) return 0;
  const int n = std::bit_width(m) - 1, e = 6 - n;
  const double high = std::pow(8.0, -e), low = high / 8, parts = std::exp2(n);
  return (code & 0x80 ? -1 : 1) * (low + (high - low) * (m - parts + 1) / parts);
}

const std::map<Op, V (*)(const In&)> kOracles = {
    // ---- copies and views
    {Op::copy, [](const In& in) { return each(12, [&](size_t i) { return in[1][i % 4]; }); }},
    {Op::cast, [](const In& in) { return in[0]; }},
    {Op::transfer, [](const In& in) { return in[0]; }},
    {Op::clone, [](const In& in) { return in[0]; }},
    {Op::fill, [](const In& in) { return V(12, in[1][0]); }},
    {Op::as_strided,
     [](const In& in) {
       return picked(in, {1, 2, 3, 5, 6, 7});
     }},
    {Op::view, [](const In& in) { return in[0]; }},
    {Op::permute, [](const In& in) { return each(24, [&](size_t i) { return in[0][i % 6 * 4 + i / 6]; }); }},
    {Op::transpose, [](const In& in) { return each(12, [&](size_t i) { return in[0][i % 3 * 4 + i / 3]; }); }},
    {Op::expand, [](const In& in) { return each(24, [&](size_t i) { return in[0][i / 4 % 3]; }); }},
    {Op::select,
     [](const In& in) {
       return picked(in, {2, 6, 10});
     }},
    {Op::slice,
     [](const In& in) {
       return picked(in, {1, 3, 5, 7, 9, 11});
     }},
    {Op::diagonal,
     [](const In& in) {
       return picked(in, {1, 6, 11});
     }},
    {Op::unfold,
     [](const In& in) {
       return picked(in, {0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13});
     }},
    {Op::embed,
     [](const In& in) {
       return each(
           20, [&](size_t i) { return i / 5 % 3 && i % 5 > 0 && i % 5 < 4 ? in[0][(i / 5 - 1) * 3 + i % 5 - 1] : 0; });
     }},
    {Op::tril, [](const In& in) { return each(12, [&](size_t i) { return i % 4 <= i / 4 + 1 ? in[0][i] : 0; }); }},
    {Op::triu, [](const In& in) { return each(18, [&](size_t i) { return i % 3 >= i / 3 % 3 ? in[0][i] : 0; }); }},
    // ---- indexing
    {Op::gather, [](const In& in) { return each(8, [&](size_t i) { return in[0][at(in[1][i]) * 4 + i % 4]; }); }},
    {Op::scatter, [](const In& in) { return scattered(in, 0); }},
    {Op::scatter_add, [](const In& in) { return scattered(in, 1); }},
    {Op::scatter_reduce,
     [](const In& in) {
       V out = in[0];
       for (size_t i = 0; i < 8; ++i) out[at(in[1][i]) * 4 + i % 4] *= in[2][i];
       return out;
     }},
    {Op::index_select,
     [](const In& in) { return each(12, [&](size_t i) { return in[0][at(in[1][i / 4]) * 4 + i % 4]; }); }},
    {Op::index_add, [](const In& in) { return written(in, 1, 2); }},
    {Op::index_copy, [](const In& in) { return written(in, 0, 1); }},
    {Op::index_fill, [](const In& in) { return each(12, [&](size_t i) { return i % 4 % 3 == 0 ? 1 : in[0][i]; }); }},
    {Op::index,
     [](const In& in) {
       return picked(in, {9, 3});
     }},
    {Op::index_put, [](const In& in) { return written(in, 0, 1); }},
    {Op::nonzero,
     [](const In&) { return each(24, [](size_t i) { return static_cast<double>(i % 2 ? i / 2 % 4 : i / 8); }); }},
    {Op::nonzero_static,
     [](const In&) {
       return each(28, [](size_t i) { return i >= 24 ? -7 : static_cast<double>(i % 2 ? i / 2 % 4 : i / 8); });
     }},
    {Op::cat,
     [](const In& in) {
       return each(18, [&](size_t i) { return i % 6 < 2 ? in[0][i / 6 * 2 + i % 6] : in[1][i / 6 * 4 + i % 6 - 2]; });
     }},
    {Op::flip, [](const In& in) { return each(12, [&](size_t i) { return in[0][i / 4 * 4 + 3 - i % 4]; }); }},
    {Op::roll,
     [](const In& in) { return each(12, [&](size_t i) { return in[0][(i / 4 + 2) % 3 * 4 + (i + 2) % 4]; }); }},
    {Op::sort,
     [](const In& in) {
       return rows(in[0], [](V row) {
         std::sort(row.begin(), row.end(), std::greater<>());
         return row;
       });
     }},
    {Op::topk, [](const In& in) { return folded(in[0], largest); }},
    {Op::unique,
     [](const In& in) {
       V x = in[0];
       std::sort(x.begin(), x.end());
       return x;
     }},
    // ---- reductions and scans
    {Op::prod, [](const In& in) { return folded(in[0], product); }},
    {Op::median,
     [](const In& in) {
       V all = in[0];
       std::sort(all.begin(), all.end());
       return V{all[(all.size() - 1) / 2]};
     }},
    {Op::max, [](const In& in) { return folded(in[0], largest); }},
    {Op::min, [](const In& in) { return folded(in[0], smallest); }},
    {Op::aminmax, [](const In& in) { return folded(in[0], smallest); }},
    {Op::argmax,
     [](const In& in) {
       return folded(in[0], [](const V& row) {
         return static_cast<double>(std::max_element(row.begin(), row.end()) - row.begin());
       });
     }},
    {Op::argmin,
     [](const In& in) {
       return folded(in[0], [](const V& row) {
         return static_cast<double>(std::min_element(row.begin(), row.end()) - row.begin());
       });
     }},
    {Op::count_nonzero, [](const In&) { return V(3, 4); }},
    {Op::var, [](const In& in) { return folded(in[0], variance); }},
    {Op::std, [](const In& in) { return folded(in[0], [](const V& row) { return std::sqrt(variance(row)); }); }},
    {Op::norm,
     [](const In& in) {
       return folded(
           in[0], [](const V& row) { return std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0)); });
     }},
    {Op::logsumexp, [](const In& in) { return folded(in[0], log_of_exponentials); }},
    {Op::cumsum,
     [](const In& in) {
       return rows(in[0], [](const V& x) { return V{x[0], x[0] + x[1], x[0] + x[1] + x[2], total(x)}; });
     }},
    {Op::cumprod,
     [](const In& in) {
       return rows(in[0], [](const V& x) { return V{x[0], x[0] * x[1], x[0] * x[1] * x[2], product(x)}; });
     }},
    // ---- softmax, norms, losses
    {Op::softmax, [](const In& in) { return rows(in[0], softmax_of); }},
    {Op::log_softmax, [](const In& in) { return rows(in[0], log_softmax_of); }},
    {Op::layer_norm,
     [](const In& in) {
       return rows(in[0], [&](const V& x) {
         return each(
             4, [&](size_t i) { return (x[i] - total(x) / 4) / std::sqrt(variance(x) + 1e-5) * in[1][i] + in[2][i]; });
       });
     }},
    {Op::rms_norm,
     [](const In& in) {
       return rows(in[0], [&](const V& x) {
         const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
         return each(4, [&](size_t i) { return x[i] / std::sqrt(squares / 4) * in[1][i]; });
       });
     }},
    {Op::cross_entropy, cross_entropy_of},
    {Op::nll_loss, [](const In& in) { return V{-in[0][2] * in[2][2] - in[0][11] * in[2][3]}; }},
    {Op::dropout,  // which elements fall out is what the same draw does to ones
     [](const In& in) {
       const V kept = elements(dropout(ones({3, 4}, {kF64}), 0.4, true, &fresh_generator()));
       return each(12, [&](size_t i) { return kept[i] == 0 ? 0 : in[0][i] / 0.6; });
     }},
    // ---- products
    {Op::quantize_linear,
     [](const In& in) {
       return each(12, [&](size_t i) {
         const double code = std::nearbyint(in[0][i] / (in[1][i / 4] / 16)) + in[2][i / 4];
         return std::clamp(code, -128.0, 127.0);
       });
     }},
    {Op::dequantize_linear,
     [](const In& in) {
       return each(12, [&](size_t i) { return (std::trunc(in[0][i] * 16) - in[2][i % 4]) * in[1][i % 4] / 16; });
     }},
    {Op::quantize_blocks,
     [](const In& in) {
       double most = 0;
       for (const double x : in[0]) most = std::max(most, std::fabs(x));
       return each(12, [&](size_t i) {
         uint32_t nearest = 0;
         const auto distance = [&](uint32_t code) { return std::fabs(block_number(code) - in[0][i] / most); };
         for (uint32_t code = 0; code < 256; ++code)
           if (distance(code) < distance(nearest)) nearest = code;
         return static_cast<double>(nearest);
       });
     }},
    {Op::dequantize_blocks,
     [](const In& in) {
       return each(12, [&](size_t i) {
         return block_number(static_cast<uint32_t>(static_cast<int64_t>(in[0][i] * 16)) & 0xffu) * in[1][0] / 16;
       });
     }},
    {Op::int8_matmul,
     [](const In& in) {
       const auto codes = [](const V& x) { return each(x.size(), [&](size_t i) { return std::trunc(x[i] * 16); }); };
       return multiplied(codes(in[0]), codes(in[1]), 1, 3, 4, 2);
     }},
    {Op::matmul, [](const In& in) { return multiplied(in[0], in[1], 1, 3, 4, 2); }},
    {Op::addmm, [](const In& in) { return multiplied(in[1], in[2], 1, 3, 4, 2, in[0], 2, 3); }},
    {Op::baddbmm, [](const In& in) { return multiplied(in[1], in[2], 2, 3, 4, 2, in[0], 2, 3); }},
    {Op::linear, linear_of},
    {Op::linear_rows, linear_of},
    {Op::attention, attention},
    {Op::packed_attention, packed_attention},
    {Op::paged_write, paged_write},
    {Op::paged_attention, paged_attention},
    {Op::repetition_penalty,
     [](const In& in) {
       return each(8, [&](size_t i) {
         const bool seen = in[2][i / 4] >= 0 && in[1][at(in[2][i / 4]) * 4 + i % 4] != 0;
         const double penalty = static_cast<float>(in[3][i / 4]);
         return !seen ? in[0][i] : in[0][i] > 0 ? in[0][i] / penalty : in[0][i] * penalty;
       });
     }},
    {Op::advance_sequences,
     [](const In& in) {
       return V{in[10][0], in[0][1], in[10][2]};
     }},
    {Op::rotary,  // the first of two heads turns
     [](const In& in) {
       return each(48, [&](size_t i) {
         const size_t k = i % 4, angle = i / 8 % 3 * 2 + k % 2;
         if (i / 4 % 2 == 1) return in[0][i];
         return k < 2 ? in[0][i] * in[1][angle] - in[0][i + 2] * in[2][angle]
                      : in[0][i] * in[1][angle] + in[0][i - 2] * in[2][angle];
       });
     }},
    {Op::embedding,
     [](const In& in) { return each(24, [&](size_t i) { return in[1][at(in[0][i / 4]) * 4 + i % 4]; }); }},
};

bool is_fold_row(Op op) {
  const int number = static_cast<int>(op) - kPointwiseCount;
  return number >= 0 && number < formula::kFoldRowCount;
}

}  // namespace

std::optional<std::vector<double>> oracle(const Sample& first, const Tensors& inputs) {
  In values;
  for (const Tensor& x : inputs) values.push_back(elements(x));
  if (is_fold_row(first.op)) return folded(values[0], [&](V row) { return reduction_reference(first.op, row); });
  const auto found = kOracles.find(first.op);
  if (found == kOracles.end()) return {};
  return found->second(values);
}

}  // namespace lorry::test
