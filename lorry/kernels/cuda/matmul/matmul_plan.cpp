#include "lorry/kernels/cuda/matmul/matmul_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lorry/base/events.h"
#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {

// ---- keys -----------------------------------------------------------------------------------------------------------

bool PlanKey::operator==(const PlanKey& other) const { return std::memcmp(this, &other, sizeof(PlanKey)) == 0; }

uint64_t PlanKey::hash() const {
  uint64_t words[sizeof(PlanKey) / 8];
  static_assert(sizeof(words) == sizeof(PlanKey));
  std::memcpy(words, this, sizeof(words));
  uint64_t h = 0;
  for (const uint64_t word : words) h = (std::rotl(h, 23) ^ word) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 32);
}

bool library_takes(const Problem& p) {
  return is_floating(p.dtype) && p.k > 0 && std::max({p.m, p.n, p.k}) <= INT32_MAX;
}

PlanKey plan_key(const Problem& p, Stream stream) {
  const Reading a = read_matrix(p.m, p.k, p.row[kA], p.column[kA]), b = read_matrix(p.k, p.n, p.row[kB], p.column[kB]);
  const Addend form = addend(p);
  const int64_t leading_c = form != Addend::matrix ? p.column[kOut] : p.n > 1 ? p.column[kC] : p.m;
  PlanKey key = {
      .m = p.m,
      .n = p.n,
      .k = p.k,
      .leading = {p.column[kOut], a.leading, b.leading, leading_c},
      .batch_stride = {},
      .batches = static_cast<int32_t>(p.batches()),
      .device = static_cast<uint8_t>(stream.device.index),
      .dtype = p.dtype,
      .precision = p.dtype == kF32 ? matmul_settings().precision.load(std::memory_order_relaxed) : Precision::full,
      .transposed_a = a.transposed,
      .transposed_b = b.transposed,
      .bias = form == Addend::bias,
      .alignment = {},
      .epilogue = p.epilogue.kind,
      .epilogue_alignment = 0};
  const auto alignment = [](const void* address, uintptr_t length) {
    return static_cast<uint8_t>(std::countr_zero(reinterpret_cast<uintptr_t>(address) | length | 256u));
  };
  if (p.epilogue.kind != MatmulEpilogue::none)
    key.epilogue_alignment = static_cast<uint8_t>(alignment(p.epilogue.aux, 0) | alignment(p.epilogue.sums, 0) << 4);
  for (const Operand x : {kOut, kA, kB, kC}) {
    key.batch_stride[x] = p.batch_rank == 0 ? 0 : p.batch_strides[x][0];
    // Treat a length that is not a multiple of the access size as unaligned: the library would read into the next
    // column.
    const auto length = static_cast<uintptr_t>(unit_length(p, x, x == kB ? b : a) * size_of(p.dtype));
    key.alignment[x] = alignment(p.data[x], length);
  }
  return key;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

namespace {

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case kF16:
      return CUDA_R_16F;
    case kBF16:
      return CUDA_R_16BF;
    case kF32:
      return CUDA_R_32F;
    case kF64:
      return CUDA_R_64F;
    case kI8:
      return CUDA_R_8I;
    default:
      raise<DTypeError>(
          "cuBLASLt is asked for a dtype that it does not multiply; got {}; expected i8, f16, bf16, f32 or f64", dtype);
  }
}

/// The type of out and c: i32 for products of i8.
cudaDataType result_type(DType dtype) { return dtype == kI8 ? CUDA_R_32I : type_of(dtype); }
/// The type of alpha and beta.
cudaDataType scale_type(DType dtype) { return dtype == kI8 ? CUDA_R_32I : dtype == kF64 ? CUDA_R_64F : CUDA_R_32F; }

cublasComputeType_t compute_type(const PlanKey& key) {
  if (key.dtype == kI8) return CUBLAS_COMPUTE_32I;
  if (key.dtype == kF64) return CUBLAS_COMPUTE_64F;
  return key.precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

template <class T>
void set(MatmulPlan& plan, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_cublas_lt(cublas_lt().operation_set(&plan.operation, attribute, &value, sizeof(value)),
                  "cublasLtMatmulDescSetAttribute");
}

/// The library's name for what the product adds and for its epilogue. Its rows are the columns of out, and its first
/// operand is the product's second.
cublasLtEpilogue_t epilogue_of(const PlanKey& key) {
  const bool bias = key.bias != 0;
  switch (key.epilogue) {
    case MatmulEpilogue::none:
      break;
    case MatmulEpilogue::gelu:
      return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case MatmulEpilogue::gelu_and_input:
      return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case MatmulEpilogue::relu:
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case MatmulEpilogue::gelu_backward:
      return CUBLASLT_EPILOGUE_DGELU;
    case MatmulEpilogue::gelu_backward_and_sums:
      return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    case MatmulEpilogue::sums_of_a:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// Tells the library the addresses that are part of the operation. A bias and sums share an attribute; no epilogue has
/// both.
void set_addresses(MatmulPlan& plan, const void* bias, const MatmulEpilogue& epilogue) {
  if (plan.key.bias != 0) set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (epilogue.sums != nullptr) set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.sums);
  if (epilogue.aux != nullptr) set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.aux);
}

/// Whether the library does not support this product and has enqueued nothing.
bool refused(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

void set_layout(MatmulPlan& plan, Operand x, int64_t rows, int64_t columns) {
  const PlanKey& key = plan.key;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    check_cublas_lt(cublas_lt().layout_set(&plan.layouts[x], attribute, &value, sizeof(value)),
                    "cublasLtMatrixLayoutSetAttribute");
  };
  check_cublas_lt(cublas_lt().layout_init(&plan.layouts[x], sizeof(plan.layouts[x]),
                                          x == kA || x == kB ? type_of(key.dtype) : result_type(key.dtype),
                                          static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), key.leading[x]),
                  "cublasLtMatrixLayoutInit");
  if (key.batches == 1) return;
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, key.batches);
  // A bias is described by the operation; then c's matrices are out's.
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, key.batch_stride[x == kC && key.bias != 0 ? kOut : x]);
}

}  // namespace

