#include "lorry/ops/quantize.h"

#include <cmath>
#include <limits>

#include "lorry/formula/codes.h"
#include "lorry/formula/quantize.h"
#include "lorry/kernels/quantize.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/product.h"
#include "lorry/ops/reduce.h"

namespace lorry {
namespace {

/// The least scale: its inverse is finite.
constexpr float kLeastScale = std::numeric_limits<float>::min();

bool is_int8(const QuantScheme& scheme) {
  return scheme.kind == QuantScheme::int8_symmetric || scheme.kind == QuantScheme::int8_affine;
}

CodeFormat format_of(const QuantScheme& scheme) {
  if (scheme.kind == QuantScheme::e4m3) return CodeFormat::e4m3;
  return scheme.kind == QuantScheme::e5m2 ? CodeFormat::e5m2 : CodeFormat::int8;
}

DType code_dtype(CodeFormat format) { return format == CodeFormat::int8 ? kI8 : kU8; }

void require_format(CodeFormat format) {
  require<ValueError>(format <= CodeFormat::e5m2, "no such format of codes; got number {}; expected int8, e4m3 or e5m2",
                      static_cast<int>(format));
}

void require_floating_values(const Tensor& x) {
  require_defined(x, "x");
  require<DTypeError>(is_floating(x.dtype()), "the input is not floating; got {}; expected one of {}", x,
                      kFloatingNames);
}

void require_floating_result(DType dtype) {
  require_dtype(dtype);
  require<DTypeError>(is_floating(dtype), "codes stand for floating numbers; got dtype {}; expected one of {}", dtype,
                      kFloatingNames);
}

/// The shape of x as the kernels read it: [rows, channels, length], with one channel if dim is not given.
struct Channels {
  int64_t dim = -1, rows = 1, count = 1, length = 1;

