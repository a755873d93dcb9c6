// A store that owns its state: everything is loaded once, and changes only by this lane's commits.
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/view.h"

namespace semaphored::ledger {
namespace {

class ExclusiveView : public View {
 public:
  ExclusiveView(Core* core, LedgerStore* store) : core_(core), store_(store) {}

  absl::Status Start() override;
  absl::Status Prepare(absl::Span<const Submission>) override { return absl::OkStatus(); }
  void AddConditions(Transaction*) override {}
  CommitResult Check(const Transaction&) override { return {}; }
  absl::Status Listen(SteadyTime deadline) override { return store_->Wait(deadline).status(); }
  absl::StatusOr<std::optional<Outcome>> Answer(const Command&) override { return std::nullopt; }
  bool CarriesOn(const SemaphoreRow&) const override { return true; }
  bool DecidesAgain() const override { return false; }
  absl::Status LearnWhyLost(const Transaction&, const CommitResult&) override {
    return absl::OkStatus();
  }
  absl::Status Refresh(std::vector<std::string>) override { return absl::OkStatus(); }

 private:
  Core* const core_;
  LedgerStore* const store_;
};

absl::Status ExclusiveView::Start() {
  absl::StatusOr<Image> image = store_->LoadAll();
  if (!image.ok()) return image.status();
  for (SessionPtr& session : image->sessions)
    core_->state.Apply(SessionChange{nullptr, std::move(session)});
  for (LoadedClient& client : image->clients)
    core_->requests.AddStored(client.number, std::move(client.client_id), client.sequence_high);
  for (const Id& one_shot : image->one_shots) core_->requests.AddStored(one_shot);
  for (LoadedSemaphore& loaded : image->semaphores) {
    Semaphore* semaphore = core_->state.Insert(std::move(loaded.row));
    for (LeasePtr& lease : loaded.leases)
      lease->longest_hold_ms = semaphore->row.settings.longest_hold_ms;
    for (LeasePtr& lease : loaded.leases)
      core_->state.Apply(semaphore, LeaseChange{nullptr, std::move(lease), EndCause::kNone});
    for (WaiterPtr& waiter : loaded.waiters)
      core_->state.Apply(semaphore, WaiterChange{nullptr, std::move(waiter), EndCause::kNone});
    for (TicketPtr& ticket : loaded.tickets)
      core_->state.Apply(semaphore, TicketChange{nullptr, std::move(ticket), nullptr});
  }
  for (const auto& [name, semaphore] : core_->state) {
    if (semaphore->row.destroying || !semaphore->row.intentions.empty()) core_->serving.Add(name);
  }
  const std::string wrong = core_->state.CheckInvariants();
  if (!wrong.empty()) return absl::DataLossError(absl::StrCat(core_->can.adapter, ": ", wrong));
  absl::StatusOr<std::vector<HistoryRow>> history = store_->ReadHistory("", 0, 10'000);
  if (!history.ok())
    return absl::IsUnimplemented(history.status()) ? absl::OkStatus() : history.status();
  for (auto row = history->rbegin(); row != history->rend(); ++row)
    core_->ends.Add(row->lease->id, row->cause);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<View> MakeExclusiveView(Core* core, LedgerStore* store) {
  return std::make_unique<ExclusiveView>(core, store);
}

}  // namespace semaphored::ledger
