#include "server/sessions/lists.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "server/sessions/refusals.h"

namespace semaphored {

void Lists::Add(ListCommand list, Reply<AdminAnswer> reply) {
  if (stopped_) return reply({std::make_unique<Refusal>(ShuttingDownRefusal()), {}});
  list.rows_max = std::min(list.rows_max, rows_max_);
  waiting_.push_back({std::move(list), std::move(reply)});
  ReadNext();
}

void Lists::ReadNext() {
  while (!waiting_.empty() && rows_under_way_ + waiting_.front().slice.rows_max <= rows_max_) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const uint32_t rows = next.slice.rows_max;
    rows_under_way_ += rows;
    read_(std::move(next.slice),
          [this, rows, reply = std::move(next.reply)](Result<AdminAnswer> result) mutable {
            rows_under_way_ -= rows;
            reply(std::move(result));
            ReadNext();
          });
  }
}

std::vector<Reply<AdminAnswer>> Lists::Stop() {
  stopped_ = true;
  std::vector<Reply<AdminAnswer>> replies;
  replies.reserve(waiting_.size());
  for (Waiting& each : std::exchange(waiting_, {})) replies.push_back(std::move(each.reply));
  return replies;
}

// ---- A slice from the lanes ----

namespace {

// One slice, and the lanes whose parts of it have not come yet.
struct Merging {
  size_t left;
  uint32_t rows_max;
  Result<AdminAnswer> result;
  Reply<AdminAnswer> reply;

  void Add(absl::StatusOr<Outcome> outcome, const std::string& adapter) {
    Report& report = *result.value.report;
    if (!outcome.ok()) {
      result.refusal = std::make_unique<Refusal>(RefusalOf(outcome.status(), ""));
    } else if (outcome->kind != OutcomeKind::kDone) {
      result.refusal = std::make_unique<Refusal>(RefusalOf(*outcome, "", adapter));
    } else {
      report.more |= outcome->report->more;
      std::ranges::move(outcome->report->infos, std::back_inserter(report.infos));
    }
  }
  void End() {
    Report& report = *result.value.report;
    std::ranges::sort(report.infos, {}, [](const SemaphoreInfo& info) { return info.row.name; });
    if (report.infos.size() > rows_max) {
      report.infos.resize(rows_max);
      report.more = true;
    }
    reply(std::move(result));
  }
};

}  // namespace

Lists::Read ReadFromLanes(SessionsHost* host) {
  return [host](const ListCommand& slice, Reply<AdminAnswer> reply) {
    const bool shared = !host->guarantees().exclusive;
    auto merging = std::make_shared<Merging>(
        Merging{shared ? 1 : host->lane_count(), slice.rows_max, {}, std::move(reply)});
    merging->result.value.report = std::make_unique<Report>();
    merging->result.value.done = true;
    for (size_t lane = 0; lane < merging->left; ++lane) {
      host->Submit(lane, Job{slice, [host, merging](absl::StatusOr<Outcome> outcome) {
                               merging->Add(std::move(outcome), host->guarantees().adapter);
                               if (--merging->left == 0) merging->End();
                             }});
    }
  };
}

}  // namespace semaphored