  Channels(const Tensor& x, std::optional<int64_t> given) {
    if (!given) {
      length = x.numel();
      return;
    }
    require<IndexError>(x.dim() > 0, "a 0-d tensor has no dimension of channels; got {}, dim {}; leave dim out", x,
                        *given);
    dim = wrap_dim(*given, static_cast<int>(x.dim()));
    count = x.size(dim);
    for (int64_t d = 0; d < dim; ++d) rows *= x.size(d);
    for (int64_t d = dim + 1; d < x.dim(); ++d) length *= x.size(d);
  }
  kernels::Array array(const Tensor& x) const {
    return {x.data_ptr(), x.dtype(), Layout::contiguous({rows, count, length})};
  }
  Dims sizes() const { return dim < 0 ? Dims{} : Dims{count}; }
};

void require_scale(const Tensor& x, const Channels& channels, const Tensor& scale, const char* what, DType dtype) {
  if (!scale.defined()) return;
  require<DTypeError>(scale.dtype() == dtype, "{} has the wrong dtype; got {}; expected {}", what, scale, dtype);
  require<ShapeError>(scale.sizes() == channels.sizes(), "{} has the wrong sizes; got {}; expected {} for {}", what,
                      scale, channels.sizes(), x);
  require_same_device(x, scale);
}

void require_scales(const Tensor& x, const Channels& channels, const Tensor& scale, const Tensor& zero_point,
                    CodeFormat format) {
  require_format(format);
  require_scale(x, channels, scale, "scale", kF32);
  require_scale(x, channels, zero_point, "zero_point", kI32);
  require<ValueError>(!zero_point.defined() || format == CodeFormat::int8,
                      "8-bit floats have no zero point; got {}; leave it undefined", zero_point);
}

template <class T>
T* address_of(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

int64_t blocks_of(const Tensor& x) { return formula::quant_blocks(x.numel()); }

kernels::Array flat_array(const Tensor& x) { return {x.data_ptr(), x.dtype(), Layout::contiguous({x.numel()})}; }

// ---- scales ---------------------------------------------------------------------------------------------------------

/// The smallest and the largest element of each channel, in f32; 0 where there are none.
std::tuple<Tensor, Tensor> range_of(const Tensor& x, const Channels& channels) {
  if (x.numel() == 0) {
    const Tensor none = zeros(channels.sizes(), {kF32, x.device()});
    return {none, none};
  }
  if (x.dim() == 1 && channels.dim == 0) return {x.to(kF32), x.to(kF32)};
  Dims reduced;
  for (int64_t d = 0; d < x.dim() && channels.dim >= 0; ++d)
    if (d != channels.dim) reduced.push_back(d);
  const auto [smallest, largest] = aminmax_over(x, reduced, false);
  return {smallest.to(kF32), largest.to(kF32)};
}

/// A scale that is not finite becomes NaN, so that nothing is decoded to a number that it was not.
Tensor usable(const Tensor& scale) {
  return where(scale.isfinite(), scale.clamp_min(kLeastScale), std::numeric_limits<double>::quiet_NaN());
}

Tensor symmetric_scale(const std::tuple<Tensor, Tensor>& range, float largest_code) {
  const auto& [smallest, largest] = range;
  return usable(maximum(smallest.abs(), largest.abs()).div(largest_code));
}

void set_affine_scale(Quantized& q, const std::tuple<Tensor, Tensor>& range) {
  const Tensor smallest = std::get<0>(range).clamp_max(0), largest = std::get<1>(range).clamp_min(0);
  // Divided first: the difference of the two may be infinite.
  q.scale = usable(largest.div(255).sub(smallest.div(255)));
  q.zero_point = smallest.div(q.scale).round().neg().sub(128).clamp(-128, 127).to(kI32);
}

void require_scheme(const QuantScheme& scheme) {
  require<ValueError>(scheme.kind <= QuantScheme::e5m2,
                      "no such scheme; got number {}; expected int8_symmetric, int8_affine, block8, e4m3 or e5m2",
                      static_cast<int>(scheme.kind));
  if (scheme.dim && !is_int8(scheme))
    raise<ValueError>("only int8 has channels; got {}; leave dim out", to_string(scheme));
  if (scheme.scaled && format_of(scheme) == CodeFormat::int8)
    raise<ValueError>("only e4m3 and e5m2 are scaled or not; got {}; leave `scaled` out", to_string(scheme));
}

}  // namespace

// ---- schemes --------------------------------------------------------------------------------------------------------

std::string to_string(const QuantScheme& scheme) {
  static constexpr const char* kNames[] = {"int8 symmetric", "int8 affine", "block8", "e4m3", "e5m2"};
  const auto kind = static_cast<size_t>(scheme.kind);
  std::string text = kind < std::size(kNames) ? kNames[kind] : "unknown";
  if (scheme.dim) text += fmt::format(", dim {}", *scheme.dim);
  if (scheme.scaled) text += " scaled";
  return text;
}

const Tensor& Quantized::require_codes() const {
  require<ValueError>(codes.defined(), "a Quantized without codes; expected one that quantize has made");
  return codes;
}

int64_t Quantized::nbytes() const {
  int64_t bytes = require_codes().nbytes();
  for (const Tensor* x : {&scale, &zero_point})
    if (x->defined()) bytes += x->nbytes();
  return bytes;
}

int64_t Quantized::original_nbytes() const { return require_codes().numel() * size_of(dtype); }

double Quantized::rate() const {
  return require_codes().numel() == 0 ? 1 : static_cast<double>(nbytes()) / static_cast<double>(original_nbytes());
}

Quantized quantize(const Tensor& input, const QuantScheme& scheme) {
  const Running running("quantize");
  require_floating_values(input);
  require_scheme(scheme);
  const Tensor x = input.detach();
  Quantized q{.scheme = scheme, .codes = {}, .scale = {}, .zero_point = {}, .dtype = x.dtype()};
  if (scheme.kind == QuantScheme::block8) {
    std::tie(q.codes, q.scale) = quantize_blocks(x);
    return q;
  }
  const CodeFormat format = format_of(scheme);
  const Channels channels(x, scheme.dim);
  if (scheme.kind == QuantScheme::int8_affine)
    set_affine_scale(q, range_of(x, channels));
  else if (is_int8(scheme) || scheme.scaled)
    q.scale = symmetric_scale(range_of(x, channels), formula::largest_of(format));
  q.codes = quantize_linear(x, q.scale, q.zero_point, scheme.dim, format);
  return q;
}

Tensor dequantize(const Quantized& q, std::optional<DType> dtype) {
  const Running running("dequantize");
  const Tensor& codes = q.require_codes();
  require_scheme(q.scheme);
  if (q.scheme.kind == QuantScheme::block8) return dequantize_blocks(codes, q.scale, dtype.value_or(q.dtype));
  return dequantize_linear(codes, q.scale, q.zero_point, q.scheme.dim, format_of(q.scheme), dtype.value_or(q.dtype));
}

// ---- codes ----------------------------------------------------------------------------------------------------------

Tensor quantize_linear(const Tensor& x, const Tensor& scale, const Tensor& zero_point, std::optional<int64_t> dim,
                       CodeFormat format) {
  const Running running("quantize_linear");
  require_floating_values(x);
  const Channels channels(x, dim);
  require_scales(x, channels, scale, zero_point, format);
  return door::call(
      Op::quantize_linear, {&x, &scale, &zero_point},
      [&] {
        const Tensor out = empty(x.sizes(), {code_dtype(format), x.device()});
        if (x.numel() == 0) return out;
        const Tensor from = x.contiguous(), scales = contiguous_or_none(scale), zeros = contiguous_or_none(zero_point);
        backend(x).quantize->quantize(
            {channels.array(out), channels.array(from), address_of<float>(scales), address_of<int32_t>(zeros), format},
            current_stream(x.device()));
        return out;
      },
      channels.dim, static_cast<int64_t>(format));
}

Tensor dequantize_linear(const Tensor& codes, const Tensor& scale, const Tensor& zero_point, std::optional<int64_t> dim,
                         CodeFormat format, DType dtype) {
  const Running running("dequantize_linear");
  require_defined(codes, "codes");
  require_floating_result(dtype);
  const Channels channels(codes, dim);
  require_scales(codes, channels, scale, zero_point, format);
  require<DTypeError>(codes.dtype() == code_dtype(format), "codes have the wrong dtype; got {}; expected {}", codes,
                      code_dtype(format));
  return door::call(
      Op::dequantize_linear, {&codes, &scale, &zero_point},
      [&] {
        const Tensor out = empty(codes.sizes(), {dtype, codes.device()});
        if (codes.numel() == 0) return out;
        const Tensor from = codes.contiguous(), scales = contiguous_or_none(scale),
                     zeros = contiguous_or_none(zero_point);
        backend(codes).quantize->dequantize(
            {channels.array(from), channels.array(out), address_of<float>(scales), address_of<int32_t>(zeros), format},
            current_stream(codes.device()));
        return out;
      },
      channels.dim, static_cast<int64_t>(format), dtype);
}

std::tuple<Tensor, Tensor> quantize_blocks(const Tensor& x) {
  const Running running("quantize_blocks");
  require_floating_values(x);
  auto [codes, scales] = door::call(Op::quantize_blocks, {&x}, [&] {
    std::array<Tensor, 2> out{empty(x.sizes(), {kU8, x.device()}), empty({blocks_of(x)}, {kF32, x.device()})};
    if (x.numel() == 0) return out;
    const Tensor from = x.contiguous();
    backend(x).quantize->quantize_blocks({flat_array(out[0]), flat_array(out[1]), flat_array(from)},
                                         current_stream(x.device()));
    return out;
  });
  return {codes, scales};
}

Tensor dequantize_blocks(const Tensor& codes, const Tensor& scales, DType dtype) {
  const Running running("dequantize_blocks");
  require_defined(codes, "codes");
  require_defined(scales, "scales");
  require_floating_result(dtype);
  require_same_device(codes, scales);
  require<DTypeError>(codes.dtype() == kU8 && scales.dtype() == kF32,
                      "codes or scales have the wrong dtype; got {} and {}; expected u8 and f32", codes, scales);
  require<ShapeError>(scales.dim() == 1 && scales.size(0) == blocks_of(codes),
                      "there is not one scale for each {} codes; got codes: {}, scales: {}; expected scales [{}]",
                      formula::kQuantBlock, codes, scales, blocks_of(codes));
  return door::call(
      Op::dequantize_blocks, {&codes, &scales},
      [&] {
        const Tensor out = empty(codes.sizes(), {dtype, codes.device()});
        if (codes.numel() == 0) return out;
        const Tensor from = codes.contiguous(), by = scales.contiguous();
        backend(codes).quantize->dequantize_blocks({flat_array(from), flat_array(by), flat_array(out)},
                                                   current_stream(codes.device()));
        return out;
      },
      dtype);
}

// ---- products -------------------------------------------------------------------------------------------------------

Tensor int8_matmul(const Tensor& a, const Tensor& b) {
  const Running running("int8_matmul");
  require_factors(a, b);
  require<DTypeError>(a.dtype() == kI8, "the operands are not i8; got a: {}, b: {}; quantize makes i8 codes", a, b);
  require<ShapeError>(a.dim() == b.dim() && (a.dim() == 2 || a.dim() == 3),
                      "the operands are not two matrices, or two batches of matrices; got a: {}, b: {}", a, b);
  require<ShapeError>(a.size(-1) == b.size(-2) && (a.dim() == 2 || a.size(0) == b.size(0)),
                      "sizes do not fit; got a: {}, b: {}; expected a's last size to equal b's last but one, and equal "
                      "batch sizes",
                      a, b);
  return door::call(Op::int8_matmul, {&a, &b}, [&] {
    Dims sizes = a.sizes();
    sizes.back() = b.size(-1);
    const Tensor out = empty(sizes, {kI32, a.device()});
    Product{a, b, a.layout(), b.layout()}.run(out, out.layout());
    return out;
  });
}

Tensor int8_linear(const Tensor& x, const Quantized& weight, const Tensor& bias) {
  const Running running("int8_linear");
  require_floating_values(x);
  const Tensor& codes = weight.require_codes();
  require<ValueError>(weight.scheme.kind == QuantScheme::int8_symmetric && codes.dim() == 2 && weight.scheme.dim &&
                          wrap_dim(*weight.scheme.dim, 2) == 0,
                      "the weight is compressed otherwise; got {} of {}; expected [out, in] compressed with "
                      "QuantScheme::int8_per_channel(0)",
                      to_string(weight.scheme), codes);
  require<ShapeError>(x.dim() > 0 && x.size(-1) == codes.size(1),
                      "inner sizes differ; got x: {}, weight: {}; expected x's last size to equal weight's", x, codes);
  require_same_device(x, codes);
  if (bias.defined()) {
    require<ShapeError>(bias.dim() == 1 && bias.size(0) == codes.size(0),
                        "the bias has the wrong sizes; got {}; expected [{}]", bias, codes.size(0));
    require<DTypeError>(is_floating(bias.dtype()), "the bias is not floating; got {}", bias);
    require_same_device(x, bias);
  }
  Dims sizes = x.sizes();
  sizes.back() = codes.size(0);
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) rows *= x.size(d);
  const Quantized q = quantize(x.reshape({rows, codes.size(1)}), QuantScheme::int8_per_channel(0));
  const Tensor scaled = int8_matmul(q.codes, codes.t()).mul(q.scale.unsqueeze(1));
  const Tensor y = bias.defined() ? addcmul(bias.detach().to(kF32), scaled, weight.scale) : scaled.mul(weight.scale);
  return y.reshape(sizes).to(x.dtype());
}

}  // namespace lorry
