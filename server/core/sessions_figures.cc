// What is counted of claims, and the list of the engine's semaphores that goes with it.
#include <utility>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

constexpr uint32_t kListRows = 10'000;
// Where the engine does not push each reading is paid for, and a list is the largest.
constexpr int64_t kListPauseUnpushed = 20;

}  // namespace

void SessionsImpl::CountFound(ClaimRecord* record) {
  if (!metrics_.on()) return;
  if (record->lease != nullptr) {
    metrics_.Found(record->semaphore, &record->figures, record->lease->permits);
  } else if (!record->offers) {
    metrics_.Waiting(record->semaphore, &record->figures);
  }
}

void SessionsImpl::CountEnd(ClaimRecord* record, EndCause cause) {
  metrics_.Ended(&record->figures, cause);
  if (record->lease == nullptr || cause == EndCause::kReleased) return;
  lease_log_.Lost(record->semaphore, *record->lease, cause, record->trace);
}

void SessionsImpl::Figures(SessionsFigures* out) {
  if (!metrics_.on()) return;
  metrics_.Snapshot(out);
  out->sessions = sessions_.size();
  out->sessions_open = by_listener_.size();
  // It may name some that have ended.
  for (const Id& id : workers_) {
    const SessionRecord* record = FindSession(id);
    out->workers += record != nullptr && record->worker != nullptr ? 1 : 0;
  }
}

void SessionsImpl::RefreshFigures(absl::AnyInvocable<void()> done) {
  const bool lists = metrics_.on() && options_.metrics_list_interval_ms > 0 &&
                     host_->guarantees().names && !stopping_;
  if (!figures_asked_.empty()) {
    figures_asked_.push_back(std::move(done));
    return;
  }
  if (!lists || Now() < figures_due_) return done();
  const int64_t pause = host_->guarantees().push ? 1 : kListPauseUnpushed;
  figures_due_ = Now() + Milliseconds(options_.metrics_list_interval_ms * pause);
  figures_asked_.push_back(std::move(done));
  metrics_.BeginList();
  ListForFigures("", kListRows);
}

void SessionsImpl::ListForFigures(const std::string& after, uint32_t rows_left) {
  ListCommand list;
  list.after = after;
  list.rows_max = rows_left;
  List(std::move(list), [this, rows_left](const Result<AdminAnswer>& result) {
    if (!result.ok()) return FiguresListed();
    const Report& report = *result.value.report;
    metrics_.List(report.infos);
    const bool more = report.more && !report.infos.empty();
    const auto rows = static_cast<uint32_t>(report.infos.size());
    if (more && rows < rows_left)
      return ListForFigures(report.infos.back().row.name, rows_left - rows);
    metrics_.EndList(!more);
    FiguresListed();
  });
}

void SessionsImpl::FiguresListed() {
  for (auto& done : std::exchange(figures_asked_, {})) done();
}

}  // namespace semaphored
