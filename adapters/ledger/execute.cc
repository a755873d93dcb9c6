#include "adapters/ledger/execute.h"

#include <variant>

#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

struct Rules {
  Editor& editor;
  const Context& context;
  const RecentEnds& ends;
  // What is not held has ended somehow: say how, if it was of late.
  Outcome WithCause(Outcome outcome, const Id& claim) const {
    if (outcome.kind == OutcomeKind::kNotHeld && outcome.cause == EndCause::kNone &&
        !claim.empty()) {
      outcome.cause = ends.Find(claim, editor.transaction());
    }
    return outcome;
  }
  Outcome operator()(const AcquireCommand& c) const { return Acquire(editor, c, context); }
  Outcome operator()(const ReleaseCommand& c) const {
    return WithCause(Release(editor, c, context), c.claim);
  }
  Outcome operator()(const VerifyCommand& c) const {
    return WithCause(Verify(editor.state(), c), c.claim);
  }
  Outcome operator()(const EndCommand& c) const {
    return WithCause(End(editor, c, context), c.claim);
  }
  Outcome operator()(const RecallCommand& c) const {
    return WithCause(RecallLease(editor, c, context), c.claim);
  }
  Outcome operator()(const AdoptCommand& c) const {
    return WithCause(Adopt(editor, c, context), c.claim);
  }
  Outcome operator()(const OpenSessionCommand& c) const { return OpenSession(editor, c, context); }
  Outcome operator()(const AdoptSessionCommand& c) const {
    return AdoptSession(editor, c, context);
  }
  Outcome operator()(const CloseSessionCommand& c) const {
    return CloseSession(editor, c, context);
  }
  Outcome operator()(const OrphansCommand& c) const {
    return Orphans(editor.state(), c, context, !context.shared);
  }
  Outcome operator()(const EnqueueCommand& c) const { return Enqueue(editor, c, context); }
  Outcome operator()(const TakeCommand& c) const { return Take(editor, c, context); }
  Outcome operator()(const FinishCommand& c) const {
    return WithCause(Finish(editor, c, context), c.claim);
  }
  Outcome operator()(const RipenCommand& c) const { return Ripen(editor, c, context); }
  Outcome operator()(const AdminCommand& c) const { return Administer(editor, c, context); }
  Outcome operator()(const ListCommand& c) const { return List(editor.state(), c); }
  Outcome operator()(const HistoryCommand&) const { return Simply(OutcomeKind::kUnsupported); }
  Outcome operator()(const FlushCommand&) const { return Simply(OutcomeKind::kDone); }
};

}  // namespace

Outcome Execute(const Command& command, Editor& editor, const Context& context,
                const RecentEnds& ends) {
  return std::visit(Rules{editor, context, ends}, command);
}

}  // namespace semaphored::ledger
