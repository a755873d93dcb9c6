#include "client/semctl/work_machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/lease_state.h"
#include "client/semaphore/status_conversion.h"
#include "client/semctl/wording.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBackoffFirst(50);
constexpr milliseconds kBackoffMost(2'000);
constexpr milliseconds kOpenTimeoutLeast(500);
constexpr milliseconds kOpenTimeoutMost(3'000);
constexpr milliseconds kVouchedLeast(300);
constexpr milliseconds kTtlAssumed(30'000);
constexpr milliseconds kAnswerAgain(500);
constexpr int kAnswersPerMessage = 500;

// Errors that another attempt, or another endpoint, would not mend.
bool IsFinal(absl::StatusCode code) {
  return code == absl::StatusCode::kInvalidArgument ||
         code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kPermissionDenied ||
         code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kUnimplemented ||
         code == absl::StatusCode::kResourceExhausted;
}

}  // namespace

WorkMachine::WorkMachine(WorkOptions options, std::function<std::string()> make_client_id,
                         WorkListener* listener, TimePoint now)
    : options_(std::move(options)),
      make_client_id_(std::move(make_client_id)),
      listener_(listener),
      backoff_(kBackoffFirst, kBackoffMost),
      connect_at_(now),
      silent_since_(now),
      ttl_(options_.ttl > milliseconds(0) ? options_.ttl : kTtlAssumed),
      tickets_max_(options_.tickets_max) {}

// ---- the worker ----

void WorkMachine::Finish(v1::FinishTicket finish) {
  const std::uint64_t sequence = next_sequence_++;
  finish.set_sequence(sequence);
  Answer& answer = answers_[sequence];
  answer.finish = std::move(finish);
}

void WorkMachine::SetTicketsMax(std::uint32_t tickets_max) {
  tickets_max_ = tickets_max;
  tickets_max_said_ = false;
}

// ---- connecting ----

bool WorkMachine::StartConnecting(std::size_t* endpoint, TimePoint now) {
  if (phase_ != Phase::kWaiting || now < connect_at_) return false;
  phase_ = Phase::kOpening;
  *endpoint = endpoint_;
  open_sent_at_ = kNever;
  open_deadline_ = now + std::clamp(ttl_ / 4, kOpenTimeoutLeast, kOpenTimeoutMost);
  return true;
}

void WorkMachine::FillOpen(v1::OpenWork* open) {
  if (session_id_.empty()) {
    client_id_ = make_client_id_();
    next_sequence_ = 1;
    epoch_ = 0;
  }
  open->set_client_id(client_id_);
  open->set_ttl_ms(options_.ttl.count());
  open->set_resume_session_id(session_id_);
  open->set_holder(options_.holder);
  open->mutable_semaphores()->Add(options_.semaphores.begin(), options_.semaphores.end());
  open->mutable_prefixes()->Add(options_.prefixes.begin(), options_.prefixes.end());
  // At least one in `open`; none is said after it.
  open->set_tickets_max(std::max(tickets_max_, 1u));
  tickets_max_said_ = tickets_max_ > 0;
}

void WorkMachine::Disconnect(const absl::Status& why, TimePoint now) {
  if (phase_ == Phase::kOpen) {
    silent_since_ = now;
    attempts_ = 0;
  }
  status_ = why;
  pings_.clear();
  ping_due_ = kNever;
  endpoint_ = (endpoint_ + 1) % options_.endpoints;
  connect_at_ = now;
  if (++attempts_ >= options_.endpoints) {
    attempts_ = 0;
    connect_at_ += backoff_.Next();
  }
  phase_ = Phase::kWaiting;
}

void WorkMachine::Drop(const absl::Status& why, TimePoint now) {
  drop_ = true;
  Disconnect(why, now);
}

void WorkMachine::End(absl::Status status) {
  if (phase_ == Phase::kOpening || phase_ == Phase::kOpen) drop_ = true;
  phase_ = Phase::kOver;
  status_ = std::move(status);
}

void WorkMachine::OnStreamEnd(const absl::Status& status, TimePoint now) {
  if (phase_ != Phase::kOpening && phase_ != Phase::kOpen) return;
  if (close_sent_ && status.ok()) {
    phase_ = Phase::kOver;
    status_ = absl::OkStatus();
    return;
  }
  const bool session_is_gone = !session_id_.empty() && status.code() == absl::StatusCode::kNotFound;
  if (session_is_gone) LoseSession();
  if (IsFinal(status.code()) && held_.empty()) return End(status);
  Disconnect(status.ok() ? absl::UnavailableError("the daemon ended the stream") : status, now);
  drop_ = false;
  if (close_sent_ && session_is_gone) End(absl::OkStatus());
}

// ---- messages ----

bool WorkMachine::NextMessage(v1::WorkRequest* message, TimePoint now) {
  message->Clear();
  if (phase_ == Phase::kOpening && open_sent_at_ == kNever) {
    FillOpen(message->mutable_open());
    open_sent_at_ = now;
    return true;
  }
  if (phase_ != Phase::kOpen || close_sent_) return false;
  if (!tickets_max_said_) message->set_tickets_max(tickets_max_);
  tickets_max_said_ = true;
  for (auto& [sequence, answer] : answers_) {
    if (message->finished_size() >= kAnswersPerMessage) break;
    if (answer.sent || answer.not_before > now) continue;
    answer.sent = true;
    *message->add_finished() = answer.finish;
  }
  if (closing_ && answers_.empty()) {
    close_sent_ = true;
    message->set_close(true);
  }
  if (now >= ping_due_) {
    message->mutable_ping()->set_ping_id(++last_ping_id_);
    pings_.emplace_back(last_ping_id_, now);
    ping_due_ = now + Pace() / 3;
  }
  return message->has_tickets_max() || message->finished_size() > 0 || message->has_ping() ||
         message->close();
}

void WorkMachine::OnMessage(const v1::WorkResponse& message, TimePoint now) {
  Tick(now);
  if (phase_ == Phase::kOpening && message.has_opened()) OnOpened(message.opened(), now);
  if (phase_ != Phase::kOpen) return;
  if (message.has_pong()) OnPong(message.pong());
  for (const v1::FinishTicketResult& result : message.results()) OnResult(result, now);
  for (const v1::TicketAssignment& assignment : message.assignments()) OnAssignment(assignment);
  for (const v1::SessionEvent& event : message.events()) OnEvent(event);
}

void WorkMachine::OnOpened(const v1::SessionOpened& opened, TimePoint now) {
  if (!session_id_.empty() && !opened.resumed()) {
    LoseSession();
    return Drop(absl::InternalError("the daemon opened another session than the one to resume"),
                now);
  }
  if (!Extend(opened.validity(), open_sent_at_))
    return Drop(absl::UnavailableError("this daemon does not host the session any more"), now);
  phase_ = Phase::kOpen;
  ever_open_ = true;
  attempts_ = 0;
  backoff_.Reset();
  session_id_ = opened.session_id();
  if (opened.ttl_ms() > 0) ttl_ = milliseconds(opened.ttl_ms());
  backoff_.set_most(std::max(kBackoffFirst, std::min(kBackoffMost, ttl_ / 8)));
  ping_due_ = open_sent_at_ + Pace() / 3;
  for (auto& [sequence, answer] : answers_) answer.sent = false;
  std::set<std::string> listed;
  for (const v1::Lease& lease : opened.leases()) listed.insert(lease.lease_id());
  for (const auto& [sequence, answer] : answers_) listed.insert(answer.finish.lease_id());
  const std::map<std::string, bool> held = held_;
  for (const auto& [lease_id, told] : held) {
    if (listed.contains(lease_id)) continue;
    Lose(lease_id, "the daemon does not list it after the session was resumed");
    held_.erase(lease_id);
  }
}

void WorkMachine::OnAssignment(const v1::TicketAssignment& assignment) {
  const bool is_new = held_.emplace(assignment.lease().lease_id(), false).second;
  if (is_new) listener_->OnAssigned(assignment);
}

void WorkMachine::OnResult(const v1::FinishTicketResult& result, TimePoint now) {
  const auto found = answers_.find(result.sequence());
  if (found == answers_.end()) return;
  const absl::Status status = result.has_error() ? ToAbslStatus(result.error()) : absl::OkStatus();
  if (status.code() == absl::StatusCode::kUnavailable) {
    found->second.sent = false;
    found->second.not_before = now + kAnswerAgain;
    return;
  }
  const std::string lease_id = found->second.finish.lease_id();
  answers_.erase(found);
  held_.erase(lease_id);
  listener_->OnAnswered(lease_id, status, result.state());
}

void WorkMachine::OnEvent(const v1::SessionEvent& event) {
  if (event.has_lost()) {
    const std::string& lease_id = event.lost().lease_id();
    Lose(lease_id, absl::StrCat("the daemon says: ", Text(event.lost().cause())));
    held_.erase(lease_id);
  } else if (event.has_recalled() && held_.contains(event.recalled().lease_id())) {
    listener_->OnRecalled(event.recalled().lease_id(),
                          milliseconds(event.recalled().recall().grace_ms()),
                          event.recalled().recall().reason());
  }
}

void WorkMachine::OnPong(const v1::SessionPong& pong) {
  const auto sent = std::find_if(pings_.begin(), pings_.end(),
                                 [&](const auto& ping) { return ping.first == pong.ping_id(); });
  if (sent == pings_.end() || !Extend(pong.validity(), sent->second)) return;
  ping_due_ = std::min(ping_due_, sent->second + Pace() / 3);
  pings_.erase(pings_.begin(), sent + 1);
}

// ---- deadlines ----

bool WorkMachine::Extend(const v1::LeaseValidity& validity, TimePoint sent) {
  if (validity.epoch() < epoch_) return false;
  epoch_ = validity.epoch();
  vouched_ = std::max(milliseconds(validity.valid_for_ms()), kVouchedLeast);
  good_until_ =
      std::max(good_until_, GoodUntil(sent + milliseconds(validity.elapsed_ms()),
                                      milliseconds(validity.valid_for_ms()), options_.margin));
  return true;
}

void WorkMachine::Lose(const std::string& lease_id, const std::string& why) {
  const auto found = held_.find(lease_id);
  if (found == held_.end() || std::exchange(found->second, true)) return;
  listener_->OnLost(lease_id, why);
}

void WorkMachine::LoseSession() {
  const std::map<std::string, bool> held = held_;
  for (const auto& [lease_id, told] : held) Lose(lease_id, "its session expired at the daemon");
  held_.clear();
  answers_.clear();
  session_id_.clear();
  good_until_ = TimePoint::min();
}

milliseconds WorkMachine::Pace() const {
  return vouched_ > milliseconds(0) ? std::min(ttl_, vouched_) : ttl_;
}

TimePoint WorkMachine::ContactDeadline() const {
  if (phase_ != Phase::kOpen) return kNever;
  return (pings_.empty() ? ping_due_ : pings_.front().second) + Pace() / 4;
}

void WorkMachine::Tick(TimePoint now) {
  if (phase_ == Phase::kOver) return;
  if (!session_id_.empty() && now >= good_until_) {
    const std::map<std::string, bool> held = held_;
    for (const auto& [lease_id, told] : held)
      Lose(lease_id, "no daemon vouched for it up to its deadline");
  }
  if (phase_ == Phase::kOpening && now >= open_deadline_) {
    Drop(absl::UnavailableError("no answer in time"), now);
  } else if (now >= ContactDeadline()) {
    Drop(absl::UnavailableError("the connection has gone silent"), now);
  }
  if (phase_ == Phase::kOpen) return;
  const milliseconds patience = ever_open_ ? options_.reconnect_timeout : options_.connect_timeout;
  if (now - silent_since_ < patience) return;
  const absl::Status last = status_;
  if (!ErrorReason(last).empty()) return End(last);  // A daemon said why.
  End(MakeError(
      absl::StatusCode::kUnavailable,
      absl::StrCat("no daemon could be reached; the last endpoint said: ", last.message()),
      "UNREACHABLE"));
}

TimePoint WorkMachine::NextDue(bool can_send) const {
  TimePoint due = kNever;
  switch (phase_) {
    case Phase::kWaiting:
      due = connect_at_;
      break;
    case Phase::kOpening:
      due = open_deadline_;
      break;
    case Phase::kOpen:
      due = ContactDeadline();
      if (!can_send) break;
      due = std::min(due, ping_due_);
      for (const auto& [sequence, answer] : answers_) {
        if (!answer.sent) due = std::min(due, answer.not_before);
      }
      break;
    case Phase::kOver:
      return kNever;
  }
  if (!held_.empty() && !session_id_.empty()) due = std::min(due, good_until_);
  return due;
}

}  // namespace semaphore::semctl
