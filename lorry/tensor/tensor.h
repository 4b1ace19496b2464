#pragma once

// Tensor: one pointer to a node that holds storage, layout and dtype. Copying a Tensor copies the pointer; views share
// the storage; methods ending in _ write in place. Names, defaults and semantics are PyTorch's. Methods that compute
// are defined in the ops room, those that differentiate in the autograd room.

#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/tensor/facts.h"
#include "lorry/tensor/node.h"
#include "lorry/tensor/scalar.h"

namespace lorry {

class Tensor;
class Index;
class Generator;
struct Unique;

namespace detail {
[[noreturn, gnu::cold]] void raise_undefined(const char* method);
}

/// The device that factories use if none is given: the CPU, or the one set on this thread by set_default_device.
Device default_device();
/// Sets it for this thread.
void set_default_device(Device device);

/// How a factory makes a tensor: zeros({2, 3}, {.dtype = kI64}).
struct Options {
  DType dtype = kF32;
  Device device = default_device();
};

/// A tensor or a number, as an operator's right-hand side. Refers to the tensor; does not own it.
class Operand {
 public:
  Operand(const Tensor& t) : tensor_(&t) {}
  Operand(const Scalar& s) : scalar_(s) {}
  template <class N>
  requires std::is_arithmetic_v<N> Operand(N n) : scalar_(n) {}