int MatmulPlan::candidates(Algorithm* algorithms, int count, cublasLtReductionScheme_t reduction) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check_cublas_lt(cublas_lt().preference_init(&preference, sizeof(preference)), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_cublas_lt(cublas_lt().preference_set(&preference, attribute, &value, sizeof(value)),
                    "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto alignment = [&](Operand x) { return uint32_t{1} << key.alignment[x]; };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(reduction));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(kA));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(kB));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(key.bias != 0 ? kOut : kC));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(kOut));

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0, usable = 0;
  const cublasStatus_t status =
      cublas_lt().heuristic(cublas_lt_handle(key.device), &operation, &layouts[kA], &layouts[kB], &layouts[kC],
                            &layouts[kOut], &preference, count, results.data(), &found);
  if (refused(status)) return 0;
  check_cublas_lt(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < found; ++i)
    if (const auto& r = results[static_cast<size_t>(i)]; r.state == CUBLAS_STATUS_SUCCESS)
      algorithms[usable++] = {r.algo, static_cast<int64_t>(r.workspaceSize)};
  return usable;
}

cublasStatus_t MatmulPlan::run(const Algorithm& with, const Problem& part, void* out, void* workspace, Stream stream) {
  const float alpha = static_cast<float>(part.alpha),
              beta = part.adds && key.bias == 0 ? static_cast<float>(part.beta) : 0.0f;
  const double wide_alpha = part.alpha, wide_beta = part.adds && key.bias == 0 ? part.beta : 0.0;
  const int32_t whole_alpha = 1, whole_beta = 0;
  const auto of_type = [&](const float& narrow, const double& wide, const int32_t& whole) -> const void* {
    return key.dtype == kI8    ? static_cast<const void*>(&whole)
           : key.dtype == kF64 ? &wide
                               : static_cast<const void*>(&narrow);
  };
  set_addresses(*this, part.data[kC], part.epilogue);
  cublasStatus_t status;
  const void* const addresses[] = {out,       part.data[kA],     part.data[kB],     part.data[kC],
                                   workspace, part.epilogue.aux, part.epilogue.sums};
  lorry::cuda::library(stream, "cublasLtMatmul", addresses, [&] {
    status = cublas_lt().matmul(cublas_lt_handle(key.device), &operation, of_type(alpha, wide_alpha, whole_alpha),
                                part.data[kA], &layouts[kA], part.data[kB], &layouts[kB],
                                of_type(beta, wide_beta, whole_beta), part.data[key.bias != 0 ? kOut : kC],
                                &layouts[kC], out, &layouts[kOut], &with.how, workspace,
                                static_cast<size_t>(with.workspace_bytes), lorry::cuda::handle(stream));
    return status == CUBLAS_STATUS_SUCCESS;
  });
  return status;
}

MatmulPlan make_plan(const PlanKey& key, const void* bias, const MatmulEpilogue& epilogue) {
  MatmulPlan plan = {.key = key, .operation = {}, .layouts = {}, .algorithm = {}, .possible = false, .tuned = false};
  check_cublas_lt(
      cublas_lt().operation_init(&plan.operation, sizeof(plan.operation), compute_type(key), scale_type(key.dtype)),
      "cublasLtMatmulDescInit");
  set(plan, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(key.transposed_a != 0 ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(plan, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(key.transposed_b != 0 ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (const cublasLtEpilogue_t kind = epilogue_of(key); kind != CUBLASLT_EPILOGUE_DEFAULT)
    set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(kind));
  set_addresses(plan, bias, epilogue);  // the heuristic uses their alignment, which equals the key's
  if (key.bias != 0 && key.batches > 1) set(plan, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, key.batch_stride[kC]);
  if (epilogue.aux != nullptr) set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.leading[kOut]);
  set_layout(plan, kA, key.transposed_a != 0 ? key.k : key.m, key.transposed_a != 0 ? key.m : key.k);
  set_layout(plan, kB, key.transposed_b != 0 ? key.n : key.k, key.transposed_b != 0 ? key.k : key.n);
  set_layout(plan, kC, key.m, key.n);
  set_layout(plan, kOut, key.m, key.n);
  plan.possible = plan.candidates(&plan.algorithm, 1) == 1;
  return plan;
}

// ---- plans found again ----------------------------------------------------------------------------------------------

namespace {

/// A thread's plans: a hash table with open addressing over pointers, so that a plan's address does not change. It is
/// emptied when it gets too large because shapes do not repeat.
class Plans {
 public:
  MatmulPlan& find(const PlanKey& key, const Problem& part) {
    const uint64_t hash = key.hash();
    for (size_t i = hash & mask();; i = (i + 1) & mask()) {
      if (slots_[i] == nullptr) return insert(hash, key, part);
      if (slots_[i]->key == key) return *slots_[i];
    }
  }

 private:
  static constexpr size_t kMost = 4096;

  size_t mask() const { return slots_.size() - 1; }

  MatmulPlan& insert(uint64_t hash, const PlanKey& key, const Problem& part) {
    auto plan = std::make_unique<MatmulPlan>(make_plan(key, part.data[kC], part.epilogue));
    if (count_ == kMost) {
      slots_ = std::vector<std::unique_ptr<MatmulPlan>>(kFirst);
      count_ = 0;
    } else if (2 * count_ >= slots_.size()) {
      std::vector<std::unique_ptr<MatmulPlan>> before(2 * slots_.size());
      before.swap(slots_);
      for (auto& p : before)
        if (p != nullptr) free_slot(p->key.hash()) = std::move(p);
    }
    ++count_;
    return *(free_slot(hash) = std::move(plan));
  }

  std::unique_ptr<MatmulPlan>& free_slot(uint64_t hash) {
    size_t i = hash & mask();
    while (slots_[i] != nullptr) i = (i + 1) & mask();
    return slots_[i];
  }

  static constexpr size_t kFirst = 64;
  std::vector<std::unique_ptr<MatmulPlan>> slots_ = std::vector<std::unique_ptr<MatmulPlan>>(kFirst);
  size_t count_ = 0;
};

constinit thread_local Plans* t_plans = nullptr;

/// This thread's plans. They are destroyed when the thread ends; thread-local objects destroyed later make new plans,
/// which leak.
Plans& plans() {
  if (t_plans == nullptr) [[unlikely]] {
    struct Closer {
      ~Closer() { delete std::exchange(t_plans, nullptr); }
    };
    static thread_local Closer closer;
    t_plans = new Plans;
  }
  return *t_plans;
}

/// The algorithms chosen by timing, shared by all threads.
struct Chosen {
  struct Hash {
    size_t operator()(const PlanKey& key) const { return key.hash(); }
  };
  std::mutex mutex;
  std::unordered_map<PlanKey, Algorithm, Hash> algorithms;
};
Chosen& chosen() {
  static Chosen& the = *new Chosen;
  return the;
}

/// Sets the plan's algorithm to the one chosen by timing, now or earlier. Holds the lock while timing, so that two
/// threads do not disturb each other's measurements.
[[gnu::noinline]] void tune(MatmulPlan& plan, const Problem& part, Stream stream) {
  if (lorry::cuda::capturing(stream)) return;
  plan.tuned = true;
  const std::scoped_lock lock(chosen().mutex);
  auto& algorithms = chosen().algorithms;
  auto at = algorithms.find(plan.key);
  if (at == algorithms.end()) {
    try {
      at = algorithms.emplace(plan.key, fastest_algorithm(plan, part, stream)).first;
    } catch (const OutOfMemory&) {
      events::emit(events::Kind::warning, "matmul",
                   "no memory to time algorithms with; the library's first guess is kept");
      return;
    }
  }
  plan.algorithm = at->second;
}

}  // namespace

bool multiply_by_library(const Problem& part, Stream stream) {
  const lorry::cuda::DeviceGuard guard(stream.device.index);
  const PlanKey key = plan_key(part, stream);
  MatmulPlan& plan = plans().find(key, part);
  if (!plan.possible) return false;
  if (!plan.tuned && matmul_settings().tuning.load(std::memory_order_relaxed)) [[unlikely]]
    tune(plan, part, stream);
  cublasStatus_t status;
  if (plan.algorithm.workspace_bytes == 0) {
    status = plan.run(plan.algorithm, part, part.data[kOut], nullptr, stream);
  } else {
    const Scratch workspace(plan.algorithm.workspace_bytes, stream);
    status = plan.run(plan.algorithm, part, part.data[kOut], workspace.data(), stream);
  }
  if (refused(status)) return plan.possible = false;
  check_cublas_lt(status, "cublasLtMatmul");
  return true;
}

}  // namespace lorry::kernels::cuda
