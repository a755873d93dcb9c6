// Administer: one administrative act on one semaphore, or a question about it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/admin_act.h"
#include "server/rpc/admin_pages.h"
#include "server/rpc/admin_result.h"
#include "server/rpc/call_log.h"
#include "server/rpc/caller.h"
#include "server/rpc/calls.h"
#include "server/rpc/convert.h"
#include "server/rpc/unary_call.h"
#include "server/sessions/lists.h"
#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

// No act is as long, with the longest names, holder and ids that there are.
constexpr size_t kRequestBytesMax = 4096;

Refusal TooLong(size_t bytes) {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField,
          absl::StrCat("the request must be at most ", kRequestBytesMax, " bytes, not ", bytes), "",
          ""};
}

class AdministerCall final : public MethodCall<AdministerCall>,
                             public LongAnswer,
                             public WaitingAct {
 public:
  static constexpr Method kMethod = Method::kAdminister;
  using MethodCall::MethodCall;

 private:
  void Register() override {
    gone_ = false;
    wait_ = Id{};
    WatchCancel();
    AskFor(&AsyncService::RequestAdminister);
  }

  void OnDone(bool cancelled) override {
    if (!cancelled) return;
    gone_ = true;
    sessions()->EndWait(wait_);
    if (!environment()->long_answers.Remove(this)) return;
    question_ = nullptr;
    Drop();
  }

  void OnRulesChanged() override {
    if (Denied()) sessions()->EndWait(wait_);
  }

  // By the rules that are in force now, since an act may have waited for long.
  Problem Denied() const {
    Caller now = caller();
    if (Problem problem = now.Again()) return problem;
    return now.Check(act_.verbs, semaphore_);
  }

  void Begin() override {
    pb::AdministerRequest& message = Scratch<pb::AdministerRequest>();
    const size_t bytes = request()->Length();
    if (!Parse(request(), &message)) return Refuse(Unreadable());
    act_ = ActOf(message);
    act_case_ = message.act_case();
    semaphore_ = message.semaphore();
    audited_ = act_.changes && environment()->access.audit != nullptr;
    may_ = caller().May(act_.verbs, semaphore_);
    asked_ = audited_ && may_ ? AskedText(message) : "null";
    before_ = "null";
    if (bytes > kRequestBytesMax) return Turn(TooLong(bytes));
    if (HasPages(message)) question_ = std::make_unique<pb::AdministerRequest>(message);
    AdminParams params;
    if (Problem problem = Check(message, limits(), &params)) return Turn(*problem);
    rows_left_ = PageRowsOf(params);
    if (rows_left_ > slice_rows()) {
      return environment()->long_answers.Add(this, caller().Peer());
    }
    question_ = nullptr;
    Ask(std::move(params));
  }

  void Compose() override {
    answer_ = std::make_unique<pb::AdministerResponse>();
    AskPage(PageTokenOf(*question_));
  }

  // The last page has come, or none will.
  std::unique_ptr<pb::AdministerResponse> Composed() {
    question_ = nullptr;
    std::unique_ptr<pb::AdministerResponse> answer = std::move(answer_);
    environment()->long_answers.Done();
    return answer;
  }

  uint32_t slice_rows() { return SliceRows(environment()->host->guarantees()); }

  // A part of the rows that were asked for, as a page of its own.
  void AskPage(const std::string& token) {
    pb::AdministerRequest& message = Scratch<pb::AdministerRequest>();
    message = *question_;
    SetPage(std::min(rows_left_, slice_rows()), token, &message);
    AdminParams params;
    if (Problem problem = Check(message, limits(), &params)) return Turn(*problem);
    Ask(std::move(params));
  }

  void Ask(AdminParams params) {
    if (params.kind == AdminParams::Kind::kList) return BeginList(std::move(params.list));
    if (Problem problem = caller().Check(act_.verbs, semaphore_)) return Turn(*problem);
    // (A question is not remembered, whatever its request id.)
    if (act_.changes) {
      caller().Own(&params.command);
      if (Problem problem = caller().Scope(&params.command.requester)) return Turn(*problem);
    }
    if (audited_) LookBefore();
    Act(std::move(params));
  }

  void Act(AdminParams params) {
    environment()->waiting_acts.insert(this);
    auto reply = [this](Result<AdminAnswer> result) { Answer(std::move(result)); };
    switch (params.kind) {
      case AdminParams::Kind::kAct:
        wait_ = sessions()->Administer(std::move(params.command), params.wait_ms, reply);
        return;
      case AdminParams::Kind::kDrain:
        wait_ =
            sessions()->Drain(std::move(params.command), params.held_max, params.wait_ms, reply);
        return;
      case AdminParams::Kind::kList:
        return;
      case AdminParams::Kind::kHistory:
        return sessions()->History(std::move(params.history), reply);
    }
  }

  // What it is before the act, for the audit log. It goes to the same lane, so it is answered
  // first.
  void LookBefore() {
    AdminCommand describe;
    describe.semaphore = semaphore_;
    describe.act = AdminDescribe{0};
    sessions()->Administer(std::move(describe), 0, [this](Result<AdminAnswer> result) {
      if (result.ok()) before_ = TextOf(result.value);
    });
  }

  // Under each prefix that the caller may see, one after the other, as they stand in the order of
  // names.
  void BeginList(ListCommand list) {
    prefixes_ = caller().Under(kSees, list.prefix);
    list_ = std::move(list);
    listed_ = {};
    listed_.value.report = std::make_unique<Report>();
    listed_.value.done = true;
    ListOn(0);
  }

  void ListOn(size_t index) {
    const auto rows = static_cast<uint32_t>(listed_.value.report->infos.size());
    if (index == prefixes_.size()) return Answer(std::move(listed_));
    const uint32_t left = list_.rows_max - rows;
    ListCommand part = list_;
    part.prefix = prefixes_[index];
    // With no row left: whether there is a further one.
    part.rows_max = std::max(left, 1U);
    sessions()->List(std::move(part), [this, index, left](Result<AdminAnswer> result) {
      if (!result.ok()) return Answer(std::move(result));
      Report& all = *listed_.value.report;
      Report& found = *result.value.report;
      all.more = found.more || (left == 0 && !found.infos.empty());
      if (left > 0)
        std::move(found.infos.begin(), found.infos.end(), std::back_inserter(all.infos));
      if (all.more) return Answer(std::move(listed_));
      ListOn(index + 1);
    });
  }

  void Add(const AdminAnswer& answer, pb::AdministerResponse* response) {
    const Host* host = environment()->host;
    ToProto(
        answer, act_case_, [host](const NodeRef& node) { return host->NodeName(node); }, response);
  }

  // A page has come.
  void AddPage(Result<AdminAnswer> result) {
    const uint32_t before = RowsOf(*answer_);
    std::string next;
    // The semaphore may have gone meanwhile: then it has no more rows. Any other error leaves rows out.
    if (result.ok()) {
      if (answer_->has_describe()) answer_->mutable_describe()->clear_semaphore();
      Add(result.value, answer_.get());
      rows_left_ -= std::min(rows_left_, RowsOf(*answer_) - before);
      next = TakeNextPageToken(answer_.get());
    } else if (before == 0 || result.refusal->code != absl::StatusCode::kNotFound) {
      return Turn(*result.refusal);
    }
    if (gone_) {
      Composed();
      return Drop();
    }
    if (!next.empty() && rows_left_ > 0) return AskPage(next);
    SetNextPageToken(next, answer_.get());
    Finish(Composed().get());
  }

  void Answer(Result<AdminAnswer> result) {
    environment()->waiting_acts.erase(this);
    if (question_ != nullptr) return AddPage(std::move(result));
    if (!result.ok()) return Turn(*result.refusal);
    if (result.value.changed) LogAct(act_.name, semaphore_, *context());
    // Not a scratch message: it may be large, and would keep its memory.
    pb::AdministerResponse response;
    Add(result.value, &response);
    if (audited_) {
      AuditEntry entry = Entry();
      entry.after = TextOf(result.value);
      entry.affected = result.value.affected;
      environment()->access.audit->Write(AuditLine(entry));
    }
    // The act itself was allowed, and is done.
    if (Problem problem = wait_.empty() ? std::nullopt : Denied()) return Refuse(*problem);
    Finish(&response);
  }

  void Finish(pb::AdministerResponse* response) {
    if (response->has_describe())
      HideSecrets(caller(), *sessions(), response->mutable_describe()->mutable_leases());
    if (response->has_drain())
      HideSecrets(caller(), *sessions(), response->mutable_drain()->mutable_leases());
    Reply(*response);
  }

  // The semaphore that an answer shows, for the audit log.
  static std::string TextOf(const AdminAnswer& answer) {
    if (answer.report == nullptr || !answer.report->info.has_value()) return "null";
    pb::SemaphoreInfo info;
    ToProto(*answer.report->info, &info);
    return SemaphoreText(info);
  }

  void Turn(const Refusal& refusal) {
    if (answer_ != nullptr) Composed();
    if (audited_) AuditRefusal(refusal);
    // The object may wait long until the answer has left, and then serves other calls.
    question_ = nullptr;
    std::string().swap(semaphore_);
    std::string().swap(asked_);
    Refuse(refusal);
  }

  void AuditRefusal(const Refusal& refusal) {
    AuditEntry entry = Entry();
    entry.refusal = &refusal;
    AccessControl& access = environment()->access;
    if (may_) return access.audit->Write(AuditLine(entry));
    if (const auto unwritten = access.denied_acts.Add(entry.identity, access.clock->Now()))
      access.audit->Write(ShortAuditLine(entry, *unwritten));
  }

  AuditEntry Entry() {
    AuditEntry entry;
    entry.time_unix_ms = environment()->host->clock().NowUnixMs();
    entry.identity = caller().name();
    entry.peer = caller().Peer();
    entry.act = act_.name;
    entry.semaphore = semaphore_;
    entry.asked = asked_;
    entry.before = before_;
    return entry;
  }

  AdminAct act_;
  pb::AdministerRequest::ActCase act_case_ = pb::AdministerRequest::ACT_NOT_SET;
  std::string semaphore_;
  bool audited_ = false;
  bool may_ = false;  // The caller has the right for this act at this semaphore.
  std::string asked_;
  std::string before_;
  // Of a question that is answered by several pages; null: of none.
  std::unique_ptr<pb::AdministerRequest> question_;
  std::unique_ptr<pb::AdministerResponse>
      answer_;         // The pages so far; not null: it is this call's turn.
  bool gone_ = false;  // Its client has.
  Id wait_;            // For its effect; empty: it does not wait.
  uint32_t rows_left_ = 0;
  // Of a list.
  ListCommand list_;
  std::vector<std::string> prefixes_;
  Result<AdminAnswer> listed_;
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptAdminister(Environment* environment) {
  return std::make_unique<Acceptor<AdministerCall>>(environment);
}

}  // namespace semaphored