  const Tensor* tensor() const { return tensor_; }
  const Scalar& scalar() const { return scalar_; }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar scalar_;
};

class Tensor {
 public:
  /// An undefined tensor, without storage and shape: the default of optional arguments.
  Tensor() = default;
  explicit Tensor(IntrusivePtr<detail::TensorNode> node) : node_(std::move(node)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;

  /// Assigning to a variable makes it refer to another tensor.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// Assigning to a temporary writes its elements, like copy_ and fill_: x[i] = y, x.select(0, 1) = 2. Throws
  /// ValueError if nothing else refers to its memory, such as an index by a tensor: the write would be lost.
  const Tensor& operator=(const Tensor& source) &&;
  const Tensor& operator=(const Scalar& value) &&;

  // ---- properties ---------------------------------------------------------------------------------------------------
  // For an undefined tensor, these work: defined(), requires_grad(), is_leaf(), grad_fn(), is_same() and node().
  // Methods that need a history (backward, retain_grad, register_hook) throw GradError, all others ValueError.
  bool defined() const { return static_cast<bool>(node_); }
  DType dtype() const { return checked("dtype").dtype; }
  Device device() const { return checked("device").storage->device(); }
  int64_t dim() const { return checked("dim").layout.rank; }
  Dims sizes() const { return with_sizes("sizes").layout.size_list(); }
  Dims strides() const { return with_sizes("strides").layout.stride_list(); }
  /// Throws IndexError for a dimension that the tensor does not have.
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  int64_t numel() const { return with_sizes("numel").numel; }
  int64_t nbytes() const { return with_sizes("nbytes").numel * size_of(node_->dtype); }
  const Layout& layout() const { return with_sizes("layout").layout; }
  int64_t storage_offset() const { return with_sizes("storage_offset").offset; }
  bool is_contiguous() const { return checked("is_contiguous").contiguous; }
  bool is_floating_point() const { return is_floating(checked("is_floating_point").dtype); }
  Options options() const { return {checked("options").dtype, node_->storage->device()}; }
  Storage& storage() const { return *with_sizes("storage").storage; }
  /// Counts in-place writes to the storage.
  uint32_t version() const { return checked("version").storage->version(); }
  bool is_same(const Tensor& other) const { return node_ == other.node_; }
  bool is_inference() const { return checked("is_inference").inference; }
  bool is_view() const { return static_cast<bool>(checked("is_view").base); }
  /// Null for an undefined tensor.
  detail::TensorNode* node() const { return node_.get(); }
  const IntrusivePtr<detail::TensorNode>& node_ptr() const { return node_; }

  /// The address of the first element. On meta it must not be read or written.
  void* data_ptr() const {
    const detail::TensorNode& node = checked("data_ptr");
    if (detail::addresses_heard()) [[unlikely]]
      detail::announce_address(*this);
    return node.data();
  }
  /// The same with a type. Throws DTypeError unless T is the C++ type of the dtype, DeviceError on meta.
  template <class T>
  T* data() const {
    constexpr DType kAsked = dtype_of<std::remove_const_t<T>>;
    const detail::TensorNode& node = checked("data");
    if (kAsked != node.dtype) [[unlikely]]
      raise_as<DTypeError>(running_or("data"), "dtype differs; got {} for a tensor of {}", kAsked, node.dtype);
    if (node.storage->device().is_meta()) [[unlikely]]
      detail::raise_no_elements("data");
    if (detail::addresses_heard()) [[unlikely]]
      detail::announce_address(*this);
    return static_cast<T*>(node.data());
  }

  // ---- gradients (autograd room) ------------------------------------------------------------------------------------
  bool requires_grad() const {
    return node_ && (node_->requires_grad || (node_->base && !node_->cut_view && node_->base->requires_grad));
  }
  /// Sets whether backward computes a gradient for this leaf. Throws GradError for a non-leaf, DTypeError unless
  /// floating.
  const Tensor& requires_grad_(bool on = true) const;
  bool is_leaf() const;
  /// The gradient accumulated by backward; undefined before. set_grad replaces it by one of any floating dtype, in
  /// which backward then accumulates.
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  /// The name of the operator that computed this tensor ("mul"); empty for a leaf.
  std::string grad_fn() const;
  /// Adds d(this)/d(leaf) * gradient to the grad of every leaf. `gradient` may be omitted for a single element.
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  /// A tensor with the same memory and no history.
  Tensor detach() const;
  /// Makes backward store the gradient of a tensor that is not a leaf in grad().
  void retain_grad() const;
  /// Backward calls hook(grad) when it has computed the gradient of this tensor; a defined result replaces the
  /// gradient. Returns a handle for remove_hook.
  int64_t register_hook(std::function<Tensor(const Tensor&)> hook) const;
  void remove_hook(int64_t handle) const;
  /// Makes this tensor refer to the other tensor's storage, layout and dtype; its identity and grad_fn stay. For
  /// modules that change dtype.
  void set_data(const Tensor& other) const;

  // ---- pointwise, one row each in formula/pointwise.def -------------------------------------------------------------
#define LORRY_UNARY(name, Formula, result, domain) \
  Tensor name() const;                             \
  const Tensor& name##_() const;
#define LORRY_BINARY(name, Formula, result, domain) \
  Tensor name(const Operand& other) const;          \
  const Tensor& name##_(const Operand& other) const;
#include "lorry/formula/pointwise.def"

  Tensor add(const Operand& other, const Scalar& alpha) const;
  const Tensor& add_(const Operand& other, const Scalar& alpha) const;
  Tensor sub(const Operand& other, const Scalar& alpha) const;
  const Tensor& sub_(const Operand& other, const Scalar& alpha) const;
  Tensor operator-() const;
  Tensor operator!() const;
  Tensor operator~() const;
  /// In place: x += y is x.add_(y). Also for temporaries, as in x[i] += y. Throws ValueError for a temporary whose
  /// memory nothing else refers to, such as x.index({mask}) += y: the write would be lost.
#define LORRY_ASSIGN(sign)                                  \
  const Tensor& operator sign(const Operand& other) const&; \
  const Tensor& operator sign(const Operand& other) const&&;
  LORRY_ASSIGN(+=)
  LORRY_ASSIGN(-=)
  LORRY_ASSIGN(*=)
  LORRY_ASSIGN(/=)
  LORRY_ASSIGN(%=)
  LORRY_ASSIGN(&=)
  LORRY_ASSIGN(|=)
  LORRY_ASSIGN(^=)
  LORRY_ASSIGN(<<=)
  LORRY_ASSIGN(>>=)
#undef LORRY_ASSIGN
  /// rounding_mode: "floor" or "trunc".
  Tensor div(const Operand& other, std::string_view rounding_mode) const;
  const Tensor& div_(const Operand& other, std::string_view rounding_mode) const;
  /// Rounds to `decimals` digits after the point; negative: to tens, hundreds, ...
  Tensor round(int64_t decimals) const;
  const Tensor& round_(int64_t decimals) const;
  Tensor clamp(const std::optional<Operand>& min, const std::optional<Operand>& max = {}) const;
  const Tensor& clamp_(const std::optional<Operand>& min, const std::optional<Operand>& max = {}) const;
  Tensor lerp(const Tensor& end, const Operand& weight) const;
  const Tensor& lerp_(const Tensor& end, const Operand& weight) const;
  Tensor addcmul(const Tensor& a, const Tensor& b, const Scalar& value = 1) const;
  const Tensor& addcmul_(const Tensor& a, const Tensor& b, const Scalar& value = 1) const;
  Tensor addcdiv(const Tensor& a, const Tensor& b, const Scalar& value = 1) const;
  const Tensor& addcdiv_(const Tensor& a, const Tensor& b, const Scalar& value = 1) const;
  Tensor where(const Tensor& condition, const Operand& other) const;
  Tensor nan_to_num(double nan = 0.0, std::optional<double> posinf = {}, std::optional<double> neginf = {}) const;
  const Tensor& nan_to_num_(double nan = 0.0, std::optional<double> posinf = {},
                            std::optional<double> neginf = {}) const;
  Tensor masked_fill(const Tensor& mask, const Operand& value) const;
  const Tensor& masked_fill_(const Tensor& mask, const Operand& value) const;
  Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  bool equal(const Tensor& other) const;

  // ---- copies -------------------------------------------------------------------------------------------------------
  /// This tensor if the dtype is the same, else a converted copy.
  Tensor to(DType dtype) const;
  /// This tensor if the device is the same, else a copy. With `non_blocking` the host does not wait. A copy from pinned
  /// memory is only enqueued: do not write the source until the stream is done. A copy to the host is in pinned memory
  /// and is complete when the stream is done. For host memory owned by other code (from_blob, DLPack) the host always
  /// waits: it may be pinned, and its owner cannot know when it has been read. Throws DeviceError.
  Tensor to(Device device, bool non_blocking = false) const;
  Tensor cpu() const {
    const Running running("cpu");
    return to(kCPU);
  }
  Tensor cuda(int index = 0) const;
  /// This tensor if it is pinned, else a copy in pinned host memory, which a GPU reads at the link's speed.
  Tensor pin_memory() const;
  bool is_pinned() const { return checked("is_pinned").storage->pinned(); }
  /// Whether it is in managed memory, whose pages move between device and host (empty_managed).
  bool is_managed() const { return checked("is_managed").storage->managed(); }
  /// Notes that work enqueued on `stream` uses the memory, which was allocated on another stream or is pinned. After
  /// its release the memory is reused only when that work is done. Throws DeviceError for a stream of another device,
  /// unless the memory is pinned.
  void record_stream(Stream stream) const;
  Tensor clone() const;
  /// This tensor if it is contiguous, else a row-major copy.
  Tensor contiguous() const;
  const Tensor& copy_(const Tensor& source) const;
  const Tensor& fill_(const Operand& value) const;
  const Tensor& zero_() const;
  /// The single element as a C++ number. Throws ShapeError unless there is exactly one.
  Scalar item() const;
  template <class T>
  T item() const {
    return item().template to<T>();
  }
  /// All elements in row-major order, converted.
  template <class T>
  std::vector<T> to_vector() const;

  // ---- views --------------------------------------------------------------------------------------------------------
  Tensor view(const Dims& sizes) const;
  Tensor view(DType dtype) const;
  Tensor view_as(const Tensor& other) const;
  Tensor reshape(const Dims& sizes) const;
  Tensor reshape_as(const Tensor& other) const;
  Tensor permute(const Dims& dims) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const;
  Tensor mT() const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor slice(int64_t dim = 0, std::optional<int64_t> start = {}, std::optional<int64_t> end = {},
               int64_t step = 1) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor narrow(int64_t dim, const Tensor& start, int64_t length) const;
  Tensor expand(const Dims& sizes) const;
  Tensor expand_as(const Tensor& other) const;
  Tensor broadcast_to(const Dims& sizes) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor squeeze(const Dims& dims) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor unflatten(int64_t dim, const Dims& sizes) const;
  Tensor ravel() const;
  Tensor as_strided(const Dims& sizes, const Dims& strides, std::optional<int64_t> storage_offset = {}) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  Tensor unfold(int64_t dim, int64_t size, int64_t step) const;
  Tensor movedim(const Dims& source, const Dims& destination) const;
  std::vector<Tensor> split(int64_t size, int64_t dim = 0) const;
  std::vector<Tensor> split(const std::vector<int64_t>& sizes, int64_t dim = 0) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const;
  std::vector<Tensor> unbind(int64_t dim = 0) const;
  /// These change the sizes and strides of the tensor itself. That counts as a write, so that a graph which saved the
  /// tensor detects it. While gradients are recorded, the change is recorded too. Throws GradError for a leaf that
  /// requires gradients, and inside NoGrad.
  const Tensor& squeeze_() const;
  const Tensor& squeeze_(int64_t dim) const;
  const Tensor& unsqueeze_(int64_t dim) const;
  const Tensor& transpose_(int64_t dim0, int64_t dim1) const;
  const Tensor& t_() const;

  // ---- indexing -----------------------------------------------------------------------------------------------------
  /// x[i]: a view of row i.
  Tensor operator[](int64_t index) const;
  Tensor index(std::initializer_list<Index> indices) const;
  const Tensor& index_put_(std::initializer_list<Index> indices, const Operand& value, bool accumulate = false) const;
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Operand& source) const;
  const Tensor& scatter_(int64_t dim, const Tensor& index, const Operand& source) const;
  /// reduce: "add" or "multiply".
  Tensor scatter(int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce) const;
  const Tensor& scatter_(int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce) const;
  Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& source) const;
  const Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& source) const;
  /// reduce: "sum", "prod", "mean", "amax" or "amin".
  Tensor scatter_reduce(int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                        bool include_self = true) const;
  const Tensor& scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                                bool include_self = true) const;
  Tensor take_along_dim(const Tensor& index, std::optional<int64_t> dim = {}) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor index_add(int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha = 1) const;
  const Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha = 1) const;
  Tensor index_copy(int64_t dim, const Tensor& index, const Tensor& source) const;
  const Tensor& index_copy_(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor index_fill(int64_t dim, const Tensor& index, const Operand& value) const;
  const Tensor& index_fill_(int64_t dim, const Tensor& index, const Operand& value) const;
  Tensor masked_select(const Tensor& mask) const;
  Tensor nonzero() const;
  Tensor nonzero_static(int64_t size, int64_t fill_value = -1) const;
  Tensor flip(const Dims& dims) const;
  Tensor roll(const Dims& shifts, const Dims& dims = {}) const;
  Tensor repeat(const Dims& repeats) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const;
  Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim = {}) const;
  Tensor tile(const Dims& repeats) const;
  Tensor tril(int64_t diagonal = 0) const;
  const Tensor& tril_(int64_t diagonal = 0) const;
  Tensor triu(int64_t diagonal = 0) const;
  const Tensor& triu_(int64_t diagonal = 0) const;

  // ---- random, in place ---------------------------------------------------------------------------------------------
  const Tensor& uniform_(double low = 0.0, double high = 1.0, Generator* generator = nullptr) const;
  const Tensor& normal_(double mean = 0.0, double std = 1.0, Generator* generator = nullptr) const;
  const Tensor& bernoulli_(double p = 0.5, Generator* generator = nullptr) const;
  const Tensor& random_(int64_t low, int64_t high, Generator* generator = nullptr) const;
  Tensor bernoulli(Generator* generator = nullptr) const;
  Tensor multinomial(int64_t samples, bool replacement = false, Generator* generator = nullptr) const;

  // ---- reductions and scans: those that are folds are rows of formula/reduce.def ------------------------------------
