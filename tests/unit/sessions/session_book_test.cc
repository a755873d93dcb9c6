#include "server/sessions/session_book.h"

#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

TEST_CASE("session book: a session is made once, and found by its stream", "[unit]") {
  SessionBook book;
  WorkerStream stream;
  SessionRecord* session = book.FindOrAdd(Id{1, 1});
  CHECK(session->id == Id{1, 1});
  CHECK(book.FindOrAdd(Id{1, 1}) == session);
  CHECK(book.FindOf(&stream) == nullptr);
  book.Listen(session, &stream);
  CHECK(session->listener == &stream);
  CHECK(book.FindOf(&stream) == session);
  CHECK(book.open() == 1);
  CHECK(book.listeners() == std::vector<SessionListener*>{&stream});
  book.StopListening(session);
  CHECK(session->listener == nullptr);
  CHECK_FALSE(book.Listens(&stream));
  book.StopListening(session);
  book.Erase(Id{1, 1});
  CHECK(book.Find(Id{1, 1}) == nullptr);
  CHECK(book.records().empty());
}

TEST_CASE("session book: a stream waits for the session that it asked for last", "[unit]") {
  SessionBook book;
  WorkerStream stream;
  WorkerStream gone;
  book.BeginOpening(&stream, Id{1, 1});
  book.BeginOpening(&stream, Id{1, 2});
  book.BeginOpening(&gone, Id{1, 3});
  CHECK_FALSE(book.EndOpening(&stream, Id{1, 1}));
  book.ForgetOpening(&gone);
  CHECK_FALSE(book.EndOpening(&gone, Id{1, 3}));
  CHECK(book.EndOpening(&stream, Id{1, 2}));
  CHECK_FALSE(book.EndOpening(&stream, Id{1, 2}));
  book.BeginOpening(&stream, Id{1, 1});
  CHECK(book.TakeOpening() == std::vector<SessionListener*>{&stream});
  CHECK(book.TakeOpening().empty());
}

}  // namespace
}  // namespace semaphored
