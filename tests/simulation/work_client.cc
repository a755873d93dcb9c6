#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/ticket_clients.h"

namespace semaphored::simulation {

using Result = FinishCommand::Result;

OpenParams WorkClient::OpenWith() {
  if (work_ == nullptr) {
    auto work = std::make_shared<WorkParams>();
    for (int i = 0; i < around_->semaphores; ++i) {
      if (everywhere_ || random().Chance(0.6)) work->semaphores.push_back(absl::StrCat("s", i));
    }
    if (work->semaphores.empty() || random().Chance(0.4)) {
      work->semaphores.clear();
      work->prefixes.emplace_back("s");
    }
    work->tickets_max = static_cast<uint32_t>(random().Between(1, 3));
    work_ = std::move(work);
  }
  checks().Wants(client_id_, 0, ttl_ms());
  OpenParams params;
  params.work = work_;
  return params;
}

void WorkClient::Act() {
  if (around_->winding_down) {
    if (checks().tickets().living() == 0 && tasks_.empty()) Close();
    return;
  }
  // What it works at is put back. What it has said is to be heard before.
  const bool unheard =
      std::ranges::any_of(tasks_, [](const auto& entry) { return entry.second.said; });
  if (!unheard && random().Chance(0.02)) Close();
}

void WorkClient::Forget() {
  tasks_.clear();
  resumed_with_.clear();
  work_ = nullptr;
}

void WorkClient::Keep(const std::vector<Id>& claims) {
  resumed_with_ = {claims.begin(), claims.end()};
  std::erase_if(tasks_, [&](const auto& entry) {
    const bool lost = !entry.second.said && std::ranges::count(claims, entry.first) == 0;
    if (lost) beliefs_.erase(entry.first);
    // Of a semaphore that cannot be read nothing is listed.
    if (lost) checks().tickets().MayComeAgain(entry.second.told);
    return lost;
  });
}

void WorkClient::SendAgain() {
  for (const auto& [claim, task] : tasks_) {
    if (task.said) SendFinish(task);
  }
}

size_t WorkClient::working() const {
  return static_cast<size_t>(
      std::ranges::count_if(tasks_, [](const auto& entry) { return !entry.second.said; }));
}

// ---- one ticket ----

void WorkClient::OnAssigned(const Reply& reply) {
  // Told again on a new stream, or too late to be begun.
  if (closing() || tasks_.contains(reply.claim)) return;
  Task& task = tasks_[reply.claim];
  task.told = {reply.claim, reply.ticket,  reply.semaphore, reply.slots,
               reply.token, reply.attempt, reply.payload};
  Belief& belief = beliefs_[reply.claim];
  belief = {reply.semaphore, reply.slots, reply.token, deadline_us(), 0};
  for (const RecallNotice& recall : reply.recalls) BoundByRecall(reply, recall, &belief);
  checks().tickets().WasAssigned(client_id_, task.told);
  const bool too_many = working() > work_->tickets_max;
  // What was given to it while it was away it hears of when it comes back, though its hands are
  // full.
  if (too_many && !resumed_with_.contains(reply.claim)) {
    throw Violation{absl::StrCat(client_id_, " takes ", work_->tickets_max,
                                 " tickets at once, and was given one more")};
  }
  Trace(absl::StrCat("is given ticket ", reply.ticket.Hex().substr(0, 6), " of ", reply.semaphore,
                     ", attempt ", reply.attempt, ", lease ", reply.claim.Hex().substr(0, 6),
                     ", token ", reply.token));
  if (too_many) {
    task.finish.result = Result::kPutBack;
    return Say(reply.claim);
  }
  const int64_t most_ms = around_->dead_letters ? 50 : 2500;
  const int64_t work_ms = random().Chance(0.9) ? random().Between(1, most_ms) : 8000;
  InThisLife(work_ms * kMillisecond, [this, claim = reply.claim] { EndWork(claim); });
}

Result WorkClient::RandomResult() {
  if (around_->winding_down) return Result::kDone;
  const uint64_t choice = random().Below(100);
  if (around_->dead_letters && choice < 80) return Result::kReject;
  if (choice < 65) return Result::kDone;
  if (choice < 88) return Result::kFailed;
  return choice < 94 ? Result::kReject : Result::kPutBack;
}

// Nothing takes effect without time on the lease. An answer may be late all the same.
void WorkClient::EndWork(const Id& claim) {
  const auto found = tasks_.find(claim);
  if (found == tasks_.end() || found->second.said) return;
  Task& task = found->second;
  const auto belief = beliefs_.find(claim);
  const bool in_time = belief != beliefs_.end() && clock_.NowUs() < belief->second.deadline_us;
  task.finish.result = in_time ? RandomResult() : Result::kFailed;
  if (task.finish.result == Result::kDone) checks().tickets().TakesEffect(client_id_, task.told);
  if (task.finish.result == Result::kFailed && random().Chance(0.3))
    task.finish.retry_after_ms = random().Between(0, 2000);
  beliefs_.erase(claim);
  if (random().Chance(0.9)) return Say(claim);
  InThisLife(random().Between(1, 6000) * kMillisecond, [this, claim] { Say(claim); });
}

void WorkClient::Say(const Id& claim) {
  const auto found = tasks_.find(claim);
  if (found == tasks_.end()) return;
  Task& task = found->second;
  task.said = true;
  beliefs_.erase(claim);
  task.finish.semaphore = task.told.semaphore;
  task.finish.claim = claim;
  task.finish.requester = {client_id_, ++sequence_};
  checks().tickets().Says(claim, task.finish.result);
  Trace(absl::StrCat("says ", static_cast<int>(task.finish.result), " of lease ",
                     claim.Hex().substr(0, 6), ", request ", sequence_));
  SendFinish(task);
}

void WorkClient::SendFinish(const Task& task) {
  if (!open_here()) return;
  SendWith(task.finish.requester.sequence,
           [finish = task.finish](Connection& c, uint64_t tag) { c.FinishIn(tag, finish); });
}

std::map<Id, WorkClient::Task>::iterator WorkClient::FindSaid(uint64_t sequence) {
  return std::ranges::find_if(tasks_, [&](const auto& entry) {
    return entry.second.said && entry.second.finish.requester.sequence == sequence;
  });
}

void WorkClient::Handle(const Reply& reply) {
  if (HandleSession(reply)) return;
  const auto said = FindSaid(reply.tag);
  switch (reply.kind) {
    case Reply::Kind::kAssigned:
      return OnAssigned(reply);
    case Reply::Kind::kFinished:
      if (said != tasks_.end()) tasks_.erase(said);
      return;
    case Reply::Kind::kRefused:
      if (said == tasks_.end()) return;
      if (!IsForLater(reply) && reply.reason != Reason::kLimitReached) {
        tasks_.erase(said);
        return;
      }
      InThisLife(random().Between(20, 500) * kMillisecond, [this, sequence = reply.tag] {
        const auto again = FindSaid(sequence);
        if (again != tasks_.end()) SendFinish(again->second);
      });
      return;
    case Reply::Kind::kEnded: {
      const auto ended = tasks_.find(reply.claim);
      if (ended == tasks_.end() || ended->second.said) return;
      if (reply.cause == EndCause::kEngineLost) checks().tickets().MayComeAgain(ended->second.told);
      beliefs_.erase(reply.claim);
      tasks_.erase(ended);
      return;
    }
    case Reply::Kind::kRecalled:
      if (random().Chance(0.5)) EndWork(reply.claim);
      return;
    default:
      return;
  }
}

}  // namespace semaphored::simulation
