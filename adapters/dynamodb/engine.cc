#include "adapters/dynamodb/engine.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/common/store_version.h"
#include "adapters/dynamodb/items.h"
#include "adapters/dynamodb/node_table.h"
#include "adapters/dynamodb/notice_box.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/dynamodb/store.h"
#include "adapters/dynamodb/table.h"
#include "adapters/dynamodb/url.h"
#include "adapters/ledger/ledger.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

// A lease is an item, of 400 KB at most; its slots, where none stands beside another, take 8 bytes
// each.
constexpr uint32_t kPermitsPerRequestMax = 10'000;
// A waiter that is let in is up to five items: its place, its lease, its request, its session, which
// must still be where it was, and the head of its semaphore. So is a ticket that is given out: itself,
// the offer, the lease, the worker's session and the head.
constexpr uint32_t kItemsPerGrant = 5;
// What one command that makes room writes besides. The most is that of the result of a ticket: lane,
// head, ticket, payload, lease, history, request, session and the node that counts the delay.
constexpr uint32_t kItemsToMakeRoom = 16;
// Notices for other daemons take what is left, and follow the commit if nothing is.
constexpr uint32_t kGrantsPerCommitMax = 16;
static_assert(kItemsToMakeRoom + kGrantsPerCommitMax * kItemsPerGrant <=
              TransactionRequest::kItemsMax);
// A queue is read whole, a page of 1 MB (some 3,000 waiters) after the other.
constexpr uint32_t kWaitersMax = 20'000;
constexpr uint32_t kTicketsMax = 20'000;  // The same.
// An item has 400 KB, with its key.
constexpr uint32_t kPayloadBytesMax = 384'000;

class DynamoEngine : public Engine {
 public:
  DynamoEngine(Url url, std::shared_ptr<CredentialSource> credentials)
      : url_(std::move(url)),
        credentials_(std::move(credentials)),
        nodes_(url_, credentials_, DeadNodes::kFirstPause, upkeep()) {
    guarantees_.adapter = "dynamodb";
    guarantees_.push = false;
    guarantees_.durable_tickets = true;
    guarantees_.history = url_.history.count() > 0;
    guarantees_.permits_per_request_max = kPermitsPerRequestMax;
    guarantees_.grants_per_commit_max = kGrantsPerCommitMax;
    guarantees_.lanes_max = static_cast<uint32_t>(url_.lanes);
  }

  const Guarantees& guarantees() const override { return guarantees_; }
  NodeStore& nodes() override { return nodes_; }

  absl::StatusOr<std::unique_ptr<Adapter>> OpenLane(const ledger::LedgerOptions& options) override {
    if (lanes_ == guarantees_.lanes_max)
      return absl::FailedPreconditionError(
          absl::StrCat("dynamodb: lanes=", url_.lanes, " is all that may be opened"));
    if (options.limits.payload_bytes_max > kPayloadBytesMax)
      return absl::InvalidArgumentError(absl::StrCat(
          "payload_bytes_max is ", options.limits.payload_bytes_max, "; on DynamoDB at most ",
          kPayloadBytesMax, ", since a payload is one item, and that has 400 KB"));
    if (!notice_box_)
      notice_box_ = std::make_shared<NoticeBox>(url_, credentials_, options.self.number, upkeep());
    StoreOptions store;
    store.url = url_;
    store.self = options.self;
    store.lane = lanes_;
    store.client_retention = options.client_retention;
    store.request_window = options.request_window;
    store.now_unix_ms = options.now_unix_ms;
    store.now = options.now;
    store.upkeep = upkeep();
    auto lane = std::make_unique<DynamoStore>(store, guarantees_, credentials_, notice_box_);
    if (absl::Status status = lane->Start(); !status.ok()) return status;
    if (lanes_ == 0)
      lane->SweepOneShots(std::max(options.client_retention, options.request_retention));
    ++lanes_;
    ledger::LedgerOptions bounded = options;
    bounded.limits.waiters_per_semaphore_max =
        std::min(bounded.limits.waiters_per_semaphore_max, kWaitersMax);
    bounded.limits.tickets_per_semaphore_max =
        std::min(bounded.limits.tickets_per_semaphore_max, kTicketsMax);
    return ledger::MakeLedgerAdapter(std::move(lane), bounded);
  }

 private:
  const Url url_;
  const std::shared_ptr<CredentialSource> credentials_;
  Guarantees guarantees_;
  NodeTable nodes_;
  std::shared_ptr<NoticeBox> notice_box_;
  uint32_t lanes_ = 0;
};

absl::StatusOr<uint64_t> VersionIn(const json& item) {
  try {
    return NumberIn(item, kVersion);
  } catch (const std::exception&) {
    return absl::DataLossError("dynamodb: the item STORE, STATE is not understood");
  }
}

// Writes the version where there is none: before anything else, so that a table of a newer one stays as it is.
absl::Status ClaimVersion(Client* client, const Url& url, SteadyTime deadline) {
  const Reply reply = client->Repeat(GetItem(url.table, StateKey()), deadline);
  if (!reply.answered()) return reply.status;
  absl::StatusOr<uint64_t> version = VersionIn(reply.body.value("Item", json::object()));
  if (version.ok() && *version == 0) {
    Change mark;
    mark.set_if_absent.emplace_back(kVersion, Number(kStoreVersion));
    const Reply marked =
        client->Repeat(UpdateItem(url.table, StateKey(), mark, Condition::None()), deadline);
    if (!marked.answered()) return marked.status;
    version = VersionIn(marked.body.value("Attributes", json::object()));
  }
  if (!version.ok()) return version.status();
  return JudgeVersion(absl::StrCat("dynamodb: the table '", url.table, "'"), *version,
                      kStoreVersion);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> OpenDynamo(const std::string& url) {
  absl::StatusOr<Url> parsed = ReadUrl(url);
  if (!parsed.ok()) return parsed.status();
  std::shared_ptr<CredentialSource> credentials = FindCredentials(parsed->profile, parsed->region);
  return OpenTable(*std::move(parsed), std::move(credentials));
}

absl::StatusOr<std::unique_ptr<Engine>> OpenTable(Url url,
                                                  std::shared_ptr<CredentialSource> credentials) {
  Client client(url, credentials);
  const auto deadline = [&url] { return SteadyClock::now() + url.timeout; };
  if (absl::Status status = CheckTable(&client, url, deadline()); !status.ok()) return status;
  // The first request looks for credentials, which may take longer than its own time.
  if (absl::Status status = ClaimVersion(&client, url, deadline()); !status.ok()) return status;
  return std::make_unique<DynamoEngine>(std::move(url), std::move(credentials));
}

}  // namespace semaphored::dynamodb
