#include "client/semctl/work_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/status_conversion.h"
#include "client/semctl/duration.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerAgain(500);
constexpr int kAnswersPerMessage = 500;
// Another daemon, or the next attempt, mostly takes it.
constexpr int kRefusalsUnsaid = 1;

// Errors that another attempt, or another endpoint, would not mend.
bool IsFinal(absl::StatusCode code) {
  return code == absl::StatusCode::kInvalidArgument ||
         code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kPermissionDenied ||
         code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kUnimplemented ||
         code == absl::StatusCode::kResourceExhausted;
}

}  // namespace

WorkSession::WorkSession(WorkOptions options, std::function<std::string()> make_client_id,
                         WorkListener* listener, TimePoint now)
    : options_(std::move(options)),
      make_client_id_(std::move(make_client_id)),
      listener_(listener),
      keeper_(options_.endpoints, options_.ttl, options_.margin),
      tickets_max_(options_.tickets_max) {
  keeper_.Want(now);
}

// ---- the worker ----

void WorkSession::Finish(v1::FinishTicket finish) {
  const std::uint64_t sequence = next_sequence_++;
  finish.set_sequence(sequence);
  Answer& answer = answers_[sequence];
  answer.finish = std::move(finish);
}

void WorkSession::SetTicketsMax(std::uint32_t tickets_max) {
  tickets_max_ = tickets_max;
  tickets_max_said_ = false;
}

// ---- the stream ----

void WorkSession::FillOpen(v1::OpenWork* open) {
  if (keeper_.session_id().empty()) {
    keeper_.ForgetSession();
    client_id_ = make_client_id_();
    next_sequence_ = 1;
  }
  open->set_client_id(client_id_);
  open->set_ttl_ms(Ms(options_.ttl));
  open->set_resume_session_id(keeper_.session_id());
  open->set_holder(options_.holder);
  open->mutable_semaphores()->Add(options_.semaphores.begin(), options_.semaphores.end());
  open->mutable_prefixes()->Add(options_.prefixes.begin(), options_.prefixes.end());
  // At least one in `open`; none is said after it.
  open->set_tickets_max(std::max(tickets_max_, 1u));
  tickets_max_said_ = tickets_max_ > 0;
}

void WorkSession::Drop(const absl::Status& why, TimePoint now) {
  drop_ = true;
  keeper_.Disconnect(why, now);
}

void WorkSession::End(absl::Status status) {
  if (keeper_.phase() == Phase::kOpening || keeper_.phase() == Phase::kOpen) drop_ = true;
  keeper_.End();
  status_ = std::move(status);
}

void WorkSession::OnStreamEnd(const absl::Status& status, TimePoint now) {
  if (keeper_.phase() != Phase::kOpening && keeper_.phase() != Phase::kOpen) return;
  keeper_.Disconnect(status.ok() ? absl::UnavailableError("the daemon ended the stream") : status,
                     now);
  if (close_sent_ && status.ok()) return End(absl::OkStatus());
  const bool session_is_gone =
      !keeper_.session_id().empty() && status.code() == absl::StatusCode::kNotFound;
  if (session_is_gone) LoseSession(now);
  if (IsFinal(status.code()) && keeper_.empty()) return End(status);
  if (close_sent_ && session_is_gone) End(absl::OkStatus());
}

// ---- messages ----

bool WorkSession::NextMessage(v1::WorkRequest* message, TimePoint now) {
  message->Clear();
  if (keeper_.open_due()) {
    FillOpen(message->mutable_open());
    keeper_.OnOpenSent(now);
    return true;
  }
  if (keeper_.phase() != Phase::kOpen || close_sent_) return false;
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
  const bool alive = keeper_.AddTo(message, now);
  return alive || message->has_tickets_max() || message->finished_size() > 0 || message->close();
}

void WorkSession::OnMessage(const v1::WorkResponse& message, TimePoint now) {
  Tick(now);
  if (keeper_.phase() == Phase::kOpening && !keeper_.open_due() && message.has_opened())
    OnOpened(message.opened(), now);
  if (keeper_.phase() != Phase::kOpen) return;
  if (message.has_pong()) keeper_.OnPong(message.pong());
  for (const v1::FinishTicketResult& result : message.results()) OnResult(result, now);
  for (const v1::TicketAssignment& assignment : message.assignments()) OnAssignment(assignment);
  for (const v1::SessionEvent& event : message.events()) keeper_.OnEvent(event);
  Report();
}

