#include "adapters/dynamodb/mailbox.h"

#include <algorithm>
#include <utility>

#include "adapters/dynamodb/table.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

constexpr int kShareOfSilence = 8;
// Word that was heard costs nothing while all of it fits the 4 KB that are read at once anyway.
constexpr size_t kWordsLeft = 16;
constexpr size_t kWordsDroppedAtOnce = 16;
// One that is written again and again would be deleted in vain.
constexpr std::chrono::seconds kHeardLongAgo{10};
constexpr size_t kHintsKeptMax = 10'000;
constexpr std::chrono::seconds kAskedAgainAfterFailure{1};
constexpr std::chrono::seconds kPatience{2};

}  // namespace

SteadyTime PollPace::Next(SteadyTime asked_at, bool waiting) const {
  if (!waiting) return asked_at + max_;
  const auto share = (asked_at - std::min(stirred_at_, asked_at)) / kShareOfSilence;
  return asked_at + std::clamp<SteadyTime::duration>(share, min_, max_);
}

// ---- words ----

std::optional<Word> ReadWord(const json& item) {
  try {
    Word word;
    word.semaphore = KeyOf(item).sort;
    word.revision = NumberIn(item, "revision");
    word.details = TextIn(item, "news");
    word.stamp = TextIn(item, "stamp");
    return word;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

json WriteWord(uint32_t node, const Word& word, int64_t expires_at_s) {
  json item = ItemWith(MailKey(node, word.semaphore));
  SetNumber(&item, "revision", word.revision);
  SetText(&item, "news", word.details);
  SetText(&item, "stamp", word.stamp);
  SetSigned(&item, kExpiresAt, expires_at_s);
  return item;
}

MailSorter::Sorted MailSorter::Sort(const std::vector<json>& items, SteadyTime now) {
  Sorted sorted;
  ++round_;
  for (const json& item : items) {
    std::optional<Word> word = ReadWord(item);
    if (!word) continue;
    Heard& heard = heard_[word->semaphore];
    heard.round = round_;
    if (heard.stamp != word->stamp) {
      heard.stamp = word->stamp;
      heard.at = now;
      sorted.hints.push_back({word->semaphore, word->revision, std::move(word->details)});
    } else if (items.size() > kWordsLeft && now - heard.at >= kHeardLongAgo &&
               sorted.heard_long_ago.size() < kWordsDroppedAtOnce) {
      sorted.heard_long_ago.push_back(*std::move(word));
    }
  }
  absl::erase_if(heard_, [&](const auto& each) { return each.second.round != round_; });
  return sorted;
}

// ---- a lane's ----

Mailbox::Ear::Ear(Mailbox* mailbox) : mailbox_(mailbox) {
  const std::lock_guard lock(mailbox_->mutex_);
  mailbox_->ears_.push_back(this);
}

Mailbox::Ear::~Ear() {
  const std::lock_guard lock(mailbox_->mutex_);
  std::erase(mailbox_->ears_, this);
}

std::vector<ledger::Hint> Mailbox::Ear::Take(SteadyTime deadline) {
  std::unique_lock lock(mailbox_->mutex_);
  const auto ready = [&] { return woken_ || missed_ || !heard_.empty(); };
  if (deadline > SteadyClock::now()) {
    WaitUntil(changed_, lock, deadline, ready);
    woken_ = false;
  }
  return std::exchange(heard_, {});
}

bool Mailbox::Ear::TakeMissed() {
  const std::lock_guard lock(mailbox_->mutex_);
  return std::exchange(missed_, false);
}

void Mailbox::Ear::Tell(size_t waiting, size_t holding) {
  const std::lock_guard lock(mailbox_->mutex_);
  const bool more = waiting > waiting_;
  const bool first = waiting_ + holding_ == 0 && waiting + holding != 0;
  waiting_ = waiting;
  holding_ = holding;
  if (more) mailbox_->pace_.Stir(SteadyClock::now());
  if (more || first) mailbox_->stirred_.notify_one();
}

void Mailbox::Ear::Wake() {
  const std::lock_guard lock(mailbox_->mutex_);
  woken_ = true;
  changed_.notify_one();
}

// ---- the thread ----

Mailbox::Mailbox(const Url& url, std::shared_ptr<CredentialSource> credentials, uint32_t node,
                 std::shared_ptr<Upkeep> upkeep)
    : table_(url.table),
      partition_(MailPartition(node)),
      node_(node),
      timeout_(std::min<std::chrono::milliseconds>(url.timeout, kPatience)),
      upkeep_(std::move(upkeep)),
      client_(url, std::move(credentials)),
      pace_(url.poll_min, url.poll_max),
      thread_([this] { Run(); }) {}

Mailbox::~Mailbox() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    stirred_.notify_one();
  }
  thread_.join();
}

absl::Status Mailbox::Ask() {
  const SteadyTime now = SteadyClock::now();
  Range range;
  range.partition = partition_;
  const auto items = QueryAll(&client_, table_, {range}, now + timeout_);
  if (!items.ok()) return items.status();
  MailSorter::Sorted sorted = sorter_.Sort(items->front(), now);
  if (!sorted.hints.empty()) {
    const std::lock_guard lock(mutex_);
    pace_.Stir(SteadyClock::now());
    for (Ear* ear : ears_) {
      ear->missed_ = ear->missed_ || ear->heard_.size() > kHintsKeptMax;
      if (ear->missed_) ear->heard_.clear();
      ear->heard_.insert(ear->heard_.end(), sorted.hints.begin(), sorted.hints.end());
      ear->changed_.notify_one();
    }
  }
  Drop(sorted.heard_long_ago);
  return absl::OkStatus();
}

// Deletes them, but not a word that was rewritten meanwhile.
void Mailbox::Drop(const std::vector<Word>& words) {
  if (words.empty()) return;
  std::vector<Request> requests;
  requests.reserve(words.size());
  for (const Word& word : words) {
    requests.push_back(
        DeleteItem(table_, MailKey(node_, word.semaphore), Condition::IsText("stamp", word.stamp)));
  }
  RunUpkeep(&client_, requests, UpkeepWork::kNotices, upkeep_.get(), SteadyClock::now() + timeout_);
}

void Mailbox::Run() {
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
