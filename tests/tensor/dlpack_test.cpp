#include "lorry/tensor/dlpack.h"

#include <gtest/gtest.h>

#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"

namespace lorry {
namespace {

using namespace dlpack;
using test::Coordinates;
using test::element;
using test::expect_elements;

/// A foreign producer with a matrix of 2 x 3 floats, which counts how often it is given back.
template <class Managed>
struct Producer {
  Producer() {
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Producer*>(self->manager_ctx)->given_back; };
    managed.dl_tensor = {memory, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) managed.version = {1, 3};
  }
  float memory[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t shape[2] = {2, 3};
  int64_t strides[2] = {1, 2};
  int given_back = 0;
  Managed managed = {};
};

template <class Managed>
class DLPackImport : public testing::Test {};
using Forms = testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
TYPED_TEST_SUITE(DLPackImport, Forms);

TYPED_TEST(DLPackImport, shares_the_memory_and_gives_it_back_once) {
  Producer<TypeParam> p;
  {
    const Tensor x = from_dlpack(&p.managed);
    expect_elements(x, {2, 3}, [](const Coordinates& at) { return static_cast<double>(3 * at[0] + at[1]); });
    const Tensor row = x[1];
    row.fill_(9);
    EXPECT_EQ(p.memory[3], 9);
    const Tensor other = x.t();
    EXPECT_EQ(p.given_back, 0);
  }
  EXPECT_EQ(p.given_back, 1);
}

TYPED_TEST(DLPackImport, follows_strides_and_the_byte_offset) {
  Producer<TypeParam> p;
  p.managed.dl_tensor.strides = p.strides;
  p.managed.dl_tensor.byte_offset = 2 * sizeof(float);
  expect_elements(from_dlpack(&p.managed), {2, 3},
                  [](const Coordinates& at) { return static_cast<double>(2 + at[0] + 2 * at[1]); });
}

TYPED_TEST(DLPackImport, takes_a_tensor_without_elements_or_dimensions_or_deleter) {
  Producer<TypeParam> p;
  p.shape[0] = 0;
  p.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(from_dlpack(&p.managed).sizes(), (Dims{0, 3}));
  Producer<TypeParam> q;
  q.managed.dl_tensor.ndim = 0;
  q.managed.dl_tensor.shape = nullptr;
  q.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&q.managed).template item<float>(), 0);
}

/// Expects E, and that the producer keeps its tensor.
template <class E, class Managed, class Change>
void expect_refused(const Change& change) {
  Producer<Managed> p;
  change(p);
  EXPECT_THROW(from_dlpack(&p.managed), E);
  EXPECT_EQ(p.given_back, 0);
}

TYPED_TEST(DLPackImport, refuses_what_it_does_not_have_and_leaves_it_to_the_caller) {
  using P = Producer<TypeParam>;
  expect_refused<DTypeError, TypeParam>([](P& p) { p.managed.dl_tensor.dtype.lanes = 4; });
  expect_refused<DTypeError, TypeParam>([](P& p) { p.managed.dl_tensor.dtype = {kDLComplex, 64, 1}; });
  expect_refused<DTypeError, TypeParam>([](P& p) { p.managed.dl_tensor.dtype = {kDLUInt, 32, 1}; });
  expect_refused<DTypeError, TypeParam>([](P& p) { p.managed.dl_tensor.dtype = {kDLFloat, 8, 1}; });
  expect_refused<DeviceError, TypeParam>([](P& p) { p.managed.dl_tensor.device = {8, 0}; });
  expect_refused<DeviceError, TypeParam>([](P& p) { p.managed.dl_tensor.device = {kDLCUDA, 1000}; });
  expect_refused<DeviceError, TypeParam>([](P& p) { p.managed.dl_tensor.device = {kDLCUDA, 100}; });
  expect_refused<DeviceError, TypeParam>([](P& p) { p.managed.dl_tensor.device = {kDLCUDA, -1}; });
  expect_refused<ShapeError, TypeParam>([](P& p) { p.managed.dl_tensor.ndim = 9; });
  expect_refused<ShapeError, TypeParam>([](P& p) { p.managed.dl_tensor.ndim = -1; });
  expect_refused<ShapeError, TypeParam>([](P& p) { p.shape[0] = -2; });
  expect_refused<ShapeError, TypeParam>([](P& p) { p.shape[0] = p.shape[1] = INT64_MAX; });
  expect_refused<ShapeError, TypeParam>([](P& p) {
    p.managed.dl_tensor.strides = p.strides;
    p.strides[0] = -1;
  });
  expect_refused<ShapeError, TypeParam>([](P& p) {
    p.managed.dl_tensor.strides = p.strides;
    p.strides[1] = INT64_MAX;
  });
  expect_refused<FormatError, TypeParam>([](P& p) { p.managed.dl_tensor.data = nullptr; });
  expect_refused<FormatError, TypeParam>([](P& p) { p.managed.dl_tensor.shape = nullptr; });
  expect_refused<FormatError, TypeParam>([](P& p) { p.managed.dl_tensor.byte_offset = 2; });
  EXPECT_THROW(from_dlpack(static_cast<TypeParam*>(nullptr)), ValueError);
}

