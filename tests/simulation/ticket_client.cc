#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/ticket_clients.h"

namespace semaphored::simulation {
namespace {
// More than that bring nothing new.
constexpr size_t kLivingMax = 20;
// More than one commit of 64 rows takes.
constexpr uint64_t kDeadLetters = 120;
}  // namespace

void TicketClient::Think() {
  asking_ = false;
  NewStage();
  Disconnect();
  if (around_->winding_down) return;
  const bool hurries = around_->dead_letters && sequence_ < kDeadLetters;
  Later(random().Between(1, hurries ? 40 : 2500) * kMillisecond, [this] {
    if (around_->winding_down) return;
    if (checks().tickets().living() >= kLivingMax) return Think();
    NewTicket();
  });
}

void TicketClient::NewTicket() {
  asking_ = true;
  command_ = {};
  command_.requester = {client_id_, ++sequence_};
  command_.semaphore =
      absl::StrCat("s", random().Below(static_cast<uint64_t>(around_->semaphores)));
  command_.limit = static_cast<uint32_t>(random().Between(1, 4));
  command_.adopt_limit = random().Chance(0.95);
  if (random().Chance(0.03)) command_.limit = 0;
  command_.priority = random().Chance(0.8) ? 0 : static_cast<int32_t>(random().Between(-1, 1));
  command_.delay_ms = random().Chance(0.75) ? 0 : random().Between(1, 6000);
  command_.max_attempts = random().Chance(0.25) ? 0 : static_cast<uint32_t>(random().Between(1, 4));
  if (around_->dead_letters) command_.max_attempts = 1;
  command_.back_off.initial_ms = random().Between(0, 1500);
  command_.back_off.multiplier_percent = static_cast<uint32_t>(random().Between(100, 300));
  command_.back_off.max_ms = 4000;
  command_.payload = std::make_shared<const std::string>(
      TicketChecks::PayloadOf(client_id_, command_.requester.sequence));
  checks().tickets().Enqueues(client_id_, command_);
  Trace(
      absl::StrCat("enqueues at ", command_.semaphore, ", request ", command_.requester.sequence));
  Ask();
}

void TicketClient::Ask() {
  NewStage();
  if (!ConnectAnywhere()) return AskAgainSoon();
  call_ = Send([command = command_](Connection& c, uint64_t tag) { c.Enqueue(tag, command); });
  // Now and then somebody is impatient: the same request again, over another connection.
  Later(random().Chance(0.1) ? random().Between(1, 500) * kMillisecond : 3 * kSecond,
        [this] { Ask(); });
}

void TicketClient::AskAgainSoon() {
  NewStage();
  Disconnect();
  Later(random().Between(20, 500) * kMillisecond, [this] { Ask(); });
}

void TicketClient::Handle(const Reply& reply) {
  if (!asking_ || reply.tag != call_) return;
  if (reply.kind == Reply::Kind::kEnqueued) {
    checks().tickets().WasEnqueued(client_id_, command_.requester.sequence, reply.ticket);
    // As if the answer had been lost.
    if (random().Chance(0.1)) return AskAgainSoon();
    return Think();
  }
  if (reply.kind != Reply::Kind::kRefused) return;
  if (IsForLater(reply)) return AskAgainSoon();
  Trace(absl::StrCat("may not enqueue: ", std::string(ReasonName(reply.reason))));
  Think();
}

void TicketClient::HandleBroken() {
  if (asking_) AskAgainSoon();
}

void TicketClient::Crash() {
  Trace("crashes");
  NewClientId();
  Think();
}

}  // namespace semaphored::simulation