#define LORRY_TOTAL(name, fold, map, finish, result) \
  Tensor name(const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
#define LORRY_CHOICE(name, fold, map, finish, result) Tensor name(const Dims& dims = {}, bool keepdim = false) const;
#include "lorry/formula/reduce.def"

  Tensor prod(std::optional<int64_t> dim = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor max() const;
  std::tuple<Tensor, Tensor> max(int64_t dim, bool keepdim = false) const;
  Tensor min() const;
  std::tuple<Tensor, Tensor> min(int64_t dim, bool keepdim = false) const;
  std::tuple<Tensor, Tensor> aminmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor var(const Dims& dims = {}, double correction = 1, bool keepdim = false) const;
  Tensor std(const Dims& dims = {}, double correction = 1, bool keepdim = false) const;
  Tensor norm(double p = 2, const Dims& dims = {}, bool keepdim = false) const;
  Tensor logsumexp(const Dims& dims, bool keepdim = false) const;
  Tensor count_nonzero(const Dims& dims = {}) const;
  Tensor cumsum(int64_t dim, std::optional<DType> dtype = {}) const;
  const Tensor& cumsum_(int64_t dim) const;
  Tensor cumprod(int64_t dim, std::optional<DType> dtype = {}) const;
  const Tensor& cumprod_(int64_t dim) const;
  Tensor sum_to_size(const Dims& sizes) const;
  Tensor diff(int64_t n = 1, int64_t dim = -1, const Tensor& prepend = {}, const Tensor& append = {}) const;
  Tensor softmax(int64_t dim, std::optional<DType> dtype = {}) const;
  Tensor log_softmax(int64_t dim, std::optional<DType> dtype = {}) const;
  std::tuple<Tensor, Tensor> sort(int64_t dim = -1, bool descending = false, bool stable = true) const;
  Tensor argsort(int64_t dim = -1, bool descending = false, bool stable = true) const;
  std::tuple<Tensor, Tensor> topk(int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true) const;
  std::tuple<Tensor, Tensor> kthvalue(int64_t k, int64_t dim = -1, bool keepdim = false) const;
  Tensor median() const;
  std::tuple<Tensor, Tensor> median(int64_t dim, bool keepdim = false) const;
  Unique unique(bool sorted = true, bool return_inverse = false, bool return_counts = false,
                std::optional<int64_t> dim = {}) const;
  Unique unique_consecutive(bool return_inverse = false, bool return_counts = false,
                            std::optional<int64_t> dim = {}) const;

  // ---- matrix products ----------------------------------------------------------------------------------------------
  Tensor matmul(const Tensor& other) const;
  Tensor mm(const Tensor& other) const;
  Tensor bmm(const Tensor& other) const;
  Tensor mv(const Tensor& vector) const;
  Tensor dot(const Tensor& other) const;
  Tensor outer(const Tensor& other) const;
  Tensor addmv(const Tensor& a, const Tensor& vector, const Scalar& beta = 1, const Scalar& alpha = 1) const;
  const Tensor& addmv_(const Tensor& a, const Tensor& vector, const Scalar& beta = 1, const Scalar& alpha = 1) const;
  Tensor addmm(const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1) const;
  const Tensor& addmm_(const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1) const;
  Tensor baddbmm(const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1) const;
  const Tensor& baddbmm_(const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1) const;

  // ---- second names, one row each in tensor/aliases.def -------------------------------------------------------------
#define LORRY_ALIAS(alias, original, parameters, arguments) \
  Tensor alias parameters const {                           \
    const Running running(#alias);                          \
    return original arguments;                              \
  }
#define LORRY_ALIAS_IN_PLACE(alias, original, parameters, arguments) \
  const Tensor& alias##_ parameters const {                          \
    const Running running(#alias);                                   \
    return original##_ arguments;                                    \
  }
#include "lorry/tensor/aliases.def"

 private:
  /// The node. Throws ValueError for an undefined tensor; the message names the running operator, else the method.
  detail::TensorNode& checked(const char* method) const {
    if (!node_) [[unlikely]]
      detail::raise_undefined(method);
    return *node_;
  }
  /// The same for methods that tell sizes.
  detail::TensorNode& with_sizes(const char* method) const {
    detail::TensorNode& node = checked(method);
    if (detail::sizes_heard()) [[unlikely]]
      detail::announce_sizes(*this);
    return node;
  }

  IntrusivePtr<detail::TensorNode> node_;
};

/// "[8, 128, 64] f32 cpu", as error messages name operands.
std::string describe(const Tensor& x);

/// The values, then the properties that differ from the defaults, in PyTorch's format.
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace lorry

template <>
struct fmt::formatter<lorry::Tensor> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const lorry::Tensor& x, Context& context) const {
    return fmt::format_to(context.out(), "{}", lorry::describe(x));
  }
};