TEST(DLPack, refuses_a_newer_major_version) {
  expect_refused<FormatError, DLManagedTensorVersioned>([](Producer<DLManagedTensorVersioned>& p) {
    p.managed.version = {2, 0};
  });
}

TEST(DLPack, read_only_memory_is_shared_but_never_written) {
  Producer<DLManagedTensorVersioned> p;
  p.managed.flags = kFlagReadOnly | kFlagCopied;
  const Tensor x = from_dlpack(&p.managed);
  EXPECT_THROW(x.fill_(1), ValueError);
  EXPECT_THROW(x[0].add_(1), ValueError);
  EXPECT_THROW(x.index_put_({0}, 1), ValueError);
  EXPECT_EQ(p.memory[0], 0);
  x.clone().fill_(1);
  DLManagedTensorVersioned* again = to_dlpack(x);
  EXPECT_EQ(again->flags & kFlagReadOnly, kFlagReadOnly);
  again->deleter(again);
  EXPECT_THROW(to_dlpack_unversioned(x), ValueError);
}

template <class Managed>
Managed* hand_out(const Tensor& x) {
  if constexpr (std::is_same_v<Managed, DLManagedTensor>) {
    return to_dlpack_unversioned(x);
  } else {
    return to_dlpack(x);
  }
}

TYPED_TEST(DLPackImport, every_dtype_and_layout_comes_back_as_it_went) {
  for (const DType t : kDTypes) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      test::Shapes shapes(seed);
      const Tensor x = shapes.tensor(shapes.sizes(static_cast<int>(shapes.number(0, 8))), t);
      const Tensor y = from_dlpack(hand_out<TypeParam>(x));
      EXPECT_EQ(y.dtype(), t);
      expect_elements(y, x.sizes(), [&](const Coordinates& at) { return element(x, at); });
      if (x.numel() > 0) {
        EXPECT_EQ(y.data_ptr(), x.data_ptr());
      }
    }
  }
}

TEST(DLPack, the_exported_memory_outlives_the_tensor) {
  DLManagedTensorVersioned* managed = nullptr;
  {
    const Tensor x = arange(4, {kI64, kCPU});
    managed = to_dlpack(x.narrow(0, 1, 2));
  }
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, 0u);
  EXPECT_EQ(managed->dl_tensor.byte_offset, 0u);
  EXPECT_EQ(static_cast<int64_t*>(managed->dl_tensor.data)[1], 2);
  managed->deleter(managed);
}

TEST(DLPack, a_tensor_with_a_gradient_must_be_detached) {
  const Tensor x = ones({2}).requires_grad_();
  EXPECT_THROW(to_dlpack(x), GradError);
  DLManagedTensorVersioned* managed = to_dlpack(x.detach());
  managed->deleter(managed);
  EXPECT_THROW(to_dlpack(Tensor()), ValueError);
}

}  // namespace
}  // namespace lorry
