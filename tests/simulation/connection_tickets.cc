// The daemon's end of a channel, for tickets: who enqueues them, and who carries them out.
#include <utility>

#include "tests/simulation/wire.h"

namespace semaphored::simulation {

void Connection::Enqueue(uint64_t tag, const EnqueueCommand& command) {
  daemon_->sessions().Enqueue(command,
                              [self = shared_from_this(), tag](Result<EnqueueAnswer> result) {
                                if (!result.ok()) return self->SendRefusal(tag, *result.refusal);
                                Reply reply;
                                reply.kind = Reply::Kind::kEnqueued;
                                reply.tag = tag;
                                reply.ticket = result.value.ticket;
                                self->Send(std::move(reply));
                              });
}

void Connection::OnAssigned(const Assignment& assignment) {
  Reply reply;
  reply.kind = Reply::Kind::kAssigned;
  reply.claim = assignment.lease->id;
  reply.semaphore = assignment.semaphore;
  reply.slots.assign(assignment.lease->slots.begin(), assignment.lease->slots.end());
  reply.token = assignment.lease->token;
  reply.ticket = assignment.ticket->id;
  reply.attempt = assignment.ticket->attempt;
  if (assignment.payload != nullptr) reply.payload = *assignment.payload;
  AddRecall(0, assignment.recall, &reply);
  Send(std::move(reply));
}

void Connection::FinishIn(uint64_t tag, const FinishCommand& command) {
  if (session_.empty()) return;
  TouchSession();
  daemon_->sessions().FinishIn(session_, command,
                               [self = shared_from_this(), tag](Result<FinishAnswer> result) {
                                 if (!result.ok()) return self->SendRefusal(tag, *result.refusal);
                                 Reply reply;
                                 reply.kind = Reply::Kind::kFinished;
                                 reply.tag = tag;
                                 self->Send(std::move(reply));
                               });
}

}  // namespace semaphored::simulation
