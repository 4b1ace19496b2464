#include "lorry/io/corpus.h"

#include <sys/stat.h>

#include <map>

#include "tests/io/scratch.h"

namespace lorry::io::test {
namespace {

std::string letters(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(i % 251);
  return text;
}

TEST(Corpus, holds_out_the_last_tenth_of_every_file) {
  const Scratch scratch;
  put(scratch / "a", std::string(95, 'a') + "123456789");  // 104 bytes: 10 are held out
  put(scratch / "b", std::string(90, 'b') + "0123456789");
  const Corpus corpus({scratch / "a", scratch / "b"}, 4);
  EXPECT_EQ(corpus.train_bytes(), 94 + 90);
  EXPECT_EQ(corpus.validation_bytes(), 10 + 10);
  const Batch batch = corpus.validation_batch(0, 4);
  EXPECT_EQ(batch.x.sizes(), (Dims{4, 4}));
  const std::string held_out = "a1234567890123456789";
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(batch.x.data<int64_t>()[i], held_out[i]);
    EXPECT_EQ(batch.y.data<int64_t>()[i], held_out[i + 1]);
  }
}

TEST(Corpus, bytes_above_127_are_tokens_above_127) {
  const Scratch scratch;
  put(scratch / "a", std::string(100, '\xff'));
  EXPECT_EQ(Corpus({scratch / "a"}, 2).train_batch(1).x.data<int64_t>()[0], 255);
}

TEST(Corpus, a_window_is_followed_by_its_successors_and_every_place_is_drawn) {
  const Scratch scratch;
  put(scratch / "a", letters(50));
  Corpus corpus({scratch / "a"}, 3, 9);
  std::map<int64_t, int> starts;
  for (int i = 0; i < 100; ++i) {
    const Batch batch = corpus.train_batch(10);
    for (int64_t row = 0; row < 10; ++row) {
      const int64_t* x = batch.x.data<int64_t>() + row * 3;
      const int64_t* y = batch.y.data<int64_t>() + row * 3;
      ++starts[x[0]];
      for (int k = 0; k < 3; ++k) {
        EXPECT_EQ(x[k], x[0] + k);
        EXPECT_EQ(y[k], x[k] + 1);
      }
    }
  }
  EXPECT_EQ(starts.size(), 42u) << "45 bytes have 42 windows of 3 with a successor";
  EXPECT_EQ(starts.rbegin()->first, 41);
}

TEST(Corpus, one_integer_resumes_the_stream_to_the_byte) {
  const Scratch scratch;
  put(scratch / "a", letters(5000));
  Corpus corpus({scratch / "a"}, 16, 42);
  corpus.train_batch(7);
  const uint64_t position = corpus.position();
  EXPECT_EQ(position, 7u);
  const auto expected = corpus.train_batch(5).x.to_vector<int64_t>();
  Corpus resumed({scratch / "a"}, 16, 42);
  resumed.seek(position);
  EXPECT_EQ(resumed.train_batch(5).x.to_vector<int64_t>(), expected);
  Corpus other({scratch / "a"}, 16, 43);
  other.seek(position);
  EXPECT_NE(other.train_batch(5).x.to_vector<int64_t>(), expected);
}

TEST(Corpus, validation_batches_cover_the_held_out_part_once) {
  const Scratch scratch;
  put(scratch / "a", letters(1000));
  const Corpus corpus({scratch / "a"}, 9);  // 100 held out: 11 windows
  ASSERT_EQ(corpus.validation_batches(4), 3);
  int64_t next = 900 % 251;
  for (int64_t i = 0; i < 3; ++i) {
    const Batch batch = corpus.validation_batch(i, 4);
    EXPECT_EQ(batch.x.size(0), i < 2 ? 4 : 3);
    for (const int64_t token : batch.x.to_vector<int64_t>()) EXPECT_EQ(token, next++ % 251);
  }
  EXPECT_EQ(message<IndexError>([&] { corpus.validation_batch(3, 4); }),
            "validation_batch: index is out of range; got 3; expected 0 to 2");
  EXPECT_EQ(message<ValueError>([&] { corpus.validation_batches(0); }),
            "validation_batches: batch is out of range; got 0; expected at least 1");
}

TEST(Corpus, text_that_cannot_be_used_is_refused_in_one_sentence) {
  const Scratch scratch;
  const std::string root = scratch.root().string() + "/";
  put(scratch / "empty", "");
  put(scratch / "short", std::string(60, 'x'));
  ASSERT_EQ(::mkfifo((scratch / "fifo").c_str(), 0600), 0);
  const auto text = [&]<class E>(Type<E>, const std::vector<std::filesystem::path>& files, int64_t context = 8) {
    return message<E>([&] { Corpus(files, context); });
  };
  EXPECT_EQ(text(Type<ValueError>{}, {}), "corpus: no text file was given; expected at least one");
  EXPECT_EQ(text(Type<IoError>{}, {scratch / "none"}), "cannot open '" + root + "none': No such file or directory");
  EXPECT_EQ(text(Type<IoError>{}, {scratch.root()}), "cannot read '" + scratch.root().string() + "': Is a directory");
  EXPECT_EQ(text(Type<IoError>{}, {scratch / "fifo"}), "cannot read '" + root + "fifo': it is not a regular file");
  EXPECT_EQ(text(Type<ValueError>{}, {scratch / "empty"}), "corpus: '" + root + "empty' is empty; expected text");
  EXPECT_EQ(text(Type<ValueError>{}, {scratch / "short"}),
            "corpus: text is too short for a context of 8; got 54 bytes to train on and 6 held out; expected more than "
            "8 in each, so about 90 in all");
  EXPECT_EQ(text(Type<ValueError>{}, {scratch / "short"}, 0),
            "corpus: context is out of range; got 0; expected at least 1");
}

}  // namespace
}  // namespace lorry::io::test
