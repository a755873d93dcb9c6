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
  command_ =
      around_->tickets && random().Chance(0.4) ? RandomTicketAct(semaphore) : RandomAct(semaphore);
  command_.requester = {client_id_, ++sequence_};
  command_.semaphore = semaphore;
  const StoredSemaphore* stored = around_->engine->Find(semaphore);
  if (stored != nullptr && random().Chance(0.15))
    command_.expected_revision = stored->row.revision - (random().Chance(0.2) ? 1 : 0);
  asked_at_us_ = world().now();
  Trace(absl::StrCat("does act ", command_.act.index(), " on ", command_.semaphore));
  Ask();
}

AdminResize AdminClient::RandomResize() {
  AdminResize resize;
  resize.change = static_cast<AdminResize::Change>(random().Below(3));
  resize.amount = static_cast<uint32_t>(
      resize.change == AdminResize::Change::kSet ? random().Between(1, 5) : 1);
  resize.limit_max = 8;
  resize.policy = static_cast<ShrinkPolicy>(random().Below(3));
  resize.grace_ms = RandomGrace(3000);
  return resize;
}

int64_t AdminClient::RandomGrace(int64_t most_ms) {
  if (random().Chance(0.1)) return Recall::kOwnGrace;
  if (around_->acts_now && random().Chance(0.3)) return Recall::kNow;
  return random().Chance(0.2) ? 1 : random().Between(1, most_ms);
}

// One lease, those of a holder, or all.
AdminRevoke AdminClient::RandomRevoke(const std::string& semaphore) {
  AdminRevoke revoke;
  revoke.grace_ms = RandomGrace(2000);
  const StoredSemaphore* stored = around_->engine->Find(semaphore);
  if (stored == nullptr || stored->leases.empty() || random().Chance(0.4)) return revoke;
  const auto lease = std::next(stored->leases.begin(),
                               static_cast<ptrdiff_t>(random().Below(stored->leases.size())));
  if (random().Chance(0.5)) {
    revoke.claim = lease->first;
  } else {
    revoke.holder = lease->second.holder;
  }
  return revoke;
}

AdminCommand AdminClient::RandomAct(const std::string& semaphore) {
  AdminCommand command;
  const uint64_t choice = random().Below(100);
  if (choice < 32) {
    command.act = RandomResize();
  } else if (choice < 47) {
    command.act = AdminPause{random().Chance(0.5)};
  } else if (choice < 64) {
    command.act = RandomRevoke(semaphore);
  } else if (choice < 78) {
    AdminConfigure configure;
    configure.settings.backfill = random().Chance(0.3);
    configure.settings.longest_hold_ms = random().Chance(0.3) ? random().Between(1000, 5000) : 0;
    configure.settings.recall_grace_ms = random().Between(0, 2000);
    configure.settings.permits_per_holder =
        random().Chance(0.5) ? static_cast<uint32_t>(random().Between(1, 3)) : 0;
    command.act = configure;
  } else if (choice < 86) {
    command.act = AdminDestroy{static_cast<DestroyPolicy>(random().Below(3)), RandomGrace(2000)};
  } else if (choice < 90) {
    command.act = AdminCreate{static_cast<uint32_t>(random().Between(1, 4)), {}};
  } else if (choice < 92) {
    command.act = AdminPrune{};
  } else {
    command.act = AdminDescribe{};
  }
  return command;
}

AdminCommand AdminClient::RandomTicketAct(const std::string& semaphore) {
  AdminCommand command;
  const Id ticket = checks().tickets().AnyTicket(semaphore);
  const StoredSemaphore* stored = around_->engine->Find(semaphore);
  if (stored != nullptr && stored->tickets.size() > 60 && random().Chance(0.5)) {
    if (random().Chance(0.5)) command.act = AdminRequeue{};
    if (command.act.index() == 0) command.act = AdminPurge{};
    return command;
  }
  const uint64_t choice = random().Below(100);
  if (choice < 5) {
    command.act = AdminListTickets{};
  } else if (choice < 10) {
    command.act = AdminShowTicket{ticket};
  } else if (choice < 30) {
    command.act = AdminCancelTicket{ticket, around_->acts_now && random().Chance(0.5)};
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
  checks().counts().Administers(client_id_, command_);
  if (ConnectAnywhere()) {
    call_ = Send([command = command_](Connection& c, uint64_t tag) { c.Administer(tag, command); });
  }
  // Now and then it is impatient: the same act again, at another daemon.
  const int64_t patience_ms =
      random().Chance(0.1) ? random().Between(1, 50) : random().Between(500, 3000);
  Later(patience_ms * kMillisecond, [this] { Ask(); });
}

void AdminClient::CheckAnswer(const Reply& reply) {
  const bool question = std::holds_alternative<AdminDescribe>(command_.act) ||
                        std::holds_alternative<AdminListTickets>(command_.act) ||
                        std::holds_alternative<AdminShowTicket>(command_.act);
  if (!question)
    checks().counts().WasDone(client_id_, command_.requester.sequence, reply.affected,
                              reply.changed);
  if (!reply.shown) return;
  checks().counts().WasShown(command_.semaphore, reply.shown->held, reply.shown->waiting,
                             reply.shown->limit, asked_at_us_);
}

void AdminClient::Handle(const Reply& reply) {
  if (!acting_ || reply.tag != call_) return;
  // With small limits there may be no room for one requester more for a while.
  const bool cleans = std::holds_alternative<AdminPause>(command_.act) ||
                      std::holds_alternative<AdminConfigure>(command_.act) ||
                      std::holds_alternative<AdminResize>(command_.act);
  const bool must = around_->winding_down && cleans && reply.reason == Reason::kLimitReached;
  if (IsForLater(reply) || must) return HandleBroken();
  if (reply.kind == Reply::Kind::kDone) CheckAnswer(reply);
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
  asked_at_us_ = world().now();
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
