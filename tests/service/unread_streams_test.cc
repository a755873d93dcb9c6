#include "server/rpc/unread_streams.h"

#include <array>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

struct FilledStream final : UnreadStream {
  void OnFullest() override { ++ends; }
  int ends = 0;
};

}  // namespace

TEST_CASE("unread streams: the fullest end, down to seven eighths of the bound") {
  UnreadStreams all;
  std::array<FilledStream, 4> streams;
  all.Set(&streams[0], 100, 800);
  all.Set(&streams[1], 300, 800);
  all.Set(&streams[2], 250, 800);
  all.Set(&streams[3], 150, 800);
  CHECK(all.bytes() == 800);
  for (const FilledStream& stream : streams) CHECK(stream.ends == 0);
  all.Set(&streams[0], 101, 800);
  CHECK(streams[1].ends == 1);
  CHECK(streams[0].ends + streams[2].ends + streams[3].ends == 0);
  CHECK(all.bytes() == 501);
  // It drops what waits, and does not end again.
  all.Set(&streams[1], 0, 800);
  CHECK(all.bytes() == 501);
  // One that is too full by itself.
  all.Set(&streams[3], 801, 800);
  CHECK(streams[3].ends == 1);
  CHECK(all.bytes() == 351);
  for (FilledStream& stream : streams) all.Set(&stream, 0, 800);
  CHECK(all.bytes() == 0);
  CHECK(streams[0].ends + streams[2].ends == 0);
}

// As a watch, which drops its parts one after the other, and counts after each.
TEST_CASE("unread streams: one that counts while it is cut off ends once") {
  struct Counting final : UnreadStream {
    void OnFullest() override {
      if (++ends < 100) all->Set(this, 900, 1'000);
      all->Set(this, 0, 1'000);
    }
    UnreadStreams* all = nullptr;
    int ends = 0;
  };
  UnreadStreams all;
  Counting fullest;
  fullest.all = &all;
  FilledStream other;
  all.Set(&other, 200, 1'000);
  all.Set(&fullest, 900, 1'000);
  CHECK(fullest.ends == 1);
  CHECK(other.ends == 0);
  CHECK(all.bytes() == 200);
}

TEST_CASE("unread streams: many small ones end at once") {
  UnreadStreams all;
  std::array<FilledStream, 1'001> streams;
  for (FilledStream& stream : streams) all.Set(&stream, 1, 1'000);
  int ended = 0;
  for (const FilledStream& stream : streams) ended += stream.ends;
  CHECK(ended == 126);
  CHECK(all.bytes() == 875);
}

}  // namespace semaphored
