#include "client/semaphore/lease_keeper.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;

// So many that what is vouched for outlasts an outage of two thirds of it, with time to spare for
// a holder that wants to stop its work first.
constexpr int kPingsInPace = 8;
constexpr milliseconds kBackoffFirst(50);
constexpr milliseconds kBackoffMost(2'000);
// However little a daemon vouches for, pings go as if it were this.
constexpr milliseconds kVouchedLeast{300};
// For one endpoint to answer `open`, before the next one is tried: between these, a quarter of the
// TTL.
constexpr milliseconds kOpenTimeoutLeast(500);
constexpr milliseconds kOpenTimeoutMost(3'000);
// Taken for the TTL until the daemon has reported it.
constexpr milliseconds kTtlAssumed(30'000);

LossCause CauseOf(v1::EndCause cause) {
  switch (cause) {
    case v1::END_CAUSE_EXPIRED:
      return LossCause::kExpired;
    case v1::END_CAUSE_RELEASED:  // by another client that knew the lease id
    case v1::END_CAUSE_REVOKED:
      return LossCause::kRevoked;
    case v1::END_CAUSE_RECALLED:
      return LossCause::kRecalled;
    case v1::END_CAUSE_DESTROYED:
      return LossCause::kDestroyed;
    case v1::END_CAUSE_DISCONNECTED:
      return LossCause::kDisconnected;
    case v1::END_CAUSE_ENGINE_LOST:
      return LossCause::kEngineLost;
    case v1::END_CAUSE_MOVED:
      return LossCause::kMoved;
    default:
      return LossCause::kUnknown;
  }
}

}  // namespace

bool EndsGivingBack(const absl::Status& answer) {
  return answer.ok() || absl::IsNotFound(answer) || absl::IsInvalidArgument(answer) ||
         absl::IsPermissionDenied(answer);
}

LeaseKeeper::LeaseKeeper(std::size_t endpoints, milliseconds ttl, milliseconds margin)
    : endpoints_(endpoints),
      margin_(margin),
      recalls_(margin),
      backoff_(kBackoffFirst, kBackoffMost),
      ttl_(ttl > milliseconds(0) ? ttl : kTtlAssumed) {}

// ---- the stream ----

void LeaseKeeper::Want(TimePoint now) {
  if (phase_ != Phase::kIdle) return;
  phase_ = Phase::kWaiting;
  connect_at_ = now;
  silent_since_ = now;
}

bool LeaseKeeper::StartConnecting(std::size_t* endpoint, TimePoint now) {
  if (phase_ != Phase::kWaiting || now < connect_at_) return false;
  phase_ = Phase::kOpening;
  recalls_.BeginStream();
  *endpoint = endpoint_;
  open_sent_at_ = kNever;
  AwaitOpened(now);
  return true;
}

// Gives the daemon its time for `opened`, or for the next page of it.
void LeaseKeeper::AwaitOpened(TimePoint now) {
  open_deadline_ = now + std::clamp(ttl_ / 4, kOpenTimeoutLeast, kOpenTimeoutMost);
}

void LeaseKeeper::OnOpenSent(TimePoint now) {
  listed_.clear();
  listed_recalls_.clear();
  open_sent_at_ = now;
  pings_.AwaitNone();
}

LeaseKeeper::Opening LeaseKeeper::OnOpened(const v1::SessionOpened& opened, TimePoint now) {
  if (!session_id_.empty() && !opened.resumed()) return Opening::kAnother;
  for (const v1::Lease& lease : opened.leases()) {
    listed_.insert(lease.lease_id());
    if (lease.has_recall()) listed_recalls_.emplace_back(lease.lease_id(), lease.recall());
  }
  if (opened.more()) {
    AwaitOpened(now);
    return Opening::kMore;
  }
  if (opened.validity().epoch() < epoch_) return Opening::kOvertaken;
  if (opened.resumed()) DropLeasesNotListed();
  for (const auto& [lease_id, recall] : std::exchange(listed_recalls_, {}))
    OnRecall(lease_id, recall);
  if (deadline_ == nullptr) deadline_ = std::make_shared<SharedDeadline>(open_sent_at_);
  Extend(opened.validity(), open_sent_at_);
  phase_ = Phase::kOpen;
  ever_open_ = true;
  attempts_in_round_ = 0;
  backoff_.Reset();
  session_id_ = opened.session_id();
  if (opened.ttl_ms() > 0) ttl_ = milliseconds(opened.ttl_ms());
  backoff_.set_most(std::max(kBackoffFirst, std::min(kBackoffMost, ttl_ / 8)));
  pings_.DueAt(open_sent_at_ + PingPause());
  return Opening::kOpened;
}

void LeaseKeeper::DropLeasesNotListed() {
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (listed_.erase(lease->first) > 0) {
      ++lease;
      continue;
    }
    Lose(lease->second, LossCause::kUnknown,
         "the daemon does not list it after the session was resumed");
    Drop(std::move(lease->second));
    lease = leases_.erase(lease);
  }
}

// `lease` may be null.
void LeaseKeeper::Drop(LeasePtr lease) {
  if (lease != nullptr && lease->HasCallbacks()) dropped_.push_back(std::move(lease));
}

bool LeaseKeeper::Disconnect(const absl::Status& why, TimePoint now) {
  if (phase_ == Phase::kOpen) {
    silent_since_ = now;
    attempts_in_round_ = 0;
  }
  last_error_ = why;
  recalls_.EndStream();
  pings_.DueAt(kNever);
  endpoint_ = (endpoint_ + 1) % endpoints_;
  connect_at_ = now;
  phase_ = Phase::kWaiting;
  if (++attempts_in_round_ < endpoints_) return false;
  attempts_in_round_ = 0;
  connect_at_ += backoff_.Next();
  return true;
}

void LeaseKeeper::StayHere(TimePoint now) {
  endpoint_ = (endpoint_ + endpoints_ - 1) % endpoints_;
  connect_at_ = now;
}

// ---- messages ----

void LeaseKeeper::OnPong(const v1::SessionPong& pong) {
  const TimePoint sent = pings_.SentAt(pong.ping_id());
  if (!pings_.Awaits(pong.ping_id()) || sent == kNever || !Extend(pong.validity(), sent)) return;
  // It may vouch for less than before: then the next is due sooner.
  pings_.DueAt(std::min(pings_.due(), sent + PingPause()));
  pings_.Answered(pong.ping_id());
}

void LeaseKeeper::OnEvent(const v1::SessionEvent& event) {
  if (event.has_recalled()) return OnRecall(event.recalled().lease_id(), event.recalled().recall());
  if (!event.has_lost()) return;
  const LeasePtr lease = Find(event.lost().lease_id());
  Forget(event.lost().lease_id());
  if (lease == nullptr) return;
  const LossCause cause = CauseOf(event.lost().cause());
  Lose(lease, cause, absl::StrCat("the daemon says: ", ToString(cause)));
}

TimePoint LeaseKeeper::SentAt(std::uint64_t ping_id) const {
  if (ping_id == 0) return open_sent_at_;
  const TimePoint sent = pings_.SentAt(ping_id);
  if (sent != kNever) return sent;
  return std::min(open_sent_at_, pings_.Oldest());
}

void LeaseKeeper::OnRecall(const std::string& lease_id, const v1::LeaseRecall& recall) {
  LeaseRecalls::Sent sent{recall, SentAt(recall.after_ping_id())};
  if (const LeasePtr lease = Find(lease_id)) return recalls_.Add(lease, sent);
  recalls_.AddEarly(lease_id, std::move(sent));
}

void LeaseKeeper::Acknowledge(const Recalled& recalled) {
  if (phase_ == Phase::kOpen && Find(recalled.lease->lease_id) == recalled.lease)
    recalls_.Acknowledge(recalled);
}

// ---- leases ----

LeaseKeeper::LeasePtr LeaseKeeper::MakeLease(const v1::Lease& granted) const {
  auto lease = std::make_shared<LeaseState>(granted.semaphore(), granted.lease_id(),
                                            SlotsOf(granted.slots()), granted.token(), deadline_);
  lease->ttl = ttl_;
  return lease;
}

void LeaseKeeper::Keep(const LeasePtr& lease, const v1::Lease& granted) {
  Drop(std::exchange(leases_[lease->lease_id], lease));
  deadline_told_ = false;
  // Up to the next answer it is good for no longer than those that were recalled.
  if (shortened_) pings_.Want();
  const std::optional<LeaseRecalls::Sent> early = recalls_.TakeEarly(lease->lease_id);
  if (granted.has_recall()) {
    recalls_.Add(lease, {granted.recall(), SentAt(granted.recall().after_ping_id())});
  } else if (early.has_value()) {
    recalls_.Add(lease, *early);
  }
}

void LeaseKeeper::Forget(const std::string& lease_id) {
  Drop(Find(lease_id));
  // The next lease is good for longer.
  if (leases_.erase(lease_id) > 0 && leases_.empty() && shortened_) pings_.Want();
  recalls_.TakeEarly(lease_id);
}

LeaseKeeper::LeasePtr LeaseKeeper::Find(const std::string& lease_id) const {
  const auto found = leases_.find(lease_id);
  return found == leases_.end() ? nullptr : found->second;
}

bool LeaseKeeper::has_good() const {
  return std::ranges::any_of(leases_, [](const auto& entry) { return !entry.second->lost.load(); });
}

void LeaseKeeper::Lose(const LeasePtr& lease, LossCause cause, std::string message) {
  if (lease->MarkLost(cause, std::move(message))) lost_.push_back(lease);
}

void LeaseKeeper::LoseSession(TimePoint now) {
  for (auto& [id, lease] : leases_) {
    Lose(lease, LossCause::kExpired, "its session expired at the daemon");
    Drop(std::move(lease));
  }
  leases_.clear();
  ForgetSession();
  silent_since_ = now;
}

void LeaseKeeper::ForgetSession() {
  session_id_.clear();
  epoch_ = 0;
  deadline_ = nullptr;
  deadline_told_ = true;
}

// ---- time ----

// Counts an answer to what was sent at `sent`. False if it comes from a daemon that has been
// overtaken by another one.
bool LeaseKeeper::Extend(const v1::LeaseValidity& validity, TimePoint sent) {
  if (validity.epoch() < epoch_) return false;
  epoch_ = validity.epoch();
  const milliseconds vouched = std::max(milliseconds(validity.valid_for_ms()), kVouchedLeast);
  shortened_ = vouched < vouched_ && AllRecalled();
  if (!shortened_) vouched_ = vouched;
  const TimePoint good_until = GoodUntil(sent + milliseconds(validity.elapsed_ms()),
                                         milliseconds(validity.valid_for_ms()), margin_);
  // A later answer does not take an earlier promise back; the daemon reports what has ended by an event.
  if (good_until > deadline_->get()) deadline_->set(good_until);
  return true;
}

// Then the daemon vouches for less, but pings need not go faster for that.
bool LeaseKeeper::AllRecalled() const {
  return !leases_.empty() && std::all_of(leases_.begin(), leases_.end(), [](const auto& entry) {
    return entry.second->recall_deadline.get() != kNever;
  });
}

// Pings go by what the daemon vouches for: with a long TTL, on an engine that daemons share, that
// is less than the TTL.
milliseconds LeaseKeeper::Pace() const {
  return vouched_ > milliseconds(0) ? std::min(ttl_, vouched_) : ttl_;
}

milliseconds LeaseKeeper::PingPause() const { return Pace() / kPingsInPace; }

// When a stream that says nothing counts as broken: a quarter of the time that is vouched for after
// a ping was sent, or should have been.
TimePoint LeaseKeeper::ContactDeadline() const {
  if (phase_ != Phase::kOpen) return kNever;
  const TimePoint unanswered = pings_.AwaitedSince();
  return (unanswered == kNever ? pings_.due() : unanswered) + Pace() / 4;
}

absl::Status LeaseKeeper::Tick(TimePoint now) {
  // A recall first: it is the reason, if the session was vouched for no longer because of it.
  while (std::optional<LeasePtr> over = recalls_.TakeOver(now)) {
    LeasePtr lease = *std::move(over);
    if (lease != nullptr && Find(lease->lease_id) == lease)  // Not given back since.
      Lose(lease, LossCause::kRecalled, "its grace after a recall has passed");
    Drop(std::move(lease));
  }
  if (!deadline_told_ && now >= deadline_->get()) {
    deadline_told_ = true;
    for (const auto& [id, lease] : leases_)
      Lose(lease, LossCause::kNoContact, "no daemon vouched for it up to its deadline");
  }
  if (phase_ == Phase::kOpening && now >= open_deadline_)
    return absl::UnavailableError("no answer in time");
  if (now >= ContactDeadline()) return absl::UnavailableError("the connection has gone silent");
  return absl::OkStatus();
}

TimePoint LeaseKeeper::NextDue(bool can_send) const {
  TimePoint due = kNever;
  if (!deadline_told_ && !leases_.empty()) due = std::min(due, deadline_->get());
  due = std::min(due, recalls_.NextOver());
  switch (phase_) {
    case Phase::kOpen:
      if (can_send)
        due = std::min(due, recalls_.has_acknowledgements() ? TimePoint() : pings_.due());
      return std::min(due, ContactDeadline());
    case Phase::kOpening:
      return std::min(due, open_deadline_);
    case Phase::kWaiting:
      return std::min(due, connect_at_);
    case Phase::kIdle:
    case Phase::kOver:
      return due;
  }
  return due;
}

}  // namespace semaphore
