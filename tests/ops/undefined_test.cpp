// Undefined and moved-from tensors: every method of Tensor and every function that takes one answers with an error that
// names it, never with a crash. It is a ValueError, or a GradError where a gradient is asked for. The operators' tables
// say more (operator_table_test.cpp).

#include <gtest/gtest.h>

#include <algorithm>

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "lorry/tensor/dlpack.h"
#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

/// A call with `none` in one place. x: [2, 3] f32; b: [2, 3] bool; i: [2, 3] i64; v: [3] f32.
struct Case {
  const char* text;
  void (*call)(const Tensor& none, const Tensor& x, const Tensor& b, const Tensor& i, const Tensor& v);
};
#define LORRY_CASE(...)                                                                                             \
  {                                                                                                                 \
#__VA_ARGS__,                                                                                                   \
        []([[maybe_unused]] const Tensor& none, [[maybe_unused]] const Tensor& x, [[maybe_unused]] const Tensor& b, \
           [[maybe_unused]] const Tensor& i, [[maybe_unused]] const Tensor& v) { static_cast<void>(__VA_ARGS__); }  \
  }

const Case kMethods[] = {
    LORRY_CASE(none.dtype()),
    LORRY_CASE(none.device()),
    LORRY_CASE(none.dim()),
    LORRY_CASE(none.sizes()),
    LORRY_CASE(none.strides()),
    LORRY_CASE(none.size(0)),
    LORRY_CASE(none.stride(0)),
    LORRY_CASE(none.numel()),
    LORRY_CASE(none.nbytes()),
    LORRY_CASE(none.layout()),
    LORRY_CASE(none.storage_offset()),
    LORRY_CASE(none.is_contiguous()),
    LORRY_CASE(none.is_floating_point()),
    LORRY_CASE(none.options()),
    LORRY_CASE(none.storage()),
    LORRY_CASE(none.version()),
    LORRY_CASE(none.is_inference()),
    LORRY_CASE(none.is_view()),
    LORRY_CASE(none.data_ptr()),
    LORRY_CASE(none.data<float>()),
    LORRY_CASE(none.requires_grad_()),
    LORRY_CASE(none.grad()),
    LORRY_CASE(none.set_grad(x)),
    LORRY_CASE(none.set_grad(none)),
    LORRY_CASE(none.backward()),
    LORRY_CASE(none.detach()),
    LORRY_CASE(none.retain_grad()),
    LORRY_CASE(none.register_hook([](const Tensor& g) { return g; })),
    LORRY_CASE(none.set_data(x)),
    LORRY_CASE(x.set_data(none)),
    LORRY_CASE(none.add(x, 2)),
    LORRY_CASE(none.add_(x, 2)),
    LORRY_CASE(none.sub(x, 2)),
    LORRY_CASE(none.sub_(x, 2)),
    LORRY_CASE(none.true_divide(x)),
    LORRY_CASE(none.div(x, "floor")),
    LORRY_CASE(none.div_(x, "floor")),
    LORRY_CASE(none.clamp(0, 1)),
    LORRY_CASE(none.clamp_(0, 1)),
    LORRY_CASE(none.clamp(0)),
    LORRY_CASE(none.lerp(x, 0.5)),
    LORRY_CASE(none.lerp_(x, 0.5)),
    LORRY_CASE(x.lerp(none, 0.5)),
    LORRY_CASE(none.addcmul(x, x)),
    LORRY_CASE(none.addcmul_(x, x)),
    LORRY_CASE(none.addcdiv(x, x)),
    LORRY_CASE(none.addcdiv_(x, x)),
    LORRY_CASE(none.where(b, x)),
    LORRY_CASE(x.where(none, x)),
    LORRY_CASE(x.where(b, none)),
    LORRY_CASE(none.nan_to_num()),
    LORRY_CASE(none.nan_to_num_()),
    LORRY_CASE(none.masked_fill(b, 1)),
    LORRY_CASE(none.masked_fill_(b, 1)),
    LORRY_CASE(x.masked_fill(none, 1)),
    LORRY_CASE(x.masked_fill(b, none)),
    LORRY_CASE(none.isclose(x)),
    LORRY_CASE(x.isclose(none)),
    LORRY_CASE(none.allclose(x)),
    LORRY_CASE(none.equal(x)),
    LORRY_CASE(x.equal(none)),
    LORRY_CASE(none.to(kF64)),
    LORRY_CASE(none.to(kCPU)),
    LORRY_CASE(none.cpu()),
    LORRY_CASE(none.pin_memory()),
    LORRY_CASE(none.is_pinned()),
    LORRY_CASE(none.is_managed()),
    LORRY_CASE(none.record_stream(Stream{kCPU})),
    LORRY_CASE(none.clone()),
    LORRY_CASE(none.contiguous()),
    LORRY_CASE(none.copy_(x)),
    LORRY_CASE(x.copy_(none)),
    LORRY_CASE(none.fill_(1)),
    LORRY_CASE(x.fill_(none)),
    LORRY_CASE(none.zero_()),
    LORRY_CASE(none.item()),
    LORRY_CASE(none.to_vector<float>()),
    LORRY_CASE(none.view({6})),
    LORRY_CASE(none.view(kI32)),
    LORRY_CASE(none.view_as(x)),
    LORRY_CASE(x.view_as(none)),
    LORRY_CASE(none.reshape({6})),
    LORRY_CASE(none.reshape_as(x)),
    LORRY_CASE(none.permute({1, 0})),
    LORRY_CASE(none.transpose(0, 1)),
    LORRY_CASE(none.swapdims(0, 1)),
    LORRY_CASE(none.t()),
    LORRY_CASE(none.mT()),
    LORRY_CASE(none.select(0, 0)),
    LORRY_CASE(none.slice()),
    LORRY_CASE(none.narrow(0, 0, 1)),
    LORRY_CASE(none.expand({2, 3})),
    LORRY_CASE(none.expand_as(x)),
    LORRY_CASE(x.expand_as(none)),
    LORRY_CASE(none.broadcast_to({2, 3})),
    LORRY_CASE(none.squeeze()),
    LORRY_CASE(none.squeeze(0)),
    LORRY_CASE(none.squeeze(Dims{0, 1})),
    LORRY_CASE(none.unsqueeze(0)),
    LORRY_CASE(none.flatten()),
    LORRY_CASE(none.unflatten(0, {1, 2})),
    LORRY_CASE(none.ravel()),
    LORRY_CASE(none.as_strided({1}, {1})),
    LORRY_CASE(none.diagonal()),
    LORRY_CASE(none.unfold(0, 1, 1)),
    LORRY_CASE(none.movedim({0}, {1})),
    LORRY_CASE(none.split(1)),
    LORRY_CASE(none.split(std::vector<int64_t>{1, 1})),
    LORRY_CASE(none.chunk(2)),
    LORRY_CASE(none.unbind()),
    LORRY_CASE(none.squeeze_()),
    LORRY_CASE(none.squeeze_(0)),
    LORRY_CASE(none.unsqueeze_(0)),
    LORRY_CASE(none.transpose_(0, 1)),
    LORRY_CASE(none.t_()),
    LORRY_CASE(none[0]),
    LORRY_CASE(none.index({0})),
    LORRY_CASE(x.index({none})),
    LORRY_CASE(none.index_put_({0}, 1)),
    LORRY_CASE(x.index_put_({none}, 1)),
    LORRY_CASE(x.index_put_({0}, none)),
    LORRY_CASE(none.gather(0, i)),
    LORRY_CASE(none.scatter(0, i, 1)),
    LORRY_CASE(none.scatter_(0, i, 1)),
    LORRY_CASE(x.scatter(0, i, none)),
    LORRY_CASE(none.scatter_add(0, i, x)),
    LORRY_CASE(none.scatter_add_(0, i, x)),
    LORRY_CASE(none.take_along_dim(i)),
    LORRY_CASE(none.index_select(0, i)),
    LORRY_CASE(none.index_add(0, i, x)),
    LORRY_CASE(none.index_add_(0, i, x)),
    LORRY_CASE(none.index_copy(0, i, x)),
    LORRY_CASE(none.index_copy_(0, i, x)),
    LORRY_CASE(none.index_fill(0, i, 1)),
    LORRY_CASE(none.index_fill_(0, i, 1)),
    LORRY_CASE(none.masked_select(b)),
    LORRY_CASE(none.nonzero()),
    LORRY_CASE(none.nonzero_static(2)),
    LORRY_CASE(none.flip({0})),
    LORRY_CASE(none.roll({1})),
    LORRY_CASE(none.repeat({2, 2})),
    LORRY_CASE(none.repeat_interleave(2)),
    LORRY_CASE(none.tile({2})),
    LORRY_CASE(none.tril()),
    LORRY_CASE(none.tril_()),
    LORRY_CASE(none.triu()),
    LORRY_CASE(none.triu_()),
    LORRY_CASE(none.uniform_()),
    LORRY_CASE(none.normal_()),
    LORRY_CASE(none.bernoulli_()),
    LORRY_CASE(none.random_(0, 2)),
    LORRY_CASE(none.bernoulli()),
    LORRY_CASE(none.multinomial(1)),
    LORRY_CASE(none.prod()),
    LORRY_CASE(none.max()),
    LORRY_CASE(none.max(0)),
    LORRY_CASE(none.min()),
    LORRY_CASE(none.min(0)),
    LORRY_CASE(none.argmax()),
    LORRY_CASE(none.argmin()),
    LORRY_CASE(none.var()),
    LORRY_CASE(none.std()),
    LORRY_CASE(none.norm()),
    LORRY_CASE(none.logsumexp({0})),
    LORRY_CASE(none.count_nonzero()),
    LORRY_CASE(none.cumsum(0)),
    LORRY_CASE(none.cumsum_(0)),
    LORRY_CASE(none.cumprod(0)),
    LORRY_CASE(none.cumprod_(0)),
    LORRY_CASE(none.sum_to_size({1})),
    LORRY_CASE(none.diff()),
    LORRY_CASE(none.softmax(0)),
    LORRY_CASE(none.log_softmax(0)),
    LORRY_CASE(none.sort()),
    LORRY_CASE(none.argsort()),
    LORRY_CASE(none.topk(1)),
    LORRY_CASE(none.kthvalue(1)),
    LORRY_CASE(none.median()),
    LORRY_CASE(none.median(0)),
    LORRY_CASE(none.unique()),
    LORRY_CASE(none.matmul(x)),
    LORRY_CASE(x.matmul(none)),
    LORRY_CASE(none.mm(x)),
    LORRY_CASE(none.bmm(x)),
    LORRY_CASE(none.mv(v)),
    LORRY_CASE(none.dot(v)),
    LORRY_CASE(none.outer(v)),
    LORRY_CASE(none.addmv(x, v)),
    LORRY_CASE(none.addmv_(x, v)),
    LORRY_CASE(none.addmm(x, x)),
    LORRY_CASE(none.addmm_(x, x)),
    LORRY_CASE(none.baddbmm(x, x)),
    LORRY_CASE(none.baddbmm_(x, x)),
};

