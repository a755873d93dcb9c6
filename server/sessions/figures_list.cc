#include "server/sessions/figures_list.h"

#include <utility>

namespace semaphored {
namespace {

constexpr uint32_t kListRows = 10'000;
// Where the engine does not push, each reading is paid for, and a list is the largest.
constexpr int64_t kListPauseUnpushed = 20;

}  // namespace

void FiguresList::Refresh(absl::AnyInvocable<void()> done) {
  if (!waiting_.empty()) {
    waiting_.push_back(std::move(done));
    return;
  }
  const bool lists = metrics_->on() && interval_ms_ > 0 && host_->guarantees().names;
  const SteadyTime now = host_->clock().Now();
  if (!lists || now < due_at_) return done();
  due_at_ = now + Milliseconds(interval_ms_ * (host_->guarantees().push ? 1 : kListPauseUnpushed));
  waiting_.push_back(std::move(done));
  metrics_->BeginList();
  ListFrom("", kListRows);
}

void FiguresList::ListFrom(const std::string& after, uint32_t rows_left) {
  ListCommand list;
  list.after = after;
  list.rows_max = rows_left;
  lists_->Add(std::move(list), [this, rows_left](const Result<AdminAnswer>& result) {
    if (!result.ok()) return End();
    const Report& report = *result.value.report;
    metrics_->List(report.infos);
    const bool more = report.more && !report.infos.empty();
    const auto rows = static_cast<uint32_t>(report.infos.size());
    if (more && rows < rows_left) return ListFrom(report.infos.back().row.name, rows_left - rows);
    metrics_->EndList(!more);
    End();
  });
}

void FiguresList::End() {
  for (auto& done : std::exchange(waiting_, {})) done();
}

}  // namespace semaphored
