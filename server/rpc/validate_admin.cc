// The form of each act of Administer, and the command that it becomes. See validate.h.
#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/convert.h"
#include "server/rpc/validate.h"

namespace semaphored {
namespace {

constexpr int64_t kGraceMaxMs = 86'400'000;
constexpr int64_t kLongestHoldLeastMs = 1'000;
constexpr int64_t kLongestHoldMostMs = 366LL * 24 * 3'600'000;

bool ReadNumber(std::string_view text, uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

Problem CheckSettings(const pb::SemaphoreSettings& asked, Settings* out) {
  out->backfill = asked.backfill();
  out->longest_hold_ms =
      static_cast<int64_t>(std::min<uint64_t>(asked.longest_hold_ms(), INT64_MAX));
  if (out->longest_hold_ms != 0) {
    if (Problem problem = CheckRange("settings.longest_hold_ms", out->longest_hold_ms,
                                     kLongestHoldLeastMs, kLongestHoldMostMs)) {
      return problem;
    }
  }
  if (asked.has_recall_grace_ms()) {
    out->recall_grace_ms = asked.recall_grace_ms();
    if (Problem problem =
            CheckRange("settings.recall_grace_ms", out->recall_grace_ms, 0, kGraceMaxMs)) {
      return problem;
    }
  }
  out->permits_per_holder = asked.permits_per_holder();
  out->waiters_max = asked.waiters_max();
  return std::nullopt;
}

ShrinkPolicy PolicyOf(pb::ShrinkPolicy policy) {
  if (policy == pb::SHRINK_POLICY_RECALL) return ShrinkPolicy::kRecall;
  return policy == pb::SHRINK_POLICY_REFUSE ? ShrinkPolicy::kRefuse : ShrinkPolicy::kWait;
}

DestroyPolicy PolicyOf(pb::DestroyPolicy policy) {
  if (policy == pb::DESTROY_POLICY_WAIT) return DestroyPolicy::kWait;
  return policy == pb::DESTROY_POLICY_FORCE ? DestroyPolicy::kForce : DestroyPolicy::kRefuse;
}

// `given`: false if the semaphore's own grace is meant. No grace leaves a millisecond: only `now` ends leases with the act.
Problem CheckGrace(const std::string& act, bool given, uint32_t grace_ms, bool now, int64_t* out) {
  if (Problem problem = CheckRange(act + ".grace_ms", grace_ms, 0, kGraceMaxMs)) return problem;
  if (now && given) return InvalidField(act + ".now", "must be false when grace_ms is given");
  *out = now ? Recall::kNow : given ? std::max<int64_t>(grace_ms, 1) : Recall::kOwnGrace;
  return std::nullopt;
}

Problem CheckCreate(const pb::CreateSemaphore& act, const RequestLimits& limits,
                    AdminCommand* out) {
  if (Problem problem = CheckRange("create.limit", act.limit(), 1, limits.limit_max))
    return problem;
  AdminCreate create;
  create.limit = act.limit();
  if (Problem problem = CheckSettings(act.settings(), &create.settings)) return problem;
  out->act = create;
  return std::nullopt;
}

Problem CheckAdopt(const pb::AdoptSemaphore& act, const RequestLimits& limits, AdminCommand* out) {
  if (Problem problem = CheckRange("adopt.limit", act.limit(), 0, limits.limit_max)) return problem;
  if (out->expected_revision != 0)
    return InvalidField("expected_revision", "must be 0 for adopt: there is no semaphore yet");
  out->act = AdminAdopt{act.limit()};
  return std::nullopt;
}

Problem CheckResize(const pb::ResizeSemaphore& act, const RequestLimits& limits,
                    AdminCommand* out) {
  AdminResize resize;
  resize.limit_max = limits.limit_max;
  const char* field = "";
  switch (act.change_case()) {
    case pb::ResizeSemaphore::kLimit:
      field = "resize.limit";
      resize.change = AdminResize::Change::kSet;
      resize.amount = act.limit();
      break;
    case pb::ResizeSemaphore::kAdd:
      field = "resize.add";
      resize.change = AdminResize::Change::kAdd;
      resize.amount = act.add();
      break;
    case pb::ResizeSemaphore::kRemove:
      field = "resize.remove";
      resize.change = AdminResize::Change::kRemove;
      resize.amount = act.remove();
      break;
    case pb::ResizeSemaphore::CHANGE_NOT_SET:
      return InvalidField("resize", "must have one of limit, add and remove");
  }
  if (Problem problem = CheckRange(field, resize.amount, 0, limits.limit_max)) return problem;
  if (!pb::ShrinkPolicy_IsValid(act.policy())) {
    return InvalidField("resize.policy",
                        "must be SHRINK_POLICY_WAIT, SHRINK_POLICY_RECALL or SHRINK_POLICY_REFUSE");
  }
  resize.policy = PolicyOf(act.policy());
  if (act.now() && resize.policy != ShrinkPolicy::kRecall)
    return InvalidField("resize.now", "must be false unless the policy is SHRINK_POLICY_RECALL");
  if (Problem problem =
          CheckGrace("resize", act.has_grace_ms(), act.grace_ms(), act.now(), &resize.grace_ms)) {
    return problem;
  }
  out->act = resize;
  return std::nullopt;
}

Problem CheckDestroy(const pb::DestroySemaphore& act, const RequestLimits& limits,
                     AdminParams* out) {
  if (!pb::DestroyPolicy_IsValid(act.policy())) {
    return InvalidField(
        "destroy.policy",
        "must be DESTROY_POLICY_REFUSE, DESTROY_POLICY_WAIT or DESTROY_POLICY_FORCE");
  }
  if (Problem problem = CheckRange("destroy.wait_ms", act.wait_ms(), 0, limits.wait_max_ms))
    return problem;
  AdminDestroy destroy{PolicyOf(act.policy())};
  if (act.now() && destroy.policy != DestroyPolicy::kForce)
    return InvalidField("destroy.now", "must be false unless the policy is DESTROY_POLICY_FORCE");
  if (Problem problem = CheckGrace("destroy", act.grace_ms() != 0, act.grace_ms(), act.now(),
                                   &destroy.grace_ms)) {
    return problem;
  }
  out->command.act = destroy;
  out->wait_ms = act.wait_ms();
  return std::nullopt;
}

Problem CheckDrain(const pb::DrainSemaphore& act, const RequestLimits& limits, AdminParams* out) {
  if (Problem problem = CheckRange("drain.wait_ms", act.wait_ms(), 0, limits.wait_max_ms))
    return problem;
  out->kind = AdminParams::Kind::kDrain;
  out->command.act = AdminPause{true};
  out->held_max = act.held_max();
  out->wait_ms = act.wait_ms();
  return std::nullopt;
}

Problem CheckRevoke(pb::RevokeLeases& act, const RequestLimits& limits, AdminCommand* out) {
  const int given =
      (act.lease_id().empty() ? 0 : 1) + (act.holder().empty() ? 0 : 1) + (act.all() ? 1 : 0);
  if (given != 1)
    return InvalidField("revoke", "must have exactly one of lease_id, holder and all");
  AdminRevoke revoke;
  if (Problem problem =
          CheckGrace("revoke", act.grace_ms() != 0, act.grace_ms(), act.now(), &revoke.grace_ms)) {
    return problem;
  }
  if (!act.lease_id().empty()) {
    const std::optional<LeaseName> lease = ParseLeaseId(act.lease_id());
    if (!lease.has_value() || lease->semaphore != out->semaphore) {
      return InvalidField("revoke.lease_id", "must be the lease_id of a lease of this semaphore");
    }
    revoke.claim = lease->claim;
  }
  if (Problem problem = CheckHolder("revoke.holder", act.holder(), limits)) return problem;
  revoke.holder = std::move(*act.mutable_holder());
  out->act = std::move(revoke);
  return std::nullopt;
}

Problem CheckList(pb::ListSemaphores& act, const RequestLimits& limits, AdminParams* out) {
  out->kind = AdminParams::Kind::kList;
  if (Problem problem = CheckPrefix("list.prefix", act.prefix())) return problem;
  if (CheckPrefix("list.page_token", act.page_token())) return BadPageToken();
  out->list.prefix = std::move(*act.mutable_prefix());
  out->list.after = std::move(*act.mutable_page_token());
  return CheckRows(act.page_size(), limits, &out->list.rows_max);
}

Problem CheckHistory(const pb::ListHistory& act, const RequestLimits& limits, AdminParams* out) {
  out->kind = AdminParams::Kind::kHistory;
  out->history.semaphore = out->command.semaphore;
  if (Problem problem = CheckPageToken(act.page_token(), &out->history.before)) return problem;
  return CheckRows(act.page_size(), limits, &out->history.rows_max);
}

// "<number>.<text>"
template <typename Number>
bool ReadPlace(std::string_view place, Number* number, std::string_view* text) {
  const auto [end, error] = std::from_chars(place.data(), place.data() + place.size(), *number);
  const size_t dot = static_cast<size_t>(end - place.data());
  if (error != std::errc() || dot >= place.size() || place[dot] != '.') return false;
  *text = place.substr(dot + 1);
  return true;
}

// A token shows this many digits of a claim: the whole would be the lease id, which not every reader may see. Leases that
// share a place and these digits would be taken for one.
constexpr size_t kClaimDigits = 8;
constexpr size_t kIdDigits = 32;

// As DescribePageToken writes it: "l<slot>.<claim's first digits>" if the leases go on, "w<priority>.<order>" if the waiters
// do, with a comma between. A list that is not named is complete.
bool ReadPageToken(std::string_view token, AdminDescribe* out) {
  out->leases = out->waiters = false;
  while (!token.empty()) {
    const std::string_view part = token.substr(0, token.find(','));
    token.remove_prefix(std::min(token.size(), part.size() + 1));
    std::string_view rest;
    if (part.starts_with('l') && !out->leases) {
      out->leases = true;
      if (!ReadPlace(part.substr(1), &out->leases_after.emplace().slot, &rest)) return false;
      // Behind all claims that begin with these digits.
      if (rest.size() != kClaimDigits) return false;
      std::string digits(rest);
      digits.resize(kIdDigits, 'f');
      const std::optional<Id> claim = Id::FromHex(digits);
      if (!claim.has_value()) return false;
      out->leases_after->claim = *claim;
    } else if (part.starts_with('w') && !out->waiters) {
      out->waiters = true;
      QueuePlace& place = out->waiters_after.emplace();
      if (!ReadPlace(part.substr(1), &place.priority, &rest) || !ReadNumber(rest, &place.order))
        return false;
    } else {
      return false;
    }
  }
  return true;
}

Problem CheckDescribe(const pb::DescribeSemaphore& act, const RequestLimits& limits,
                      AdminCommand* out) {
  AdminDescribe describe;
  if (Problem problem = CheckRows(act.page_size(), limits, &describe.rows_max)) return problem;
  if (!act.page_token().empty() && !ReadPageToken(act.page_token(), &describe))
    return BadPageToken();
  out->requester = Requester{};  // A question is asked again each time.
  out->act = describe;
  return std::nullopt;
}

Problem CheckConfigure(const pb::ConfigureSemaphore& act, AdminCommand* out) {
  AdminConfigure configure;
  if (Problem problem = CheckSettings(act.settings(), &configure.settings)) return problem;
  out->act = configure;
  return std::nullopt;
}

}  // namespace

Refusal BadPageToken() {
  return InvalidField("page_token",
                      "must be the next_page_token of the page before, as it was given");
}

std::string DescribePageToken(const SemaphoreInfo& info) {
  std::string token;
  if (info.leases_next.has_value())
    absl::StrAppend(&token, "l", info.leases_next->slot, ".",
                    info.leases_next->claim.Hex().substr(0, kClaimDigits));
  if (info.waiters_next.has_value())
    absl::StrAppend(&token, token.empty() ? "" : ",", "w", info.waiters_next->priority, ".",
                    info.waiters_next->order);
  return token;
}

Problem CheckPageToken(std::string_view token, uint64_t* out) {
  *out = 0;
  if (token.empty()) return std::nullopt;
  // Stores number rows by signed integers.
  if (ReadNumber(token, out) && *out != 0 && *out <= INT64_MAX) return std::nullopt;
  return BadPageToken();
}

Problem Check(pb::AdministerRequest& request, const RequestLimits& limits, AdminParams* out) {
  using Request = pb::AdministerRequest;
  AdminCommand& command = out->command;
  if (request.has_request_id()) {
    if (Problem problem = CheckRequestId(true, *request.mutable_request_id(), &command.requester))
      return problem;
  }
  if (request.act_case() == Request::ACT_NOT_SET) {
    return InvalidField(
        "act",
        "must be given: create, resize, configure, destroy, drain, pause, resume, revoke, "
        "prune, describe, list, history, list_tickets, show_ticket, cancel_ticket, "
        "prioritise_ticket, requeue_tickets, purge_tickets or adopt");
  }
  if (request.act_case() != Request::kList) {
    if (Problem problem = CheckName("semaphore", request.semaphore(), limits)) return problem;
  } else if (!request.semaphore().empty()) {
    return InvalidField("semaphore", "must be empty for list");
  }
  command.semaphore = std::move(*request.mutable_semaphore());
  command.expected_revision = request.expected_revision();
  switch (request.act_case()) {
    case Request::kCreate:
      return CheckCreate(request.create(), limits, &command);
    case Request::kResize:
      return CheckResize(request.resize(), limits, &command);
    case Request::kConfigure:
      return CheckConfigure(request.configure(), &command);
    case Request::kDestroy:
      return CheckDestroy(request.destroy(), limits, out);
    case Request::kDrain:
      return CheckDrain(request.drain(), limits, out);
    case Request::kPause:
      command.act = AdminPause{true};
      return std::nullopt;
    case Request::kResume:
      command.act = AdminPause{false};
      return std::nullopt;
    case Request::kRevoke:
      return CheckRevoke(*request.mutable_revoke(), limits, &command);
    case Request::kPrune:
      command.act = AdminPrune{};
      return std::nullopt;
    case Request::kDescribe:
      return CheckDescribe(request.describe(), limits, &command);
    case Request::kList:
      return CheckList(*request.mutable_list(), limits, out);
    case Request::kHistory:
      return CheckHistory(request.history(), limits, out);
    case Request::kListTickets:
      return CheckListTickets(request.list_tickets(), limits, &command);
    case Request::kShowTicket:
      return CheckShowTicket(request.show_ticket(), &command);
    case Request::kCancelTicket:
      return CheckCancelTicket(request.cancel_ticket(), &command);
    case Request::kPrioritiseTicket:
      return CheckPrioritiseTicket(request.prioritise_ticket(), &command);
    case Request::kRequeueTickets:
      return CheckRequeue(request.requeue_tickets(), &command);
    case Request::kPurgeTickets:
      return CheckPurge(request.purge_tickets(), &command);
    case Request::kAdopt:
      return CheckAdopt(request.adopt(), limits, &command);
    case Request::ACT_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace semaphored
