#include "adapters/dynamodb/one_shots.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::dynamodb {
namespace {

constexpr int kPartitions = 256;
constexpr size_t kRemovedAtOnce = 50;

std::string PartitionAt(uint64_t number) {
  return absl::StrCat("ONESHOT#", absl::Hex(number, absl::kZeroPad2));
}

}  // namespace

Key OneShotKey(const Id& one_shot) {
  return {PartitionAt(one_shot.low % kPartitions), one_shot.Hex()};
}

void OneShotRows::ForgetLater(absl::Span<const Id> one_shots) {
  forgotten_.insert(forgotten_.end(), one_shots.begin(), one_shots.end());
}

void OneShotRows::ForgetSome(Client* client, SteadyTime deadline) {
  if (forgotten_.empty()) return;
  std::vector<Request> requests;
  while (!forgotten_.empty() && requests.size() < kRemovedAtOnce) {
    requests.push_back(DeleteItem(table_, OneShotKey(forgotten_.back()),
                                  Condition::IsText(kWrittenBy, written_by_)));
    forgotten_.pop_back();
  }
  RunUpkeep(client, requests, UpkeepWork::kRequests, upkeep_.get(), deadline);
}

void OneShotRows::SweepIfDue(Client* client, SteadyTime now, SteadyTime deadline) {
  if (!retention_) return;
  const std::chrono::milliseconds pause = *retention_ / kPartitions;
  if (!sweep_at_) sweep_at_ = now + pause;
  if (now < *sweep_at_) return;
  sweep_at_ = now + pause;
  seen_.resize(kPartitions);
  SweepPartition(client, std::exchange(next_, (next_ + 1) % kPartitions), now, deadline);
}

void OneShotRows::SweepPartition(Client* client, int number, SteadyTime now, SteadyTime deadline) {
  Range range;
  range.partition = PartitionAt(static_cast<uint64_t>(number));
  range.eventually = true;
  const auto items = QueryAll(client, table_, {range}, deadline);
  if (!items.ok()) return upkeep_->Failed(UpkeepWork::kRequests, items.status());
  PartitionSeen seen;
  std::vector<Request> requests;
  for (const json& item : items->front()) {
    const Key key = KeyOf(item);
    Seen now_seen{"", 0, now};
    try {
      if (!item.contains(kWrittenBy)) continue;  // It waits or stands.
      now_seen.written_by = TextIn(item, kWrittenBy);
      now_seen.asked_at_s = NumberIn(item, kAskedAt);
    } catch (const std::exception&) {
      upkeep_->Failed(UpkeepWork::kRequests,
                      absl::DataLossError(absl::StrCat("dynamodb: the row of the request ",
                                                       key.sort, " is not understood, and stays")));
      continue;
    }
    const auto before = seen_[static_cast<size_t>(number)].find(key.sort);
    if (before != seen_[static_cast<size_t>(number)].end() &&
        before->second.written_by == now_seen.written_by &&
        before->second.asked_at_s == now_seen.asked_at_s)
      now_seen.since = before->second.since;
    if (now >= now_seen.since + *retention_ && requests.size() < kRemovedAtOnce)
      requests.push_back(DeleteItem(
          table_, key,
          Condition::IsText(kWrittenBy, now_seen.written_by).And(kAskedAt, now_seen.asked_at_s)));
    seen[key.sort] = std::move(now_seen);
  }
  seen_[static_cast<size_t>(number)] = std::move(seen);
  RunUpkeep(client, requests, UpkeepWork::kRequests, upkeep_.get(), deadline);
}

}  // namespace semaphored::dynamodb
