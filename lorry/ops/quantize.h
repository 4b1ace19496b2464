#pragma once

// Lossy compression of floating tensors: a code of one byte an element, and scales. There is no 8-bit floating dtype:
// codes of e4m3 and e5m2 lie in u8 tensors, and only these functions know what they mean.
//
//   const Quantized q = quantize(weight, QuantScheme::int8_per_channel(0));
//   const Tensor back = dequantize(q);       // of weight's sizes and dtype
//   q.rate();                                // compressed bytes by original bytes: 0.25 for f32, and a little more
//
// Values are converted to f32 before they are encoded, and everything rounds to nearest even. The functions record no
// gradients: their results are constants.

#include <string>

#include "lorry/formula/code_format.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

/// What a code is: int8, e4m3, e5m2 (formula/codes.h).
using formula::CodeFormat;

/// How a tensor is compressed.
struct QuantScheme {
  enum Kind : uint8_t {
    int8_symmetric,  ///< code * scale, scale = largest magnitude / 127
    int8_affine,     ///< (code - zero_point) * scale, from the smallest element, or 0, to the largest, or 0
    block8,          ///< 8-bit codes of the dynamic map, a scale for 256 elements: the optimizers' (formula/quantize.h)
    e4m3,            ///< 8-bit floats with 3 bits of mantissa, largest 448; what is larger becomes 448
    e5m2             ///< 8-bit floats with 2 bits of mantissa, largest 57344; what is larger becomes an infinity
  };
  Kind kind = int8_symmetric;
  /// int8: a scale for each index of this dimension; none: one for the tensor.
  std::optional<int64_t> dim = {};
  /// e4m3 and e5m2: whether there is a scale, largest magnitude / largest number of the format. Without one, codes
  /// stand for the elements themselves.
  bool scaled = false;

  static QuantScheme int8(bool affine = false) { return {.kind = affine ? int8_affine : int8_symmetric}; }
  static QuantScheme int8_per_channel(int64_t dim, bool affine = false) {
    return {.kind = affine ? int8_affine : int8_symmetric, .dim = dim};
  }
  static QuantScheme blocks() { return {.kind = block8}; }
  static QuantScheme float8_e4m3(bool scaled = false) { return {.kind = e4m3, .scaled = scaled}; }
  static QuantScheme float8_e5m2(bool scaled = false) { return {.kind = e5m2, .scaled = scaled}; }
};

/// "int8 affine", "int8 symmetric, dim 0", "block8", "e4m3 scaled", ...
std::string to_string(const QuantScheme& scheme);

/// A compressed tensor.
struct Quantized {
  QuantScheme scheme;
  Tensor codes;        ///< contiguous, of the original's sizes; i8 for int8, else u8
  Tensor scale;        ///< f32: 0-d, [size of dim], or [blocks]; undefined without
  Tensor zero_point;   ///< i32, of scale's sizes; undefined unless affine
  DType dtype = kF32;  ///< of the original

  const Tensor& require_codes() const;  ///< Throws ValueError if this was not made by quantize
  /// Bytes of codes, scales and zero points.
  int64_t nbytes() const;
  /// Bytes of the original's elements.
  int64_t original_nbytes() const;
  /// nbytes() by original_nbytes(); 1 for an empty tensor.
  double rate() const;
};

/// Compresses x, a floating tensor of any rank and strides.
/// - A scale is at least 2^-126, so that its inverse is finite.
/// - A NaN or an infinity makes the scale that it shares NaN, and with it all elements of that scale, in every scheme
///   with scales. Without a scale, e4m3 keeps NaN and turns infinities into +-448; e5m2 keeps both.
/// Throws DTypeError if x is not floating, IndexError for a dim that does not exist, ValueError for a dim in a scheme
/// without channels, or for `scaled` in one that is not e4m3 or e5m2.
/// Jacob et al. 2018, section 2.1 (affine); Dettmers et al. 2022 (block-wise); Micikevicius et al. 2022 (e4m3, e5m2).
Quantized quantize(const Tensor& x, const QuantScheme& scheme);
/// The tensor that q stands for, in the original's dtype or in `dtype`, which must be floating. Contiguous.
Tensor dequantize(const Quantized& q, std::optional<DType> dtype = {});

// ---- with scales that the caller has --------------------------------------------------------------------------------

/// Codes of x: round(x / scale) + zero_point, clamped to a byte, for int8; the 8-bit float nearest to x / scale
/// otherwise. x is multiplied by the inverse of the scale in f32, as PyTorch does. A NaN becomes the zero point in
/// int8. x: floating; scale: f32, 0-d or, with dim, [size of dim]; undefined: 1; zero_point: i32, of scale's sizes,
/// from -128 to 127 (not checked, which would wait for a GPU; beyond them, codes mean nothing); undefined: 0;
/// only for int8. Returns i8 for int8, else u8, contiguous. Throws DTypeError, ShapeError, IndexError, ValueError.
Tensor quantize_linear(const Tensor& x, const Tensor& scale, const Tensor& zero_point = {},
                       std::optional<int64_t> dim = {}, CodeFormat format = CodeFormat::int8);
/// The numbers of codes, (code - zero_point) * scale, in a floating dtype. Throws the same errors.
Tensor dequantize_linear(const Tensor& codes, const Tensor& scale, const Tensor& zero_point = {},
                         std::optional<int64_t> dim = {}, CodeFormat format = CodeFormat::int8, DType dtype = kF32);

/// Block-wise codes: u8 of x's sizes, and scales f32, one for each 256 elements in row-major order. Throws DTypeError.
std::tuple<Tensor, Tensor> quantize_blocks(const Tensor& x);
/// The numbers of block-wise codes, in a floating dtype. Throws DTypeError, ShapeError, DeviceError.
Tensor dequantize_blocks(const Tensor& codes, const Tensor& scales, DType dtype = kF32);

// ---- products -------------------------------------------------------------------------------------------------------

/// a @ b with sums in i32, which wrap. a: i8 [m, k] or [b, m, k], b: i8 [k, n] or [b, k, n]. Returns i32 [m, n] or
/// [b, m, n]. Throws DTypeError, ShapeError, DeviceError. On a GPU it is fastest with b the transpose of a contiguous
/// [n, k], and sizes that are multiples of 16.
Tensor int8_matmul(const Tensor& a, const Tensor& b);
/// x @ weight^T + bias with products of int8: every row of x is compressed as it comes (int8_symmetric, a scale a row).
/// x: floating [..., in]; weight: compressed [out, in] with int8_per_channel(0), symmetric; bias: floating [out] or
/// undefined. Returns [..., out] in x's dtype, computed in f32. Throws ValueError for another scheme, ShapeError,
/// DTypeError. profile/lossy.h measures its error.
Tensor int8_linear(const Tensor& x, const Quantized& weight, const Tensor& bias = {});

}  // namespace lorry