void WorkSession::OnOpened(const v1::SessionOpened& opened, TimePoint now) {
  switch (keeper_.OnOpened(opened, now)) {
    case LeaseKeeper::Opening::kMore:
      return;
    case LeaseKeeper::Opening::kAnother:
      LoseSession(now);
      return Drop(absl::InternalError("the daemon opened another session than the one to resume"),
                  now);
    case LeaseKeeper::Opening::kOvertaken:
      return Drop(absl::UnavailableError("this daemon does not host the session any more"), now);
    case LeaseKeeper::Opening::kOpened:
      break;
  }
  for (auto& [sequence, answer] : answers_) answer.sent = false;
}

void WorkSession::OnAssignment(const v1::TicketAssignment& assignment) {
  if (Holds(assignment.lease().lease_id())) return;
  const LeaseKeeper::LeasePtr lease = keeper_.MakeLease(assignment.lease());
  keeper_.Keep(lease, assignment.lease());
  listener_->OnAssigned(assignment, lease);
}

void WorkSession::OnResult(const v1::FinishTicketResult& result, TimePoint now) {
  const auto found = answers_.find(result.sequence());
  if (found == answers_.end()) return;
  const absl::Status status = result.has_error() ? ToAbslStatus(result.error()) : absl::OkStatus();
  Answer answer = std::move(found->second);
  answers_.erase(found);
  if (!EndsGivingBack(status)) return AnswerAgain(std::move(answer), status, now);
  const std::string lease_id = answer.finish.lease_id();
  keeper_.Forget(lease_id);
  listener_->OnAnswered(lease_id, status, result.state());
}

void WorkSession::AnswerAgain(Answer answer, const absl::Status& error, TimePoint now) {
  if (ErrorReason(error) == "REQUEST_TOO_OLD") answer.finish.set_sequence(next_sequence_++);
  answer.sent = false;
  answer.pause = std::clamp(answer.pause * 2, kAnswerAgain, kGiveBackPauseMost);
  answer.not_before = now + answer.pause;
  if (++answer.refusals == kRefusalsUnsaid + 1)
    listener_->OnRefusedAgain(answer.finish.lease_id(), error);
  const std::uint64_t sequence = answer.finish.sequence();
  answers_.emplace(sequence, std::move(answer));
}

void WorkSession::LoseSession(TimePoint now) {
  keeper_.LoseSession(now);
  answers_.clear();
  Report();
}

void WorkSession::Report() {
  for (const LeaseKeeper::Recalled& recalled : keeper_.TakeRecalled()) {
    listener_->OnRecalled(recalled.lease, recalled.notice);
    keeper_.Acknowledge(recalled);
  }
  for (const LeaseKeeper::LeasePtr& lease : keeper_.TakeLost()) {
    // One that was answered is over: the daemon has let it go as it heard the answer.
    const bool is_answered = std::ranges::any_of(answers_, [&](const auto& entry) {
      return entry.second.finish.lease_id() == lease->lease_id;
    });
    if (!is_answered) listener_->OnLost(lease->lease_id, lease->GetLoss().message);
  }
}

// ---- time ----

void WorkSession::Tick(TimePoint now) {
  if (over()) return;
  const absl::Status silent = keeper_.Tick(now);
  Report();
  if (!silent.ok()) Drop(silent, now);
  if (open() || keeper_.has_good()) return;
  const milliseconds patience =
      keeper_.ever_open() ? options_.reconnect_timeout : options_.connect_timeout;
  if (now - keeper_.silent_since() < patience) return;
  const absl::Status last = keeper_.last_error();
  if (!ErrorReason(last).empty()) return End(last);  // A daemon said why.
  End(MakeError(
      absl::StatusCode::kUnavailable,
      absl::StrCat("no daemon could be reached; the last endpoint said: ", last.message()),
      "UNREACHABLE"));
}

TimePoint WorkSession::NextDue(bool can_send) const {
  TimePoint due = keeper_.NextDue(can_send);
  if (!open() || !can_send) return due;
  for (const auto& [sequence, answer] : answers_) {
    if (!answer.sent) due = std::min(due, answer.not_before);
  }
  return due;
}

}  // namespace semaphore::semctl
