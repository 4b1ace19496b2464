// cuDNN's fused attention, through the frontend's headers, which open the library at run time. A plan is a graph that
// cuDNN has compiled for one set of sizes, strides and options. Plans are made once and never destroyed, because
// captured device graphs may run their code.

#include <cudnn_frontend.h>

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "lorry/base/error.h"
#include "lorry/base/events.h"
#include "lorry/base/modes.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/device/cuda/library.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/common/scratch.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the headers look up cuDNN's functions in this handle
}

namespace lorry::kernels::cuda {
namespace {

namespace frontend = cudnn_frontend;
using frontend::graph::Tensor_attributes;

constexpr const char* kName = "scaled_dot_product_attention";

/// The headers also use a shared CUDA runtime, which they open by name. They find it wherever it is installed if it is
/// open already.
bool open_cudnn() {
  static const bool kOpened = [] {
    if (lorry::cuda::open_library("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).handle == nullptr)
      return false;
    frontend::cudnn_dlhandle = lorry::cuda::open_library("libcudnn.so." + std::to_string(CUDNN_MAJOR)).handle;
    return frontend::cudnn_dlhandle != nullptr;
  }();
  return kOpened;
}

/// The error of a frontend call; empty on success. The frontend returns its own errors and throws the loader's.
template <class F>
std::string why_not(F&& call) {
  try {
    frontend::error_t error = call();
    return error.is_good() ? std::string() : "cuDNN: " + error.get_message();
  } catch (const std::exception& error) {
    return std::string("cuDNN: ") + error.what();
  }
}

/// A call's operands, in the order of their identifiers, which start at 1.
struct Call {
  const AttentionArgs& args;
  const AttentionGrads* grads;
  int64_t parts;  ///< the batch is split into
  int count;
  std::array<const Array*, 9> operands;

  Call(const AttentionArgs& a, const AttentionGrads* g) : args(a), grads(g), parts(g ? cudnn_backward_parts(a) : 1) {
    if (grads == nullptr) {
      count = 5, operands = {&a.q, &a.k, &a.v, &a.out, &a.logsumexp};
    } else {
      count = 9, operands = {&a.q, &a.k, &a.v, &a.out, &a.logsumexp, &g->grad_out, &g->grad_q, &g->grad_k, &g->grad_v};
    }
  }
};
enum : int { kQ, kK, kV, kOut, kLogsumexp, kGradOut, kGradQ, kGradK, kGradV };

/// A valid stride even for a dimension of size 1.
int64_t stride(const Array& x, int dim) {
  if (x.size(dim) > 1) return x.stride(dim);
  int64_t inner = 1;
  for (int i = dim + 1; i < x.layout.rank; ++i) inner *= x.size(i);
  return inner;
}

/// Everything that a plan depends on.
struct Key {
  std::array<int64_t, 40> words{};
  int count = 0;

  explicit Key(const Call& call) {
    const AttentionArgs& a = call.args;
    for (const int64_t word : {int64_t{call.count}, static_cast<int64_t>(a.q.dtype), int64_t{a.causal},
                               int64_t{std::bit_cast<int32_t>(static_cast<float>(a.scale))}, a.q.size(0), a.q.size(1),
                               a.k.size(1), a.q.size(2), a.k.size(2), a.q.size(3)})
      add(word);
    for (int i = 0; i < call.count; ++i)
      for (int dim = 0; i != kLogsumexp && dim < 3; ++dim) add(stride(*call.operands[static_cast<size_t>(i)], dim));
  }
  friend bool operator==(const Key& a, const Key& b) { return a.words == b.words; }

 private:
  void add(int64_t word) { words[static_cast<size_t>(count++)] = word; }
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, a word at a time
    for (int i = 0; i < key.count; ++i)
      hash = (hash ^ static_cast<uint64_t>(key.words[static_cast<size_t>(i)])) * 0x100000001b3u;
    return hash ^ hash >> 32;
  }
};

struct CompiledAttention {
  frontend::graph::Graph graph;
  int64_t workspace = 0;
  std::string why_none;  ///< empty: the plan can run
};

/// cuDNN on one device. Only one thread at a time may use it, because the handle holds the stream.
struct Library {
  std::mutex turn;
  cudnnHandle_t handle = nullptr;
  std::unordered_map<Key, std::unique_ptr<CompiledAttention>, KeyHash> plans;
};

template <class Options>
Options options(const AttentionArgs& args) {
  Options options;
  options.set_name("attention").set_attn_scale(static_cast<float>(args.scale));
  if (args.causal)
    options.set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  return options;
}

/// Describes the call's graph: its inputs and outputs, for one part of the batch.
void describe(frontend::graph::Graph& graph, const Call& call) {
  using frontend::DataType_t;
  const int64_t b = call.args.q.size(0) / call.parts, h = call.args.q.size(1), t = call.args.q.size(2);
  graph.set_io_data_type(call.args.q.dtype == kF16 ? DataType_t::HALF : DataType_t::BFLOAT16);
  graph.set_intermediate_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  const auto shape = [&](Tensor_attributes& to, int i) {
    to.set_uid(i + 1);
    if (i == kLogsumexp) {
      to.set_dim({b, h, t, 1}).set_stride({h * t, t, 1, 1}).set_data_type(DataType_t::FLOAT);
    } else {
      const Array& x = *call.operands[static_cast<size_t>(i)];
      to.set_dim({b, x.size(1), x.size(2), x.size(3)}).set_stride({stride(x, 0), stride(x, 1), stride(x, 2), 1});
    }
  };
  const auto input = [&](int i) {
    Tensor_attributes attributes;
    shape(attributes, i);
    return graph.tensor(attributes);
  };
  const auto output = [&](const std::shared_ptr<Tensor_attributes>& tensor, int i) {
    shape(tensor->set_output(true), i);
  };
  const auto q = input(kQ), k = input(kK), v = input(kV);
  if (call.grads == nullptr) {
    const auto [out, logsumexp] =
        graph.sdpa(q, k, v, options<frontend::graph::SDPA_attributes>(call.args).set_generate_stats(true));
    output(out, kOut), output(logsumexp, kLogsumexp);
  } else {
    const auto out = input(kOut), logsumexp = input(kLogsumexp), grad_out = input(kGradOut);
    const auto [grad_q, grad_k, grad_v] = graph.sdpa_backward(
        q, k, v, out, grad_out, logsumexp,
        options<frontend::graph::SDPA_backward_attributes>(call.args).set_deterministic_algorithm(true));
    output(grad_q, kGradQ), output(grad_k, kGradK), output(grad_v, kGradV);
  }
}

std::unique_ptr<CompiledAttention> make_plan(const Call& call, cudnnHandle_t handle, int device) {
  auto plan = std::make_unique<CompiledAttention>();
  plan->why_none = why_not([&] {
    plan->graph.set_sm_version(lorry::cuda::properties(device).compute_capability);
    describe(plan->graph, call);
    frontend::error_t error = plan->graph.build(handle, {frontend::HeurMode_t::A});
    return error.is_good() ? plan->graph.get_workspace_size(plan->workspace) : error;
  });
  if (!plan->why_none.empty()) return plan;
  const std::vector<int64_t> expected = plan->graph.get_variant_pack_uids_sorted();
  bool ours = static_cast<int>(expected.size()) == call.count;
  for (int i = 0; ours && i < call.count; ++i) ours = expected[static_cast<size_t>(i)] == i + 1;
  if (!ours) plan->why_none = "cuDNN: the plan asks for operands of its own";
  return plan;
}

/// Returns null if there is no plan; a warning event says so.
CompiledAttention* plan_for(const Call& call, Library& library, int device) {
  if (library.handle == nullptr) {
    const std::string why = !open_cudnn() ? "cuDNN cannot be opened" : why_not([&] {
      const cudnnStatus_t status = frontend::detail::create_handle(&library.handle);
      if (status == CUDNN_STATUS_SUCCESS) return frontend::error_t{};
      library.handle = nullptr;
      return frontend::error_t{frontend::error_code_t::HANDLE_ERROR, "cudnnCreate failed"};
    });
    if (!why.empty()) {
      events::emit(events::Kind::warning, kName, why + "; a built-in, slower kernel computes it");
      return nullptr;
    }
  }
  std::unique_ptr<CompiledAttention>& plan = library.plans[Key(call)];
  if (plan == nullptr) plan = make_plan(call, library.handle, device);
  if (plan->why_none.empty()) return plan.get();
  events::emit(events::Kind::warning, kName, plan->why_none + "; a built-in, slower kernel computes it");
  return nullptr;
}

}  // namespace

bool cudnn_attention(const AttentionArgs& args, const AttentionGrads* grads, Stream stream) {
  static Library* const kLibraries =
      new Library[kMaxDevices];  // never destroyed: at exit the context may no longer exist
  Library& library = kLibraries[stream.device.index];
  const std::lock_guard lock(library.turn);
  const lorry::cuda::DeviceGuard guard(stream.device.index);
  const Call call(args, grads);
  CompiledAttention* const plan = plan_for(call, library, stream.device.index);
  if (plan == nullptr) return false;

  const Scratch workspace(plan->workspace, stream);
  std::array<void*, 10> data;  // the operands, then the workspace
  for (int64_t part = 0; part < call.parts; ++part) {
    const int64_t first = part * (args.q.size(0) / call.parts);
    for (int i = 0; i < call.count; ++i) {
      const Array& x = *call.operands[static_cast<size_t>(i)];
      data[static_cast<size_t>(i)] = x.as<char>() + first * x.stride(0) * static_cast<int64_t>(size_of(x.dtype));
    }
    std::string why;
    const auto execute = [&] {
      if (frontend::detail::set_stream(library.handle, lorry::cuda::handle(stream)) != CUDNN_STATUS_SUCCESS)
        return frontend::error_t{frontend::error_code_t::HANDLE_ERROR, "cudnnSetStream failed"};
      return plan->graph.execute(library.handle, data.data(), call.count, workspace.data());
    };
    data[static_cast<size_t>(call.count)] = workspace.data();
    lorry::cuda::library(stream, "cudnnBackendExecute", {data.data(), static_cast<size_t>(call.count) + 1}, [&] {
      why = why_not(execute);
      return why.empty();
    });
    if (!why.empty()) [[unlikely]] {
      lorry::cuda::check(cudaGetLastError(), "cudnnBackendExecute");  // a fault of the device is the more useful error
      raise_as<CudaError>(running_or(kName), "{}", why);
    }
  }
  return true;
}

}  // namespace lorry::kernels::cuda