const Case kFunctions[] = {
    LORRY_CASE(result_type(none, x)),
    LORRY_CASE(result_type(x, none)),
    LORRY_CASE(empty_like(none)),
    LORRY_CASE(empty_like(none, kF32)),
    LORRY_CASE(zeros_like(none)),
    LORRY_CASE(ones_like(none, kF32)),
    LORRY_CASE(full_like(none, 1)),
    LORRY_CASE(rand_like(none)),
    LORRY_CASE(randn_like(none)),
    LORRY_CASE(randint_like(none, 2)),
    LORRY_CASE(one_hot(none)),
    LORRY_CASE(arange_out(none, 3)),
    LORRY_CASE(linspace_out(none, 0, 1, 3)),
    LORRY_CASE(tril_out(none, x)),
    LORRY_CASE(triu_out(x, none)),
    LORRY_CASE(bernoulli(none)),
    LORRY_CASE(bernoulli(none, 0.5)),
    LORRY_CASE(broadcast_tensors({x, none})),
    LORRY_CASE(cat({x, none})),
    LORRY_CASE(cat({none, x})),
    LORRY_CASE(stack({x, none})),
    LORRY_CASE(stack({none, x})),
    LORRY_CASE(hstack(std::vector<Tensor>{x, none})),
    LORRY_CASE(vstack(std::vector<Tensor>{none, x})),
    LORRY_CASE(cat_out(none, std::vector<Tensor>{x, x})),
    LORRY_CASE(stack_out(none, std::vector<Tensor>{x, x})),
    LORRY_CASE(hstack_out(none, std::vector<Tensor>{x, x})),
    LORRY_CASE(vstack_out(none, std::vector<Tensor>{x, x})),
    LORRY_CASE(meshgrid({v, none})),
    LORRY_CASE(repeat_interleave(x, none, 0)),
    LORRY_CASE(repeat_interleave(none, i[0], 0)),
    LORRY_CASE(index_put(none, std::vector<Tensor>{i}, x)),
    LORRY_CASE(index_put(x, std::vector<Tensor>{i}, none)),
    LORRY_CASE(index(none, std::vector<Tensor>{i})),
    LORRY_CASE(where(none)),
    LORRY_CASE(where(none, x, x)),
    LORRY_CASE(where(b, none, x)),
    LORRY_CASE(where_out(none, b, x, x)),
    LORRY_CASE(masked_fill(none, b, 1)),
    LORRY_CASE(gather(x, 0, none)),
    LORRY_CASE(gather_out(none, x, 0, i)),
    LORRY_CASE(scatter(x, 0, none, x)),
    LORRY_CASE(scatter_out(none, x, 0, i, x)),
    LORRY_CASE(scatter_add(x, 0, i, none)),
    LORRY_CASE(index_select(x, 0, none)),
    LORRY_CASE(index_select_out(none, x, 0, i[0])),
    LORRY_CASE(index_add(x, 0, none, x)),
    LORRY_CASE(index_add(x, 0, i[0], none)),
    LORRY_CASE(index_copy(x, 0, i[0], none)),
    LORRY_CASE(index_fill(x, 0, none, 1)),
    LORRY_CASE(take_along_dim(x, none)),
    LORRY_CASE(take_along_dim_out(none, x, i)),
    LORRY_CASE(masked_select(x, none)),
    LORRY_CASE(masked_select_out(none, x, b)),
    LORRY_CASE(nonzero_out(none, x)),
    LORRY_CASE(nonzero_static_with_count(none, 2)),
    LORRY_CASE(nonzero_static_out(none, x, 2)),
    LORRY_CASE(var_mean(none)),
    LORRY_CASE(prod_out(none, x)),
    LORRY_CASE(max_out(none, i, x, 0)),
    LORRY_CASE(max_out(v, none, x, 0)),
    LORRY_CASE(argmax_out(none, x)),
    LORRY_CASE(var_out(none, x)),
    LORRY_CASE(std_out(none, x)),
    LORRY_CASE(norm_out(none, x)),
    LORRY_CASE(logsumexp_out(none, x, {0})),
    LORRY_CASE(cumsum_out(none, x, 0)),
    LORRY_CASE(sort_out(none, i, x)),
    LORRY_CASE(sort_out(x, none, x)),
    LORRY_CASE(topk_out(none, i, x, 1)),
    LORRY_CASE(kthvalue_out(none, i, x, 1)),
    LORRY_CASE(median_out(none, i, x, 0)),
    LORRY_CASE(softmax_out(none, x, 0)),
    LORRY_CASE(log_softmax_out(x, none, 0)),
    LORRY_CASE(layer_norm(none, {3})),
    LORRY_CASE(rms_norm(none, {3})),
    LORRY_CASE(rotary(none, x, x)),
    LORRY_CASE(cross_entropy(none, i)),
    LORRY_CASE(cross_entropy(x, none)),
    LORRY_CASE(nll_loss(none, i)),
    LORRY_CASE(nll_loss(x, none)),
    LORRY_CASE(mse_loss(none, x)),
    LORRY_CASE(mse_loss(x, none)),
    LORRY_CASE(l1_loss(none, x)),
    LORRY_CASE(huber_loss(x, none)),
    LORRY_CASE(smooth_l1_loss(none, x)),
    LORRY_CASE(binary_cross_entropy_with_logits(none, x)),
    LORRY_CASE(binary_cross_entropy_with_logits(x, none)),
    LORRY_CASE(linear(none, x)),
    LORRY_CASE(linear(x, none)),
    LORRY_CASE(linear_aligned(x, none)),
    LORRY_CASE(matmul_out(none, x, x.t())),
    LORRY_CASE(matmul_out(x, none, x)),
    LORRY_CASE(mm_out(none, x, x.t())),
    LORRY_CASE(mv_out(none, x, v)),
    LORRY_CASE(dot_out(none, v, v)),
    LORRY_CASE(outer_out(none, v, v)),
    LORRY_CASE(addmm(x, none, x)),
    LORRY_CASE(addmm_out(none, x.matmul(x.t()), x, x.t())),
    LORRY_CASE(baddbmm(x, x, none)),
    LORRY_CASE(embedding(none, x)),
    LORRY_CASE(embedding(i, none)),
    LORRY_CASE(dropout(none)),
    LORRY_CASE(dropout(none, 0.5, false)),
    LORRY_CASE(scaled_dot_product_attention(none, x, x)),
    LORRY_CASE(scaled_dot_product_attention(x, none, x)),
    LORRY_CASE(scaled_dot_product_attention(x, x, none)),
    LORRY_CASE(packed_attention(none, 1)),
    LORRY_CASE(sum_to_size(none, {1})),
    LORRY_CASE(gelu(none, "tanh")),
    LORRY_CASE(leaky_relu(none)),
    LORRY_CASE(elu_(none)),
    LORRY_CASE(softplus(none)),
    LORRY_CASE(clamp_out(none, x, 0, 1)),
    LORRY_CASE(clamp(x, none, 1)),
    LORRY_CASE(nan_to_num_out(none, x)),
    LORRY_CASE(autograd::backward({none})),
    LORRY_CASE(autograd::grad({none}, {x})),
    LORRY_CASE(autograd::grad({x.clone().requires_grad_().sum()}, {none})),
    LORRY_CASE(dlpack::to_dlpack(none)),
};

