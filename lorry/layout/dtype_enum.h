#pragma once

// The element types by number: the part of dtype.h that kernels compiled at run time can include.

#include <cstdint>

namespace lorry {

enum class DType : uint8_t { boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64 };

inline constexpr DType kBool = DType::boolean;
inline constexpr DType kU8 = DType::u8;
inline constexpr DType kI8 = DType::i8;
inline constexpr DType kI16 = DType::i16;
inline constexpr DType kI32 = DType::i32;
inline constexpr DType kI64 = DType::i64;
inline constexpr DType kF16 = DType::f16;
inline constexpr DType kBF16 = DType::bf16;
inline constexpr DType kF32 = DType::f32;
inline constexpr DType kF64 = DType::f64;

inline constexpr DType kDTypes[] = {kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64};
inline constexpr int kDTypeCount = 10;

}  // namespace lorry
