#include "adapters/consul/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/store_version.h"
#include "adapters/consul/client.h"
#include "adapters/consul/commit.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/node_table.h"
#include "adapters/consul/places.h"
#include "adapters/consul/pulse.h"
#include "adapters/consul/store.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/consul/url.h"
#include "adapters/ledger/ledger.h"

namespace semaphored::consul {
namespace {

// A document and a record must fit one value each (512 KiB), and a transaction that makes new
// places has 64 operations.
constexpr uint32_t kLimitMax = 1000;
constexpr uint32_t kWaitersMax = 1000;
// A daemon that reads a semaphore that others have changed reads all of its tickets.
constexpr uint32_t kTicketsMax = 2000;
constexpr uint32_t kDeadLettersMax = 1000;
// In base64 it is a third more, and there must be room for the document.
constexpr uint32_t kPayloadBytesMax = 128 * 1024;
constexpr uint32_t kPermitsPerRequestMax = 32;
// Each is a key in the memory of Consul's servers, and each daemon reads them all now and then.
constexpr uint32_t kOneShotRequestsMax = 50'000;
constexpr int kVersionReadsMax = 3;

class ConsulEngine : public Engine {
 public:
  explicit ConsulEngine(Url url)
      : url_(std::move(url)), nodes_(url_, NodeTable::kRemovalPause, upkeep()) {
    guarantees_.adapter = "consul";
    guarantees_.history = false;
    guarantees_.durable_tickets = true;
    guarantees_.permits_per_request_max = kPermitsPerRequestMax;
    guarantees_.limit_max = kLimitMax;
    guarantees_.grants_per_commit_max = kGrantsPerCommitMax;
    guarantees_.lanes_max = 1;
    guarantees_.one_shot_requests_max = kOneShotRequestsMax;
    if (!url_.ends_with_daemon) return;
    guarantees_.leases_survive_daemon = false;
    guarantees_.vouch_max_ms = VouchMax(url_).count();
  }

  const Guarantees& guarantees() const override { return guarantees_; }
  NodeStore& nodes() override { return nodes_; }

  absl::StatusOr<std::unique_ptr<Adapter>> OpenLane(const ledger::LedgerOptions& options) override {
    if (lanes_ == guarantees_.lanes_max)
      return absl::FailedPreconditionError("consul: one lane is all that may be opened");
    if (url_.ends_with_daemon && !pulse_) {
      auto pulse = std::make_unique<Pulse>(url_, options.self, upkeep());
      if (absl::Status status = pulse->Start(); !status.ok()) return status;
      pulse_ = std::move(pulse);
    }
    auto lane = std::make_unique<ConsulStore>(url_, guarantees_, options.self, lanes_, pulse_.get(),
                                              upkeep());
    if (absl::Status status = lane->Start(); !status.ok()) return status;
    if (lanes_ == 0)
      lane->SweepRequests(std::max(options.client_retention, options.request_retention));
    lane->ShowTime(options.now_unix_ms);
    ++lanes_;
    ledger::LedgerOptions bounded = options;
    const auto bound = [](uint32_t* limit, uint32_t most) { *limit = std::min(*limit, most); };
    bound(&bounded.limits.waiters_per_semaphore_max, kWaitersMax);
    bound(&bounded.limits.tickets_per_semaphore_max, kTicketsMax);
    bound(&bounded.limits.dead_letters_per_semaphore_max, kDeadLettersMax);
    bound(&bounded.limits.payload_bytes_max, kPayloadBytesMax);
    return ledger::MakeLedgerAdapter(std::move(lane), bounded);
  }

 private:
  const Url url_;
  Guarantees guarantees_;
  NodeTable nodes_;
  std::unique_ptr<Pulse> pulse_;  // If permits end with the daemon. Outlives the lanes.
  uint32_t lanes_ = 0;
};

// Why an agent could not be asked for the first time, with what it does not say itself.
absl::Status Explained(const Reply& reply, const Url& url) {
  std::string message(reply.status.message());
  if (!url.datacenter.empty()) absl::StrAppend(&message, " (dc=", url.datacenter, ")");
  // With TLS 1.3 a server that wants another certificate, or one at all, ends the connection when
  // it already stands: libcurl then reports how the next write failed.
  const bool was_ended = reply.kind == Reply::Kind::kBroken && reply.http_status == 0 &&
                         !absl::StrContains(message, "timed out");
  if (url.tls && was_ended) {
    absl::StrAppend(&message, url.cert_file.empty()
                                  ? "; the agent may want a certificate: cert_file and key_file"
                                  : "; the agent may not accept the certificate of cert_file");
  }
  return {reply.status.code(), message};
}

// Writes the version where there is none: before anything else, so that a store of a newer one stays as it is.
absl::Status ClaimVersion(Client* client, const Url& url) {
  const Keys keys(url.prefix);
  for (int attempt = 0; attempt < kVersionReadsMax; ++attempt) {
    TransactionRequest read;
    read.GetTree(keys.Version());
    const absl::StatusOr<std::vector<Entry>> entries = client->Read(read);
    if (!entries.ok()) return entries.status();
    // Keys that only begin like it are read with it.
    const auto entry = std::ranges::find(*entries, keys.Version(), &Entry::key);
    if (entry != entries->end()) {
      uint64_t version = 0;
      if (!absl::SimpleAtoi(entry->value, &version))
        return absl::DataLossError(
            absl::StrCat("consul: the key ", entry->key, " is not understood"));
      return JudgeVersion(absl::StrCat("consul: the store under ", keys.prefix()), version,
                          kStoreVersion);
    }
    // Another daemon may be first: then it is read again.
    TransactionRequest write;
    write.Cas(keys.Version(), absl::StrCat(kStoreVersion), 0);
    absl::Status status = client->Write(write).status();
    // If its answer is lost it may have landed: then it is read again, too.
    if (!status.ok() && !absl::IsUnavailable(status)) return status;
  }
  return absl::UnavailableError(
      absl::StrCat("consul: the key ", keys.Version(), " comes and goes; try again"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> OpenConsul(const std::string& url) {
  absl::StatusOr<Url> parsed = ReadUrl(url);
  if (!parsed.ok()) return parsed.status();
  // Fails at once if the agent cannot be reached, or refuses the token.
  Client client(*parsed);
  const Reply reply =
      client.Get(HttpTarget("/v1/kv/", Keys(parsed->prefix).Nodes()).Option("keys"));
  if (!reply.answered()) return Explained(reply, *parsed);
  if (absl::Status status = ClaimVersion(&client, *parsed); !status.ok()) return status;
  return std::make_unique<ConsulEngine>(*std::move(parsed));
}

absl::Status RemoveAll(const std::string& url) {
  const absl::StatusOr<Url> parsed = ReadUrl(url);
  if (!parsed.ok()) return parsed.status();
  Client client(*parsed);
  TransactionRequest request;
  request.DeleteTree(Keys(parsed->prefix).prefix());
  if (absl::Status status = client.Write(request).status(); !status.ok()) return status;
  const Reply reply = client.Put(
      "/v1/catalog/deregister", absl::StrCat("{\"Node\":", JsonText(Places::NodeOf(*parsed)), "}"));
  return reply.status;
}

}  // namespace semaphored::consul