/// Methods that only read a tensor's facts, which operators use inside.
constexpr std::string_view kFacts[] = {"dtype", "device", "dim",    "sizes",   "strides", "size",    "stride",
                                       "numel", "nbytes", "layout", "options", "storage", "data_ptr"};

/// The message names an operator, not a fact that it read inside, and says what is the matter.
void expect_named(const Case& c, const Tensor& none) {
  SCOPED_TRACE(c.text);
  const Tensor x = ones({2, 3}), b = ones({2, 3}, {kBool}), i = zeros({2, 3}, {kI64}), v = ones({3});
  try {
    c.call(none, x, b, i, v);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string where = text.substr(0, text.find(':'));
    const bool fact = std::ranges::find(kFacts, where) != std::end(kFacts);
    EXPECT_TRUE(!fact || std::string(c.text).starts_with("none." + where)) << text;
    EXPECT_NE(text.find("undefined"), std::string::npos) << text;
    EXPECT_TRUE(dynamic_cast<const ValueError*>(&error) != nullptr || dynamic_cast<const GradError*>(&error) != nullptr)
        << "not a ValueError: " << text;
  }
}

TEST(Undefined, every_method_names_itself) {
  for (const Case& c : kMethods) expect_named(c, Tensor());
}

TEST(Undefined, every_method_of_a_moved_from_tensor_names_itself) {
  Tensor x = ones({2});
  const Tensor other = std::move(x);
  for (const Case& c : kMethods) expect_named(c, x);  // NOLINT(bugprone-use-after-move)
}

