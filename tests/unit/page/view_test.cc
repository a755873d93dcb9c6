#include "server/page/view.h"

#include <catch2/catch_test_macros.hpp>

namespace semaphored::page {
namespace {

std::string WrongOf(const Parameters& parameters) {
  const auto parsed = ParseView(parameters);
  const auto* wrong = std::get_if<WrongParameter>(&parsed);
  return wrong == nullptr ? "" : wrong->name;
}

TEST_CASE("page view: a window of the list") {
  const auto parsed = ParseView({{"view", "list"},
                                 {"q", "CI/b"},
                                 {"sort", "oldest"},
                                 {"up", "1"},
                                 {"from", "300"},
                                 {"rows", "200"}});
  const View& view = std::get<View>(parsed);
  CHECK(view.kind == View::Kind::kList);
  CHECK(view.search == "ci/b");
  CHECK(view.sort == View::Sort::kOldest);
  CHECK(view.ascending);
  CHECK(view.from == 300);
  CHECK(view.rows == 200);
  CHECK(std::get<View>(ParseView({})).rows == 100);
}

TEST_CASE("page view: a semaphore with the states of its tickets, each once") {
  const auto parsed = ParseView({{"view", "semaphore"}, {"name", "a/b"}, {"tickets", "4144"}});
  const View& view = std::get<View>(parsed);
  CHECK(view.name == "a/b");
  CHECK(view.tickets == std::vector<TicketState>{TicketState::kQueued, TicketState::kDead});
}

TEST_CASE("page view: what is wrong is named") {
  CHECK(WrongOf({{"view", "other"}}) == "view");
  CHECK(WrongOf({{"sort", "size"}}) == "sort");
  CHECK(WrongOf({{"rows", "201"}}) == "rows");
  CHECK(WrongOf({{"rows", ""}}) == "rows");
  CHECK(WrongOf({{"from", "-1"}}) == "from");
  CHECK(WrongOf({{"from", "99999999999999"}}) == "from");
  CHECK(WrongOf({{"q", std::string(256, 'a')}}) == "q");
  CHECK(WrongOf({{"view", "semaphore"}}) == "name");
  CHECK(WrongOf({{"view", "semaphore"}, {"name", "../a"}}) == "name");
  CHECK(WrongOf({{"view", "semaphore"}, {"name", "a"}, {"tickets", "0"}}) == "tickets");
}

}  // namespace
}  // namespace semaphored::page
