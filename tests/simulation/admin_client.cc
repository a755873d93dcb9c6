#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/clients.h"

namespace semaphored::simulation {

void AdminClient::Think() {
  acting_ = false;
  NewStage();
  Disconnect();
  if (around_->winding_down) return;
  Later(random().Between(500, 8000) * kMillisecond, [this] {
    if (!around_->winding_down) Act();
  });
}

void AdminClient::Act() {
  acting_ = true;
  const std::string semaphore =
      absl::StrCat("s", random().Below(static_cast<uint64_t>(around_->semaphores)));
  command_ = around_->tickets && random().Chance(0.4) ? RandomTicketAct(semaphore) : RandomAct();
  command_.requester = {client_id_, ++sequence_};
  command_.semaphore = semaphore;
  Trace(absl::StrCat("does act ", command_.act.index(), " on ", command_.semaphore));
  Ask();
}

AdminCommand AdminClient::RandomAct() {
  AdminCommand command;
  const uint64_t choice = random().Below(100);
  if (choice < 40) {
    AdminResize resize;
    resize.change = static_cast<AdminResize::Change>(random().Below(3));
    resize.amount = static_cast<uint32_t>(
        resize.change == AdminResize::Change::kSet ? random().Between(1, 5) : 1);
    resize.limit_max = 8;
    resize.policy = static_cast<ShrinkPolicy>(random().Below(3));
    resize.grace_ms = random().Between(0, 3000);
    command.act = resize;
  } else if (choice < 60) {
    command.act = AdminPause{random().Chance(0.5)};
  } else if (choice < 75) {
    AdminRevoke revoke;
    revoke.grace_ms = random().Between(0, 2000);
    command.act = revoke;
  } else if (choice < 85) {
    AdminConfigure configure;
    configure.settings.backfill = random().Chance(0.3);
    configure.settings.longest_hold_ms = random().Chance(0.3) ? random().Between(1000, 5000) : 0;
    configure.settings.recall_grace_ms = random().Between(0, 2000);
    configure.settings.permits_per_holder = random().Chance(0.2) ? 2 : 0;
    command.act = configure;
  } else if (choice < 95) {
    command.act = AdminDestroy{static_cast<DestroyPolicy>(random().Below(3))};
  } else {
    command.act = AdminCreate{static_cast<uint32_t>(random().Between(1, 4)), {}};
  }
  return command;
}

AdminCommand AdminClient::RandomTicketAct(const std::string& semaphore) {
  AdminCommand command;
  const Id ticket = checks().tickets().AnyTicket(semaphore);
  const uint64_t choice = random().Below(100);
  if (choice < 30) {
    command.act = AdminCancelTicket{ticket, random().Chance(0.5)};
  } else if (choice < 60) {
    command.act = AdminPrioritizeTicket{ticket, static_cast<int32_t>(random().Between(-1, 1))};
  } else if (choice < 85) {
    command.act = AdminRequeue{random().Chance(0.3) ? Id{} : ticket};
  } else {
    command.act = AdminPurge{random().Chance(0.3) ? Id{} : ticket};
  }
  return command;
}

void AdminClient::Ask() {
  NewStage();
  checks().tickets().Administers(client_id_, command_);
  if (ConnectAnywhere()) {
    call_ = Send([command = command_](Connection& c, uint64_t tag) { c.Administer(tag, command); });
  }
  Later(random().Between(500, 3000) * kMillisecond, [this] { Ask(); });
}

void AdminClient::Handle(const Reply& reply) {
  if (!acting_ || reply.tag != call_) return;
  if (reply.kind == Reply::Kind::kRefused && reply.code == absl::StatusCode::kUnavailable)
    return HandleBroken();
  if (around_->winding_down && to_clean_ > 0) return CleanUp();
  Think();
}

void AdminClient::HandleBroken() {
  NewStage();
  Disconnect();
  Later(random().Between(50, 500) * kMillisecond, [this] {
    if (acting_) Ask();
  });
}

// Three acts for each semaphore: resumed, large enough for everyone, and as it is by default.
void AdminClient::CleanUp() {
  if (to_clean_ == 0) {
    to_clean_ = 3 * around_->semaphores + 1;
    // What is under way might land behind it.
    if (acting_) return;
  }
  if (--to_clean_ == 0) return Think();
  acting_ = true;
  command_ = {};
  command_.requester = {client_id_, ++sequence_};
  command_.semaphore = absl::StrCat("s", (to_clean_ - 1) / 3);
  if (to_clean_ % 3 == 0) command_.act = AdminPause{false};
  if (to_clean_ % 3 == 1) command_.act = AdminConfigure{};
  if (to_clean_ % 3 == 2) {
    AdminResize resize;
    resize.amount = 4;
    resize.limit_max = 8;
    command_.act = resize;
  }
  Ask();
}

}  // namespace semaphored::simulation