TEST(Undefined, every_function_names_itself) {
  for (const Case& c : kFunctions) expect_named(c, Tensor());
}

TEST(Undefined, every_pointwise_row_names_itself_in_all_forms) {
  constexpr Case kRows[] = {
#define LORRY_UNARY(name, Formula, result, domain)                                                              \
  LORRY_CASE(name(none)), LORRY_CASE(none.name()), LORRY_CASE(none.name##_()), LORRY_CASE(name##_out(none, x)), \
      LORRY_CASE(name##_out(x, none)),
#define LORRY_BINARY(name, Formula, result, domain)                                                          \
  LORRY_CASE(name(none, x)), LORRY_CASE(name(x, none)), LORRY_CASE(name(2, none)), LORRY_CASE(none.name(2)), \
      LORRY_CASE(none.name##_(x)), LORRY_CASE(i.name##_(none)), LORRY_CASE(name##_out(none, x, x)),          \
      LORRY_CASE(name##_out(x, none, x)), LORRY_CASE(name##_out(x, x, none)),
#include "lorry/formula/pointwise.def"
  };
  for (const Case& c : kRows) expect_named(c, Tensor());
}

TEST(Undefined, every_reduction_row_names_itself_in_all_forms) {
  constexpr Case kRows[] = {
#define LORRY_REDUCTION(name, fold, map, finish, result)                                   \
  LORRY_CASE(lorry::name(none)), LORRY_CASE(none.name()), LORRY_CASE(name##_out(none, x)), \
      LORRY_CASE(name##_out(x, none)),
#include "lorry/formula/reduce.def"
  };
  for (const Case& c : kRows) expect_named(c, Tensor());
}

TEST(Undefined, what_needs_no_tensor_answers) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_FALSE(none.requires_grad());
  EXPECT_TRUE(none.is_leaf());
  EXPECT_EQ(none.grad_fn(), "");
  EXPECT_TRUE(none.is_same(Tensor()));
  EXPECT_FALSE(none.is_same(ones({1})));
  EXPECT_EQ(none.node(), nullptr);
  EXPECT_EQ(describe(none), "an undefined tensor");
  EXPECT_EQ(to_string(none), "tensor(undefined)");
}

TEST(Undefined, an_error_inside_an_operator_names_the_operator) {
  try {
    sum(Tensor());
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_EQ(std::string(error.what()).find("sum: "), 0u) << error.what();
  }
}

}  // namespace
}  // namespace lorry::test
