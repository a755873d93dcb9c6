#include "tests/simulation/impolite_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::simulation {
namespace {
constexpr size_t kRemembered = 6;
}  // namespace

void ImpoliteClient::Act() {
  NewStage();
  if (around_->winding_down) return Leave();
  if (!connected() || world().now() > leave_at_us_) {
    Leave();
    leave_at_us_ = world().now() + random().Between(1, 8) * kSecond;
    if (ConnectAnywhere() && random().Chance(0.6)) Open();
  } else {
    if (!session_.empty()) Send([](Connection& c, uint64_t tag) { c.Ping(tag); });
    const uint64_t choice = random().Below(100);
    if (choice < 65) {
      Ask();
    } else if (choice < 82) {
      Release();
    } else if (choice < 85) {
      Administer();
    } else if (choice < 93 && !session_.empty() && book_->sequence > 0) {
      const uint64_t sequence = 1 + random().Below(book_->sequence);
      Send([sequence](Connection& c, uint64_t) { c.CancelIn(sequence); });
    } else if (choice < 96) {
      Trace("begins again at 1");
      book_->sequence = 0;
    } else {
      leave_at_us_ = 0;
    }
  }
  Later(random().Between(1, 500) * kMillisecond, [this] { Act(); });
}

void ImpoliteClient::Open() {
  OpenParams params;
  params.client_id = client_id_;
  params.ttl_ms = random().Between(1500, 3000);
  params.holder = client_id_;
  Send([params](Connection& c, uint64_t tag) { c.Open(tag, params); });
}

AcquireParams ImpoliteClient::Repeated() {
  const uint64_t back = random().Below(std::min<uint64_t>(kRemembered, book_->asked.size()));
  auto at = std::prev(book_->asked.end());
  for (uint64_t i = 0; i < back; ++i) --at;
  if (random().Chance(0.6)) return at->second[random().Below(at->second.size())];
  AcquireParams other = RandomAcquire(*around_, client_id_, at->first);
  return other;
}

void ImpoliteClient::Ask() {
  AcquireParams params;
  if (!book_->asked.empty() && random().Chance(0.55)) {
    params = Repeated();
  } else {
    params = RandomAcquire(*around_, client_id_, ++book_->sequence);
    params.wait_ms = std::min<int64_t>(params.wait_ms, 4000);
    if (params.wait_ms < 0) params.wait_ms = 1000;
  }
  params.wait_ms = std::clamp<int64_t>(params.wait_ms, 0, 4000);
  const uint64_t sequence = params.requester.sequence;
  book_->asked[sequence].push_back(params);
  Trace(absl::StrCat("asks for ", params.permits, " of ", params.semaphore, ", request ", sequence,
                     session_.empty() ? "" : " in its session"));
  if (!session_.empty() && random().Chance(0.7)) {
    SendWith(sequence, [params](Connection& c, uint64_t tag) { c.AcquireIn(tag, params); });
    if (random().Chance(0.15)) Send([sequence](Connection& c, uint64_t) { c.CancelIn(sequence); });
  } else {
    calls_[Send([params](Connection& c, uint64_t tag) { c.Acquire(tag, params); })] = sequence;
  }
}

void ImpoliteClient::Release() {
  if (book_->granted.empty()) return;
  ReleaseCommand release;
  release.claim = book_->granted[random().Below(book_->granted.size())];
  release.semaphore = book_->semaphores.at(release.claim);
  // Now and then with the number of an acquire.
  const bool used = random().Chance(0.2) && book_->sequence > 0;
  release.requester = {client_id_, used ? 1 + random().Below(book_->sequence) : ++book_->sequence};
  book_->given_back.insert(release.claim);
  for (ImpoliteClient* each : book_->clients) each->beliefs_.erase(release.claim);
  Send([release](Connection& c, uint64_t tag) { c.Release(tag, release); });
}

