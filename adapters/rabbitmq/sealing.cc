#include "adapters/rabbitmq/sealing.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/common/seal.h"
#include "adapters/rabbitmq/document.h"

namespace semaphored::rabbitmq {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kBeginAgain{1};
constexpr std::chrono::seconds kReadAgain{10};
constexpr size_t kSendersMax = 10'000;
constexpr size_t kRandomBytes = 32;

// Empty: the machine has no random numbers to give.
std::string RandomText() {
  std::array<unsigned char, kRandomBytes> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return "";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

json MergeSecrets(const json& a, const json& b) { return a.dump() < b.dump() ? a : b; }

}  // namespace

Sealing::Sealing(Connection* connection, std::string queue)
    : connection_(connection), queue_(std::move(queue)), self_(RandomText()) {}

absl::Status Sealing::Read(bool begin) {
  if (!connection_->is_open()) {
    if (absl::Status status = connection_->Open(); !status.ok()) return status;
  }
  absl::StatusOr<std::unique_ptr<Document>> document =
      Document::Open(connection_, queue_, /*make=*/true, MergeSecrets);
  if (!document.ok()) return document.status();
  std::string secret;
  if (!(*document)->empty()) {
    const json kept = (*document)->content().value("secret", json(""));
    if (!kept.is_string())
      return absl::DataLossError(
          absl::StrCat("rabbitmq: the queue ", queue_,
                       " has the daemons' secret, which another program has changed"));
    secret = kept.get<std::string>();
  }
  if (secret.empty() || begin) {
    if (secret.empty()) secret = RandomText();
    if (secret.empty() || self_.empty())
      return absl::ResourceExhaustedError("rabbitmq: no random numbers for a secret");
    if (absl::Status status = (*document)->Write({{"secret", secret}}); !status.ok()) return status;
  }
  epoch_ = (*document)->version();
  // The document was removed, and made by another daemon: its versions begin again.
  if (begin || secret != secret_) first_ = epoch_;
  secret_ = std::move(secret);
  return absl::OkStatus();
}

absl::Status Sealing::BeginIfDue(SteadyTime now) {
  if (!secret_.empty() || now < read_again_) return absl::OkStatus();
  read_again_ = now + kBeginAgain;
  return Read(/*begin=*/true);
}

absl::StatusOr<std::string> Sealing::Seal(json message) {
  if (absl::Status status = Read(/*begin=*/secret_.empty()); !status.ok()) return status;
  message["sender"] = self_;
  message["number"] = ++number_;
  message["epoch"] = epoch_;
  const std::string text = message.dump();
  return json{{"sealed", text}, {"seal", SealOf(text, secret_)}}.dump();
}

bool Sealing::IsNew(const std::string& sender, uint64_t number) {
  const auto [heard, first] = heard_.try_emplace(sender, number);
  if (!first && number <= heard->second) return false;
  heard->second = number;
  if (!first) return true;
  senders_.push_back(sender);
  if (senders_.size() > kSendersMax) {
    heard_.erase(senders_.front());
    senders_.pop_front();
  }
  return true;
}

std::optional<json> Sealing::Open(const std::string& text, SteadyTime now) {
  try {
    const json outer = json::parse(text);
    const auto sealed = outer.at("sealed").get<std::string>();
    const auto seal = outer.at("seal").get<std::string>();
    if (!IsSeal(seal, sealed, secret_)) {
      // The secret may be another by now; forged messages cause no more than a reading a second.
      if (secret_.empty() || now < read_again_) return std::nullopt;
      read_again_ = now + kReadAgain;
      if (!Read(/*begin=*/false).ok() || !IsSeal(seal, sealed, secret_)) return std::nullopt;
    }
    json message = json::parse(sealed);
    const auto sender = message.at("sender").get<std::string>();
    if (sender == self_ || message.at("epoch").get<uint64_t>() < first_) return std::nullopt;
    if (!IsNew(sender, message.at("number").get<uint64_t>())) return std::nullopt;
    return message;
  } catch (const json::exception&) {
    return std::nullopt;  // A later version's, or none of ours.
  }
}

}  // namespace semaphored::rabbitmq
