// Text from a model that `lorry train` has trained:  example_write_text run/checkpoint "Once upon"
#include <cstdio>
#include <string>

#include "lorry/lorry.h"

using namespace lorry;

int main(int argc, char** argv) {
  if (argc != 3 || *argv[2] == '\0') {
    std::fprintf(stderr, "usage: %s CHECKPOINT PROMPT\n", argv[0]);
    return 2;
  }
  try {
    const io::Checkpoint checkpoint = io::load_checkpoint(argv[1]);
    const io::Settings& config = checkpoint.state.config;
    const auto whole = [&](const char* name) { return io::setting<int64_t>(config, name); };
    nn::GPT model({.vocab = whole("vocab"),
                   .context = whole("context"),
                   .layers = whole("layers"),
                   .heads = whole("heads"),
                   .width = whole("width"),
                   .rotary = io::setting<bool>(config, "rotary"),
                   .scale_embeddings = io::setting<bool>(config, "scale_embeddings")});
    model.load_state_dict(checkpoint.model);
    model.eval();

    std::string text = argv[2];
    std::printf("%s", text.c_str());
    manual_seed(1);
    // The cache keeps what the model has read, so each new byte costs one position's work.
    nn::KVCache cache(model.config(), 1);
    std::string unread = text.substr(text.size() - std::min<size_t>(text.size(), 16));
    while (cache.length() + static_cast<int64_t>(unread.size()) <= cache.capacity()) {
      std::vector<int64_t> tokens;
      for (const unsigned char byte : unread) tokens.push_back(byte);
      const Tensor logits = model.forward(from_data(tokens, {1, static_cast<int64_t>(tokens.size())}), cache);
      const Tensor likely = (logits / 0.8).softmax(-1);  // sharper than what was learnt: fewer mistakes, less surprise
      unread = static_cast<char>(likely.multinomial(1).item<int64_t>());
      std::printf("%s", unread.c_str());
    }
    std::printf("\n");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