// Of those that do no harm when they land late. What they concern is not predicted.
void ImpoliteClient::Administer() {
  AdminCommand command;
  const bool used = random().Chance(0.7) && book_->sequence > 0;
  command.requester = {client_id_, used ? 1 + random().Below(book_->sequence) : ++book_->sequence};
  command.semaphore = absl::StrCat("s", random().Below(static_cast<uint64_t>(around_->semaphores)));
  const uint64_t choice = random().Below(6);
  if (choice == 0) command.act = AdminCreate{4, {}};
  if (choice == 1) {
    AdminResize resize;
    resize.amount = 4;
    resize.limit_max = 8;
    resize.policy = static_cast<ShrinkPolicy>(random().Below(3));
    command.act = resize;
  }
  if (choice == 2) command.act = AdminPause{false};
  if (choice == 3) command.act = AdminConfigure{};
  if (choice == 4) command.act = AdminRevoke{{}, random().Chance(0.5) ? client_id_ : "", 500};
  if (choice == 5) command.act = AdminPrune{};
  Trace(absl::StrCat("does act ", command.act.index(), " on ", command.semaphore, ", request ",
                     command.requester.sequence));
  Send([command](Connection& c, uint64_t tag) { c.Administer(tag, command); });
}

void ImpoliteClient::Leave() {
  Disconnect();
  session_ = Id{};
  calls_.clear();
  of_session_.clear();
  epoch_ = 0;
  deadline_us_ = 0;
}

void ImpoliteClient::OnGranted(const Reply& reply) {
  const auto call = calls_.find(reply.tag);
  const uint64_t sequence = call == calls_.end() ? reply.tag : call->second;
  const std::vector<AcquireParams>& asked = book_->asked[sequence];
  const bool as_asked = std::ranges::any_of(asked, [&](const AcquireParams& params) {
    return params.semaphore == reply.semaphore && params.permits == reply.slots.size();
  });
  if (!as_asked) {
    // Some of it may have been given back since.
    const bool some = std::ranges::any_of(asked, [&](const AcquireParams& params) {
      return params.semaphore == reply.semaphore && params.permits > reply.slots.size();
    });
    if (!some)
      throw Violation{absl::StrCat(client_id_, " was granted ", reply.slots.size(), " of ",
                                   reply.semaphore, " for request ", sequence,
                                   ", which asked for something else")};
  }
  book_->granted.push_back(reply.claim);
  if (book_->granted.size() > kRemembered) book_->granted.erase(book_->granted.begin());
  book_->semaphores[reply.claim] = reply.semaphore;
  Trace(absl::StrCat("holds ", reply.claim.Hex().substr(0, 6), " of ", reply.semaphore));
  // A lease beside a session it does not count on: it may be asked for from two places at once.
  if (call != calls_.end() || book_->given_back.contains(reply.claim)) return;
  Belief& belief = beliefs_[reply.claim];
  belief = {reply.semaphore, reply.slots, reply.token, deadline_us_, 0};
  for (const RecallNotice& recall : reply.recalls) BoundByRecall(reply, recall, &belief);
  of_session_.insert(reply.claim);
}

void ImpoliteClient::Prolong(const Reply& reply) {
  if (reply.epoch < epoch_) return;
  epoch_ = reply.epoch;
  deadline_us_ = std::max(deadline_us_, DeadlineUs(reply));
  for (const Id& claim : of_session_) {
    const auto found = beliefs_.find(claim);
    if (found != beliefs_.end())
      found->second.deadline_us = std::min(deadline_us_, found->second.recall_us);
  }
}

void ImpoliteClient::Handle(const Reply& reply) {
  switch (reply.kind) {
    case Reply::Kind::kOpened:
      session_ = reply.claim;
      return Prolong(reply);
    case Reply::Kind::kAlive:
      if (!session_.empty()) Prolong(reply);
      return;
    case Reply::Kind::kGranted:
      return OnGranted(reply);
    case Reply::Kind::kRecalled:
      // It keeps to the recall, and acknowledges what it likes.
      if (const auto belief = beliefs_.find(reply.claim); belief != beliefs_.end())
        BoundByRecall(reply, reply.recalls[0], &belief->second);
      Send([claim = reply.claim, recall = reply.recalls[0].id + random().Below(2)](
               Connection& c, uint64_t) { c.Acknowledge(claim, recall); });
      return;
    case Reply::Kind::kEnded:
      beliefs_.erase(reply.claim);
      of_session_.erase(reply.claim);
      return;
    case Reply::Kind::kSessionEnded:
      for (const Id& claim : of_session_) beliefs_.erase(claim);
      return Leave();
    default:
      return;
  }
}

}  // namespace semaphored::simulation
