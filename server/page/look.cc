#include "server/page/look.h"

#include <algorithm>
#include <iterator>

namespace semaphored::page {
namespace {

SemaphoreLine LineOf(SemaphoreInfo info) {
  SemaphoreLine line;
  line.name = std::move(info.row.name);
  line.limit = info.row.limit;
  line.held = info.held;
  line.waiting = info.waiting;
  line.offers = info.offers;
  if (!info.waiters.empty()) line.oldest_unix_ms = info.waiters.front().waiter->queued_at_unix_ms;
  line.paused = info.row.paused;
  line.destroying = info.row.destroying;
  line.tickets = info.tickets;
  return line;
}

}  // namespace

// On the thread of Sessions, until it is done; then its taker's.
class Looker::Taking : public std::enable_shared_from_this<Taking> {
 public:
  Taking(const Clock* clock, Sessions* sessions, uint32_t slice_rows, Wanted wanted)
      : look(std::make_unique<Look>()),
        clock_(clock),
        sessions_(sessions),
        slice_rows_(slice_rows),
        wanted_(std::move(wanted)) {}

  std::future<void> done() { return done_.get_future(); }

  void Begin() {
    ++open_;  // Replies may come within these calls.
    if (wanted_.list) BeginList();
    if (wanted_.sessions) look->sessions = ListSessions(*sessions_, kSessionsMax);
    for (const auto& [name, states] : wanted_.semaphores) {
      SemaphoreLook* found = &look->semaphores[name];
      Describe(name, AdminDescribe{Slice(SemaphoreLook::kRowsMax)}, found);
      for (const std::vector<TicketState>& each : states) {
        if (!each.empty()) ListTickets(name, each, found);
      }
    }
    End();
  }

  std::unique_ptr<Look> look;

 private:
  uint32_t Slice(uint32_t rows) const { return std::min(rows, slice_rows_); }
  void End() {
    if (--open_ == 0) done_.set_value();
  }

  void BeginList() {
    ++open_;
    look->listing.emplace().begun_at = clock_->Now();
    ListFrom("");
  }

  void ListFrom(const std::string& after) {
    ListCommand list;
    list.after = after;
    list.rows_max = Listing::kRowsMax - static_cast<uint32_t>(look->listing->lines.size());
    sessions_->List(std::move(list), [self = shared_from_this()](Result<AdminAnswer> result) {
      self->OnSlice(std::move(result));
    });
  }

  void OnSlice(Result<AdminAnswer> result) {
    if (!result.ok()) {
      look->listing.reset();
      return End();
    }
    Listing& listing = *look->listing;
    Report& report = *result.value.report;
    for (SemaphoreInfo& info : report.infos) listing.lines.push_back(LineOf(std::move(info)));
    if (report.more && !report.infos.empty() && listing.lines.size() < Listing::kRowsMax)
      return ListFrom(std::string(listing.lines.back().name));
    listing.more = report.more;
    listing.took = clock_->Now() - listing.begun_at;
    End();
  }

  void Describe(const std::string& name, AdminDescribe describe, SemaphoreLook* found) {
    ++open_;
    AdminCommand command;
    command.semaphore = name;
    command.act = describe;
    sessions_->Administer(std::move(command), 0,
                          [self = shared_from_this(), name, found](Result<AdminAnswer> result) {
                            self->OnPage(name, std::move(result), found);
                            self->End();
                          });
  }

  void OnPage(const std::string& name, Result<AdminAnswer> result, SemaphoreLook* found) {
    if (!result.ok() || !result.value.report->info) {
      if (result.ok()) return;
      found->refusal = std::move(result.refusal);
      return;
    }
    SemaphoreInfo page = *std::move(result.value.report->info);
    SemaphoreInfo& info = found->info;
    std::vector<LeasePtr> leases = std::move(info.leases);
    std::vector<WaiterInfo> waiters = std::move(info.waiters);
    std::ranges::move(page.leases, std::back_inserter(leases));
    std::ranges::move(page.waiters, std::back_inserter(waiters));
    info = std::move(page);
    info.leases = std::move(leases);
    info.waiters = std::move(waiters);
    AdminDescribe next;
    next.leases = info.leases_next.has_value() && info.leases.size() < SemaphoreLook::kRowsMax;
    next.waiters = info.waiters_next.has_value() && info.waiters.size() < SemaphoreLook::kRowsMax;
    if (info.leases_next.has_value() && !next.leases) found->leases_more = true;
    if (!next.leases && !next.waiters) return;
    const size_t rows =
        std::max(next.leases ? info.leases.size() : 0, next.waiters ? info.waiters.size() : 0);
    next.rows_max = Slice(SemaphoreLook::kRowsMax - static_cast<uint32_t>(rows));
    next.leases_after = info.leases_next;
    next.waiters_after = info.waiters_next;
    Describe(name, next, found);
  }

  void ListTickets(const std::string& name, const std::vector<TicketState>& states,
                   SemaphoreLook* found) {
    ++open_;
    AdminCommand command;
    command.semaphore = name;
    command.act = AdminListTickets{0, Slice(SemaphoreLook::kRowsMax), states};
    TicketList* tickets = &found->tickets[states];
    sessions_->Administer(std::move(command), 0,
                          [self = shared_from_this(), tickets](Result<AdminAnswer> result) {
                            if (result.ok()) {
                              tickets->tickets = std::move(result.value.report->tickets);
                              tickets->more = result.value.report->more;
                              tickets->holders = std::move(result.value.ticket_holders);
                            }
                            self->End();
                          });
  }

  const Clock* const clock_;
  Sessions* const sessions_;
  const uint32_t slice_rows_;
  const Wanted wanted_;
  size_t open_ = 0;
  std::promise<void> done_;
};

std::unique_ptr<Look> Looker::Take(Wanted wanted, Milliseconds patience) {
  if (under_way_ == nullptr) {
    under_way_ = std::make_shared<Taking>(clock_, sessions_, slice_rows_, std::move(wanted));
    done_ = under_way_->done();
    post_([taking = under_way_] { taking->Begin(); });
  }
  if (done_.wait_for(patience) != std::future_status::ready) return nullptr;
  return std::move(std::exchange(under_way_, nullptr)->look);
}

}  // namespace semaphored::page
