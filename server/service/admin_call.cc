// Administer: one administrative act on one semaphore, or a question about it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/core/refusals.h"
#include "server/service/admin_act.h"
#include "server/service/admin_result.h"
#include "server/service/call_log.h"
#include "server/service/calls.h"
#include "server/service/convert.h"
#include "server/service/gate.h"
#include "server/service/method_call.h"

namespace semaphored {
namespace {

class AdministerCall final : public MethodCall<AdministerCall> {
 public:
  static constexpr Method kMethod = Method::kAdminister;
  using MethodCall::MethodCall;

 private:
  void Register() override { AskFor(&AsyncService::RequestAdminister); }

  void Begin() override {
    pb::AdministerRequest& message = Scratch<pb::AdministerRequest>();
    if (!Parse(request(), &message)) return Refuse(Unreadable());
    act_ = ActOf(message);
    act_case_ = message.act_case();
    semaphore_ = message.semaphore();
    audited_ = act_.changes && environment()->access.audit != nullptr;
    asked_ = audited_ ? AskedText(message) : "null";
    before_ = "null";
    AdminParams params;
    if (Problem problem = Check(message, limits(), &params)) return Turn(*problem);
    if (params.kind == AdminParams::Kind::kList) return BeginList(std::move(params.list));
    if (Problem problem = caller().Check(act_.verbs, semaphore_)) return Turn(*problem);
    // (A question is not remembered, whatever its request id.)
    if (act_.changes) {
      if (Problem problem = caller().Scope(&params.command.requester)) return Turn(*problem);
    }
    if (audited_) LookBefore();
    Act(std::move(params));
  }

  void Act(AdminParams params) {
    auto reply = [this](Result<AdminAnswer> result) { Answer(std::move(result)); };
    switch (params.kind) {
      case AdminParams::Kind::kAct:
        return sessions()->Administer(std::move(params.command), params.wait_ms, reply);
      case AdminParams::Kind::kDrain:
        return sessions()->Drain(std::move(params.command), params.held_max, params.wait_ms, reply);
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

  void Answer(Result<AdminAnswer> result) {
    if (!result.ok()) return Turn(*result.refusal);
    if (result.value.changed) LogAct(act_.name, semaphore_, *context());
    // Not a scratch message: it may be large, and would keep its memory.
    pb::AdministerResponse response;
    const Host* host = environment()->host;
    ToProto(
        result.value, act_case_, [host](const NodeRef& node) { return host->NodeName(node); },
        &response);
    if (response.has_describe())
      HideSecrets(caller(), *sessions(), response.mutable_describe()->mutable_leases());
    if (response.has_drain())
      HideSecrets(caller(), *sessions(), response.mutable_drain()->mutable_leases());
    if (audited_) {
      AuditEntry entry = Entry();
      entry.after = TextOf(result.value);
      entry.affected = result.value.affected;
      environment()->access.audit->Write(AuditLine(entry));
    }
    Reply(response);
  }

  // The semaphore that an answer shows, for the audit log.
  static std::string TextOf(const AdminAnswer& answer) {
    if (answer.report == nullptr || !answer.report->info.has_value()) return "null";
    pb::SemaphoreInfo info;
    ToProto(*answer.report->info, &info);
    return SemaphoreText(info);
  }

  void Turn(const Refusal& refusal) {
    if (audited_) {
      AuditEntry entry = Entry();
      entry.refusal = &refusal;
      environment()->access.audit->Write(AuditLine(entry));
    }
    Refuse(refusal);
  }

  AuditEntry Entry() {
    AuditEntry entry;
    entry.time_unix_ms = environment()->host->clock().NowUnixMs();
    entry.identity = caller().name();
    entry.peer = context()->peer();
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
  std::string asked_;
  std::string before_;
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
