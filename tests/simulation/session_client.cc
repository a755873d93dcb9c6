#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/clients.h"

namespace semaphored::simulation {
namespace {
constexpr size_t kRequestsMax = 4;
constexpr size_t kCrowd = 250;
constexpr int kAtOnce = 40;
}  // namespace

void SessionClient::Act() {
  if (around_->winding_down && requests_.empty()) {
    Close();
  } else if (!around_->winding_down && crowd_ && requests_.size() < kCrowd) {
    for (int i = 0; i < kAtOnce; ++i) NewRequest();
  } else if (!around_->winding_down && !crowd_ && requests_.size() < kRequestsMax &&
             random().Chance(0.7)) {
    NewRequest();
  } else if (random().Chance(0.02)) {
    Close();
  }
}

void SessionClient::Keep(const std::vector<Id>& claims) {
  std::vector<uint64_t> lost;
  for (auto& [sequence, request] : requests_) {
    const bool stands = std::ranges::count(claims, request.claim) > 0;
    if (request.stage == Request::Stage::kHolding && !stands) lost.push_back(sequence);
  }
  for (uint64_t sequence : lost) Drop(sequence);
  unclaimed_ = {claims.begin(), claims.end()};
  claimants_.clear();
  for (const auto& [sequence, request] : requests_) {
    unclaimed_.erase(request.claim);
    if (request.stage == Request::Stage::kAsking) claimants_.insert(sequence);
  }
  GiveBackUnclaimed();
}

void SessionClient::Forget() {
  requests_.clear();
  unclaimed_.clear();
  claimants_.clear();
}

void SessionClient::IsAnswered(uint64_t sequence, const Id& claim) {
  unclaimed_.erase(claim);
  if (claimants_.erase(sequence) > 0) GiveBackUnclaimed();
}

// As the clients of the packages do: what was lost by an earlier list, or granted unheard, would stand as long as the
// session.
void SessionClient::GiveBackUnclaimed() {
  if (!claimants_.empty()) return;
  for (const Id& claim : std::exchange(unclaimed_, {})) {
    for (const auto& [name, semaphore] : around_->engine->semaphores()) {
      if (!semaphore.leases.contains(claim)) continue;
      const uint64_t sequence = ++sequence_;
      Request& request = requests_[sequence];
      request.stage = Request::Stage::kReleasing;
      request.claim = claim;
      request.release.requester = {client_id_, sequence};
      request.release.semaphore = name;
      request.release.claim = claim;
      if (open_here()) SendRequest(sequence);
    }
  }
}

// ---- requests ----

void SessionClient::NewRequest() {
  const uint64_t sequence = ++sequence_;
  Request& request = requests_[sequence];
  request.params = RandomAcquire(*around_, client_id_, sequence);
  if (crowd_) request.params.wait_ms = random().Between(0, 15'000);
  request.asked_at_us = world().now();
  checks().Wants(client_id_, sequence, ttl_ms());
  SendRequest(sequence);
  if (!random().Chance(0.15)) return;
  world().After(random().Between(1, 3000) * kMillisecond,
                [self = shared_from_this(), this, sequence, id = client_id_] {
                  const auto found = requests_.find(sequence);
                  if (id != client_id_ || found == requests_.end() ||
                      found->second.stage != Request::Stage::kAsking)
                    return;
                  found->second.cancelled = true;
                  Send([sequence](Connection& c, uint64_t) { c.CancelIn(sequence); });
                });
}

void SessionClient::SendRequest(uint64_t sequence) {
  const Request& request = requests_.at(sequence);
  if (request.stage == Request::Stage::kAsking) {
    SendWith(sequence,
             [params = request.params](Connection& c, uint64_t tag) { c.AcquireIn(tag, params); });
    if (request.cancelled) Send([sequence](Connection& c, uint64_t) { c.CancelIn(sequence); });
  } else if (request.stage == Request::Stage::kReleasing) {
    const uint64_t tag = request.release.requester.sequence;
    SendWith(tag,
             [release = request.release](Connection& c, uint64_t t) { c.ReleaseIn(t, release); });
  }
}

void SessionClient::SendAgain() {
  for (const auto& [sequence, request] : requests_) SendRequest(sequence);
}

void SessionClient::OnGranted(const Reply& reply) {
  IsAnswered(reply.tag, reply.claim);
  const auto found = requests_.find(reply.tag);
  if (found == requests_.end() || found->second.stage != Request::Stage::kAsking) return;
  Request& request = found->second;
  request.stage = Request::Stage::kHolding;
  request.claim = reply.claim;
  Belief belief{reply.semaphore, reply.slots, reply.token, deadline_us(), 0};
  checks().WasGranted(client_id_, reply.tag, reply.claim, belief);
  for (const RecallNotice& recall : reply.recalls) BoundByRecall(reply, recall, &belief);
  if (!closing()) beliefs_[reply.claim] = belief;
  Trace(absl::StrCat("holds ", reply.claim.Hex().substr(0, 6), " of ", reply.semaphore, ", token ",
                     reply.token));
  const uint64_t sequence = reply.tag;
  world().After(random().Between(1, crowd_ ? 300 : 6000) * kMillisecond,
                [self = shared_from_this(), this, sequence, id = client_id_] {
                  if (id == client_id_) StartRelease(sequence);
                });
}

void SessionClient::StartRelease(uint64_t sequence) {
  const auto found = requests_.find(sequence);
  if (found == requests_.end() || found->second.stage != Request::Stage::kHolding) return;
  Request& request = found->second;
  request.stage = Request::Stage::kReleasing;
  beliefs_.erase(request.claim);
  request.release.requester = {client_id_, ++sequence_};
  request.release.semaphore = request.params.semaphore;
  request.release.claim = request.claim;
  SendRequest(sequence);
}

std::map<uint64_t, SessionClient::Request>::iterator SessionClient::Find(uint64_t tag) {
  return std::ranges::find_if(requests_, [&](const auto& entry) {
    return entry.first == tag || entry.second.release.requester.sequence == tag;
  });
}

void SessionClient::Drop(uint64_t sequence) {
  const auto found = requests_.find(sequence);
  if (found == requests_.end()) return;
  Trace(absl::StrCat("is done with request ", sequence));
  IsAnswered(sequence, found->second.claim);
  beliefs_.erase(found->second.claim);
  checks().WantsNoMore(client_id_, sequence);
  requests_.erase(found);
}

void SessionClient::Handle(const Reply& reply) {
  if (HandleSession(reply)) return;
  const auto found = Find(reply.tag);
  switch (reply.kind) {
    case Reply::Kind::kGranted:
      return OnGranted(reply);
    case Reply::Kind::kQueued:
      return IsAnswered(reply.tag, reply.claim);
    case Reply::Kind::kRefused:
      if (found == requests_.end()) return;
      Trace(absl::StrCat("is refused: ", std::string(ReasonName(reply.reason)), ", request ",
                         found->first));
      if (IsForLater(reply) || (found->second.stage == Request::Stage::kReleasing &&
                                reply.reason == Reason::kLimitReached)) {
        world().After(random().Between(20, 500) * kMillisecond,
                      [self = shared_from_this(), this, sequence = found->first, id = client_id_] {
                        if (id == client_id_ && requests_.contains(sequence) && open_here())
                          SendRequest(sequence);
                      });
        return;
      }
      // Nothing was done: the release is sent again, with a number within the window.
      if (found->second.stage == Request::Stage::kReleasing &&
          reply.reason == Reason::kRequestTooOld) {
        found->second.release.requester.sequence = ++sequence_;
        return SendRequest(found->first);
      }
      if (reply.reason == Reason::kFull) {
        const Request& refused = found->second;
        checks().WasRefused(client_id_, refused.params.semaphore, refused.params.permits,
                            refused.asked_at_us);
      }
      return Drop(found->first);
    case Reply::Kind::kReleased:
      if (found == requests_.end()) return;
      if (reply.released > 0) {
        checks().counts().WasReleased(client_id_, found->second.release.requester.sequence,
                                      reply.released, reply.remaining);
      }
      return Drop(found->first);
    case Reply::Kind::kEnded: {
      const auto ended = std::ranges::find_if(
          requests_, [&](const auto& entry) { return entry.second.claim == reply.claim; });
      if (ended != requests_.end() && ended->second.stage == Request::Stage::kHolding)
        Drop(ended->first);
      return;
    }
    default:
      return;
  }
}

}  // namespace semaphored::simulation
