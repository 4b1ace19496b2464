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

    generate::Request request{.limit = 200, .sampling = {.temperature = 0.8, .seed = 1}};
    for (const char* byte = argv[2]; *byte != '\0'; ++byte) request.tokens.push_back(static_cast<unsigned char>(*byte));
    std::printf("%s", argv[2]);
    generate::Engine engine(model);
    engine.submit(request);
    while (!engine.idle())
      for (const generate::Update& update : engine.step())
        for (const int64_t token : update.tokens) std::putchar(static_cast<int>(token));
    std::printf("\n");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
