#include "server/sessions/session_ends.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace semaphored {

void SessionEnds::Submit(std::vector<EndCommand> ends, Done done) {
  if (ends.empty()) return done();
  struct Batch {
    size_t left;
    Done done;
  };
  auto batch = std::make_shared<Batch>(Batch{ends.size(), std::move(done)});
  for (EndCommand& end : ends) {
    const std::string semaphore = end.semaphore;
    host_->SubmitAt(semaphore, std::move(end), [batch](const absl::StatusOr<Outcome>&) {
      if (--batch->left == 0) batch->done();
    });
  }
}

void SessionEnds::SubmitInPages(Ending ending) {
  const SessionRecord* session = sessions_->Find(ending.session);
  if (session == nullptr || session->life.epoch != ending.epoch) return ending.done();
  std::vector<EndCommand> page;
  while (page.size() < kAtOnce && ending.submitted < ending.claims.size()) {
    const ClaimRecord* claim = claims_->Find(ending.claims[ending.submitted++]);
    if (claim != nullptr && claim->session == session)
      page.push_back(EndWithSession(*claim, ending.cause));
  }
  if (page.empty()) return ending.done();
  Submit(std::move(page),
         [this, ending = std::move(ending)]() mutable { SubmitInPages(std::move(ending)); });
}

std::vector<EndCommand> SessionEnds::OfAsked(const SessionRecord& session, EndCause cause) const {
  std::vector<EndCommand> ends;
  for (const Id& id : session.claims) {
    const ClaimRecord* claim = claims_->Find(id);
    const bool asked = claim != nullptr && claim->state == ClaimRecord::State::kAsked;
    if (asked && claim->remembered && !claim->offers) ends.push_back(EndWithSession(*claim, cause));
  }
  return ends;
}

std::vector<EndCommand> SessionEnds::OfUnmoved(const SessionRecord& session, EndCause cause) const {
  std::vector<EndCommand> ends;
  for (const Id& id : session.claims) {
    const ClaimRecord* claim = claims_->Find(id);
    if (claim != nullptr && claim->move == nullptr) ends.push_back(EndWithSession(*claim, cause));
  }
  return ends;
}

std::vector<Id> SessionEnds::InOrder(const SessionRecord& session, size_t lane_left_out) const {
  const bool many = session.claims.size() > kAtOnce;
  std::vector<std::pair<uint64_t, Id>> by_token;
  for (const Id& id : session.claims) {
    const ClaimRecord* claim = claims_->Find(id);
    if (claim == nullptr) continue;
    if (!many && LaneOf(claim->semaphore, host_->lane_count()) == lane_left_out) continue;
    by_token.emplace_back(claim->has_lease() ? claim->lease->token : 0, id);
  }
  std::ranges::sort(by_token);
  std::vector<Id> claims;
  claims.reserve(by_token.size());
  for (const auto& [token, id] : by_token) claims.push_back(id);
  return claims;
}

}  // namespace semaphored
