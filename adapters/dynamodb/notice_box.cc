#include "adapters/dynamodb/notice_box.h"

#include <algorithm>
#include <utility>

#include "adapters/dynamodb/table.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

constexpr int kShareOfSilence = 8;
// Notices that were received cost nothing while all of them fit the 4 KB that are read at once anyway.
constexpr size_t kNoticesLeft = 16;
constexpr size_t kNoticesDroppedAtOnce = 16;
// One that is written again and again would be deleted in vain.
constexpr std::chrono::seconds kHeardLongAgo{10};
constexpr size_t kNoticesKeptMax = 10'000;
constexpr std::chrono::seconds kAskedAgainAfterFailure{1};
constexpr std::chrono::seconds kPatience{2};

}  // namespace

SteadyTime PollPace::Next(SteadyTime asked_at, bool waiting) const {
  if (!waiting) return asked_at + max_;
  const auto share = (asked_at - std::min(stirred_at_, asked_at)) / kShareOfSilence;
  return asked_at + std::clamp<SteadyTime::duration>(share, min_, max_);
}

// ---- notices ----

std::optional<StoredNotice> ReadNotice(const json& item) {
  try {
    StoredNotice notice;
    notice.semaphore = KeyOf(item).sort;
    notice.revision = NumberIn(item, "revision");
    notice.details = TextIn(item, "news");
    notice.stamp = TextIn(item, "stamp");
    return notice;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

json WriteNotice(uint32_t node, const StoredNotice& notice, int64_t expires_at_s) {
  json item = ItemWith(NoticeKey(node, notice.semaphore));
  SetNumber(&item, "revision", notice.revision);
  SetText(&item, "news", notice.details);
  SetText(&item, "stamp", notice.stamp);
  SetSigned(&item, kExpiresAt, expires_at_s);
  return item;
}

NoticeSorter::Sorted NoticeSorter::Sort(const std::vector<json>& items, SteadyTime now) {
  Sorted sorted;
  ++round_;
  for (const json& item : items) {
    std::optional<StoredNotice> notice = ReadNotice(item);
    if (!notice) continue;
    Heard& heard = heard_[notice->semaphore];
    heard.round = round_;
    if (heard.stamp != notice->stamp) {
      heard.stamp = notice->stamp;
      heard.at = now;
      sorted.notices.push_back({notice->semaphore, notice->revision, std::move(notice->details)});
    } else if (items.size() > kNoticesLeft && now - heard.at >= kHeardLongAgo &&
               sorted.heard_long_ago.size() < kNoticesDroppedAtOnce) {
      sorted.heard_long_ago.push_back(*std::move(notice));
    }
  }
  absl::erase_if(heard_, [&](const auto& each) { return each.second.round != round_; });
  return sorted;
}

// ---- a lane's ----

NoticeBox::Ear::Ear(NoticeBox* notice_box) : notice_box_(notice_box) {
  const std::lock_guard lock(notice_box_->mutex_);
  notice_box_->ears_.push_back(this);
}

NoticeBox::Ear::~Ear() {
  const std::lock_guard lock(notice_box_->mutex_);
  std::erase(notice_box_->ears_, this);
}

std::vector<ledger::ChangeNotice> NoticeBox::Ear::Take(SteadyTime deadline) {
  std::unique_lock lock(notice_box_->mutex_);
  const auto ready = [&] { return woken_ || missed_ || !heard_.empty(); };
  if (deadline > SteadyClock::now()) {
    WaitUntil(changed_, lock, deadline, ready);
    woken_ = false;
  }
  return std::exchange(heard_, {});
}

bool NoticeBox::Ear::TakeMissed() {
  const std::lock_guard lock(notice_box_->mutex_);
  return std::exchange(missed_, false);
}

void NoticeBox::Ear::Tell(size_t waiting, size_t holding) {
  const std::lock_guard lock(notice_box_->mutex_);
  const bool more = waiting > waiting_;
  const bool first = waiting_ + holding_ == 0 && waiting + holding != 0;
  waiting_ = waiting;
  holding_ = holding;
  if (more) notice_box_->pace_.Stir(SteadyClock::now());
  if (more || first) notice_box_->stirred_.notify_one();
}

void NoticeBox::Ear::Wake() {
  const std::lock_guard lock(notice_box_->mutex_);
  woken_ = true;
  changed_.notify_one();
}

// ---- the thread ----

NoticeBox::NoticeBox(const Url& url, std::shared_ptr<CredentialSource> credentials, uint32_t node,
                     std::shared_ptr<Upkeep> upkeep)
    : table_(url.table),
      partition_(NoticePartition(node)),
      node_(node),
      timeout_(std::min<std::chrono::milliseconds>(url.timeout, kPatience)),
      upkeep_(std::move(upkeep)),
      client_(url, std::move(credentials)),
      pace_(url.poll_min, url.poll_max),
      thread_([this] { Run(); }) {}

NoticeBox::~NoticeBox() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    stirred_.notify_one();
  }
  thread_.join();
}

absl::Status NoticeBox::Ask() {
  const SteadyTime now = SteadyClock::now();
  Range range;
  range.partition = partition_;
  const auto items = QueryAll(&client_, table_, {range}, now + timeout_);
  if (!items.ok()) return items.status();
  NoticeSorter::Sorted sorted = sorter_.Sort(items->front(), now);
  if (!sorted.notices.empty()) {
    const std::lock_guard lock(mutex_);
    pace_.Stir(SteadyClock::now());
    for (Ear* ear : ears_) {
      ear->missed_ = ear->missed_ || ear->heard_.size() > kNoticesKeptMax;
      if (ear->missed_) ear->heard_.clear();
      ear->heard_.insert(ear->heard_.end(), sorted.notices.begin(), sorted.notices.end());
      ear->changed_.notify_one();
    }
  }
  Drop(sorted.heard_long_ago);
  return absl::OkStatus();
}

// Deletes them, but not a notice that was rewritten meanwhile.
void NoticeBox::Drop(const std::vector<StoredNotice>& notices) {
  if (notices.empty()) return;
  std::vector<Request> requests;
  requests.reserve(notices.size());
  for (const StoredNotice& notice : notices) {
    requests.push_back(DeleteItem(table_, NoticeKey(node_, notice.semaphore),
                                  Condition::IsText("stamp", notice.stamp)));
  }
  RunUpkeep(&client_, requests, UpkeepWork::kNotices, upkeep_.get(), SteadyClock::now() + timeout_);
}

void NoticeBox::Run() {
  SteadyTime asked_at{};
  bool failed = false;
  std::unique_lock lock(mutex_);
  while (!ending_) {
    size_t waiting = 0;
    size_t holding = 0;
    for (const Ear* ear : ears_) {
      waiting += ear->waiting_;
      holding += ear->holding_;
    }
    if (waiting + holding == 0) {
      stirred_.wait(lock);
      continue;
    }
    SteadyTime next = pace_.Next(asked_at, waiting != 0);
    if (failed) next = std::max(next, asked_at + kAskedAgainAfterFailure);
    if (SteadyClock::now() < next) {
      stirred_.wait_for(lock,
                        std::min<SteadyClock::duration>(next - SteadyClock::now(), kLongestSleep));
      continue;
    }
    lock.unlock();
    asked_at = SteadyClock::now();
    const absl::Status status = Ask();
    // What was written meanwhile stays until it is heard.
    upkeep_->Note(UpkeepWork::kNotices, status);
    failed = !status.ok();
    lock.lock();
  }
}

}  // namespace semaphored::dynamodb
