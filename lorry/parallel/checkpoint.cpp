#include "lorry/parallel/checkpoint.h"

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lorry/autograd/grad_mode.h"
#include "lorry/io/shared_safetensors.h"
#include "lorry/ops/ops.h"

namespace lorry::parallel {
namespace {

/// What a rank writes of a tensor.
struct Share {
  Tensor whole;  ///< on meta
  int64_t first = 0;
  Tensor elements = {};  ///< from `first` on; undefined: nothing
};
using Shares = std::map<std::string, Share>;

Tensor like(const Dims& sizes, DType dtype) { return empty(sizes, {.dtype = dtype, .device = kMeta}); }

Shares shares_of_model(const io::TensorMap& model, const DataParallel& ranks) {
  Shares shares;
  for (const auto& [name, x] : model) {
    Share& share = shares[name] = {.whole = like(x.sizes(), x.dtype())};
    if (const std::optional<OwnRange> own = ranks.own_range(name)) {
      share.first = own->first;
      share.elements = x.contiguous().view({x.numel()}).narrow(0, own->first, own->count);
    } else if (ranks.group().rank() == 0) {
      share.elements = x;
    }
  }
  return shares;
}

Shares shares_of_optimizer(const io::TensorMap& states, const DataParallel& ranks) {
  Shares shares;
  for (const auto& [key, place] : ranks.places_of_states(states)) {
    const Tensor& x = states.at(key);
    shares[key] = {.whole = like(place.sizes, x.dtype()),
                   .first = place.first,
                   .elements = place.is_own || ranks.group().rank() == 0 ? x : Tensor()};
  }
  return shares;
}

io::SharedSafetensors open(const std::filesystem::path& path, const Shares& shares, const io::Metadata& metadata,
                           bool creates) {
  io::TensorMap whole;
  for (const auto& [name, share] : shares) whole[name] = share.whole;
  return {path, whole, metadata, creates};
}

/// Does a part of the work on every rank. Throws on all of them if one has failed, and so none goes on alone.
void together(const ProcessGroup& group, const std::function<void()>& part) {
  std::exception_ptr own;
  std::string why;
  try {
    part();
  } catch (const std::exception& error) {
    own = std::current_exception(), why = std::string(error.what()) + " ";
  }
  const std::vector<std::string> all = group.exchange(why, true);
  if (own != nullptr) std::rethrow_exception(own);
  for (size_t rank = 0; rank < all.size(); ++rank)
    require<IoError>(all[rank].empty(), "the checkpoint was not saved: rank {} of {}: {}", rank, group.name(),
                     all[rank]);
}

void write(io::SharedSafetensors& file, const Shares& shares) {
  for (const auto& [name, share] : shares)
    if (share.elements.defined() && share.elements.numel() > 0) file.write(name, share.first, share.elements);
  file.commit();
}

}  // namespace

void save_checkpoint(const std::filesystem::path& directory, const io::Checkpoint& checkpoint, DataParallel& ranks) {
  const NoGrad no_grad;
  ranks.wait();
  const ProcessGroup& group = ranks.group();
  const Shares model = shares_of_model(checkpoint.model, ranks),
               optimizer = shares_of_optimizer(checkpoint.optimizer, ranks);
  std::optional<io::CheckpointWriter> writer;  // on rank 0
  std::optional<io::SharedSafetensors> model_file, optimizer_file;
  const auto open_files = [&](const std::filesystem::path& path, bool creates) {
    model_file.emplace(
        open(io::CheckpointWriter::model_in(path), model, io::CheckpointWriter::model_metadata(), creates));
    optimizer_file.emplace(open(io::CheckpointWriter::optimizer_in(path), optimizer, {}, creates));
  };
  together(group, [&] {
    if (group.rank() > 0) return;
    writer.emplace(directory, checkpoint.state);
    open_files(writer->path(), true);
  });
  const std::filesystem::path path = group.exchange(writer ? writer->path().string() : "", true)[0];
  together(group, [&] {
    if (!writer) open_files(path, false);
    write(*model_file, model);
    write(*optimizer_file, optimizer);
  });
  together(group, [&] {
    if (writer) writer->commit();
  });
}

}  // namespace lorry::parallel
