#include "adapters/rabbitmq/row_commit.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::rabbitmq {

using ledger::SemaphoreDelta;

namespace {

// Whether it was done is not known.
bool Unanswered(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

bool RowCommit::IsSame(SemaphoreDelta* delta) {
  if (!delta->before && !delta->after) return true;
  if (!delta->before) return false;
  delta->revision = delta->before->revision;
  if (!delta->after) return false;
  SemaphoreRow same = *delta->before;
  same.next_order = delta->after->next_order;
  return same == *delta->after;
}

std::optional<absl::Status> RowCommit::Apply(SemaphoreDelta* delta, bool again) {
  if (!delta->after) return Destroy(delta->name, again);
  bool unknown = false;
  absl::StatusOr<StoredSemaphore> stored = Write(*delta, again, &unknown);
  if (unknown) return std::nullopt;
  if (!stored.ok()) return stored.status();
  delta->revision = used_->Keep(delta->name, *std::move(stored))->stored().row.revision;
  return absl::OkStatus();
}

std::optional<absl::Status> RowCommit::Destroy(const std::string& name, bool again) {
  const UsedSemaphore* used = used_->Find(name);
  const uint64_t incarnation = used == nullptr ? 0 : used->stored().incarnation;
  bool begun = again;
  absl::Status gone = broker_->Destroy(name, incarnation, &begun);
  if (Unanswered(gone) && begun) return std::nullopt;
  if (gone.ok()) used_->Drop(name, /*ended=*/true);
  return gone;
}

absl::StatusOr<StoredSemaphore> RowCommit::Write(const SemaphoreDelta& delta, bool again,
                                                 bool* unknown) {
  if (again) {
    absl::StatusOr<std::optional<StoredSemaphore>> found = broker_->FindAct(delta.name, act_);
    *unknown = !found.ok();
    if (!found.ok()) return found.status();
    if (*found) return **std::move(found);
    return absl::UnavailableError(absl::StrCat(act_failed_, "; nothing was done, try again"));
  }
  static thread_local std::mt19937_64 random{std::random_device{}()};
  act_ = random();
  bool begun = false;
  absl::StatusOr<StoredSemaphore> stored = delta.before
                                               ? broker_->Update(*delta.after, act_, &begun)
                                               : broker_->Create(*delta.after, act_, &begun);
  *unknown = begun && Unanswered(stored.status());
  if (*unknown) act_failed_ = std::string(stored.status().message());
  return stored;
}

}  // namespace semaphored::rabbitmq
