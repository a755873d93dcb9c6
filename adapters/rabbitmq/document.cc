#include "adapters/rabbitmq/document.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/common/store_version.h"

namespace semaphored::rabbitmq {
namespace {

using nlohmann::json;

constexpr QueueOptions kKept{.quorum = true};
constexpr QueueOptions kMutex{.durable = false, .exclusive = true};
// Another's mutex, and a message that went back a moment ago, are free again soon.
constexpr int kTries = 60;
constexpr int kEmptyTries = 20;
constexpr std::chrono::milliseconds kPause{10};
constexpr size_t kDocumentBytesMax = 4 << 20;

absl::Status NotStored(Connection::Confirm confirm) {
  if (confirm == Connection::Confirm::kStored) return absl::OkStatus();
  if (confirm == Connection::Confirm::kNoQueue)
    return absl::NotFoundError("rabbitmq: the queue has gone");
  return absl::UnavailableError("rabbitmq: the broker did not confirm what was published");
}

// A program that declared it otherwise uses the name for something else.
absl::Status OfAnotherKind(const absl::Status& status) {
  if (!absl::IsFailedPrecondition(status)) return status;
  return absl::UnimplementedError(
      absl::StrCat(status.message(),
                   ": a queue of this name is there that semaphored did not make; delete it, or "
                   "choose another name"));
}

// Without a format it is of the first one.
absl::Status JudgeFormat(const std::string& queue, const json& read) {
  const json format = read.value("format", json(kFormat));
  if (!format.is_number_unsigned())
    return absl::DataLossError(absl::StrCat("rabbitmq: the format of ", queue, " is no number"));
  return JudgeVersion(absl::StrCat("rabbitmq: the document ", queue), format.get<uint64_t>(),
                      kFormat);
}

}  // namespace

// ---- mutex ----

namespace {

// `last`: what the channel's one call came to, which was about this mutex.
void LeaveChannel(Connection* connection, Channel channel, const std::string& mutex,
                  const absl::Status& last) {
  if (!connection->is_open(channel)) return;
  const bool late = absl::IsDeadlineExceeded(last);
  (late ? connection->DeleteWhenAnswered(channel, mutex) : connection->CloseChannel(channel))
      .IgnoreError();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mutex>> Mutex::Try(Connection* connection,
                                                  const std::string& queue) {
  absl::StatusOr<Channel> channel = connection->OpenChannel();
  if (!channel.ok()) return channel.status();
  if (connection->is_deleting(queue)) {
    connection->CloseChannel(*channel).IgnoreError();
    return absl::DeadlineExceededError(
        absl::StrCat("rabbitmq: an earlier ", queue, " of this connection is not deleted yet"));
  }
  const absl::Status status = connection->Declare(*channel, queue, kMutex).status();
  LeaveChannel(connection, *channel, queue, status);
  if (status.ok()) return std::unique_ptr<Mutex>(new Mutex(connection, queue));
  if (!absl::IsAlreadyExists(status)) return status;
  return absl::UnavailableError(
      absl::StrCat("rabbitmq: another connection administers ", queue, " now; try again"));
}

absl::StatusOr<std::unique_ptr<Mutex>> Mutex::Lock(Connection* connection,
                                                   const std::string& queue) {
  for (int attempt = 0;; ++attempt) {
    absl::StatusOr<std::unique_ptr<Mutex>> mutex = Try(connection, queue);
    if (mutex.ok() || !absl::IsUnavailable(mutex.status()) || !connection->is_open() ||
        attempt == kTries)
      return mutex;
    std::this_thread::sleep_for(kPause);
  }
}

Mutex::~Mutex() {
  if (!held()) return;
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return;
  LeaveChannel(connection_, *channel, queue_, connection_->Delete(*channel, queue_).status());
}

// ---- document ----

absl::StatusOr<std::unique_ptr<Document>> Document::Open(Connection* connection,
                                                         const std::string& queue, bool make,
                                                         const Merge& merge) {
  auto document = std::unique_ptr<Document>(new Document(connection, queue));
  if (!make) {
    absl::StatusOr<bool> there = document->Find();
    if (!there.ok()) return there.status();
    if (!*there) return absl::NotFoundError(absl::StrCat("rabbitmq: there is no ", queue));
  }
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = Mutex::Lock(connection, queue + ".lock");
  if (!mutex.ok()) return mutex.status();
  document->mutex_ = *std::move(mutex);
  bool made = false;
  if (make) {
    absl::StatusOr<bool> there = document->Find();
    if (!there.ok()) return there.status();
    made = !*there;
    if (made) {
      absl::StatusOr<QueueState> state = connection->Declare(document->channel_, queue, kKept);
      if (!state.ok()) return OfAnotherKind(state.status());
    }
  }
  if (absl::Status status = document->Take(made, merge); !status.ok()) return status;
  return document;
}

// Whether its queue is there. Leaves the channel open.
absl::StatusOr<bool> Document::Find() {
  if (channel_ == 0) {
    absl::StatusOr<Channel> channel = connection_->OpenChannel();
    if (!channel.ok()) return channel.status();
    channel_ = *channel;
  }
  absl::StatusOr<QueueState> there = connection_->DeclarePassively(channel_, queue_);
  if (there.ok()) return true;
  if (!absl::IsNotFound(there.status())) return there.status();
  // The broker has closed the channel.
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  channel_ = *channel;
  return false;
}

absl::Status Document::Take(bool made, const Merge& merge) {
  bool unreadable = false;
  for (int attempt = 0; attempt < kEmptyTries; ++attempt) {
    if (absl::Status status = TakeAll(&unreadable, merge); !status.ok()) return status;
    if (content_ || unreadable || made) break;
    std::this_thread::sleep_for(kPause);
  }
  if (content_) return merged_ ? Write(*content_) : absl::OkStatus();
  if (unreadable)
    return absl::DataLossError(absl::StrCat("rabbitmq: the queue ", queue_,
                                            " has a message that is none of semaphored's"));
  if (made) return absl::OkStatus();
  // A quorum queue counts a connection that has taken a message among its consumers until it has
  // the message back.
  absl::StatusOr<QueueState> state = connection_->DeclarePassively(channel_, queue_);
  if (!state.ok()) return state.status();
  if (state->ready == 0 && state->consumers == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("rabbitmq: another connection has what is in ", queue_, "; try again"));
}

absl::Status Document::TakeAll(bool* unreadable, const Merge& merge) {
  for (;;) {
    absl::StatusOr<std::optional<Delivery>> got = connection_->Get(channel_, queue_);
    if (!got.ok()) return got.status();
    if (!*got) return absl::OkStatus();
    taken_.push_back((*got)->delivery_tag);
    json read = json::parse((*got)->body, nullptr, /*allow_exceptions=*/false);
    if (!read.is_object() || !read.contains("version") || !read["version"].is_number_unsigned()) {
      *unreadable = true;
      continue;
    }
    if (absl::Status status = JudgeFormat(queue_, read); !status.ok()) return status;
    const uint64_t version = read["version"].get<uint64_t>();
    if (content_ && version < version_) continue;
    if (content_ && version == version_ && read != *content_) {
      content_ = merge(*content_, read);
      merged_ = true;
      continue;
    }
    content_ = std::move(read);
    version_ = version;
    merged_ = false;
  }
}

absl::Status Document::Write(json content) {
  content["version"] = version_ + 1;
  content["format"] = kFormat;
  const std::string text = content.dump();
  if (text.size() > kDocumentBytesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("rabbitmq: ", queue_, " would have more than ", kDocumentBytesMax, " bytes"));
  if (absl::Status status = connection_->SelectConfirms(channel_); !status.ok()) return status;
  absl::StatusOr<std::vector<Connection::Confirm>> confirms =
      connection_->PublishAll(channel_, {{queue_, text}});
  if (!confirms.ok()) return confirms.status();
  if (absl::Status status = NotStored(confirms->front()); !status.ok()) return status;
  ++version_;
  content_ = std::move(content);
  for (const uint64_t tag : std::exchange(taken_, {})) {
    if (absl::Status status = connection_->Acknowledge(channel_, tag); !status.ok()) return status;
  }
  return connection_->Sync(channel_);
}

// What was taken goes back before another connection can have the mutex.
Document::~Document() {
  if (channel_ == 0 || !connection_->is_open(channel_)) return;
  for (const uint64_t tag : taken_) connection_->Reject(channel_, tag).IgnoreError();
  if (!taken_.empty()) connection_->Sync(channel_).IgnoreError();
  if (connection_->is_open(channel_)) connection_->CloseChannel(channel_).IgnoreError();
}

}  // namespace semaphored::rabbitmq
