#include "adapters/consul/pulse.h"

#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {
namespace {

constexpr int kPassesInTtl = 3;
constexpr int kRetriesInTtl = 10;
constexpr int kVouchTenths = 4;

}  // namespace

std::chrono::milliseconds VouchMax(const Url& url) {
  return std::chrono::milliseconds(url.check_ttl) * kVouchTenths / 10;
}

std::chrono::milliseconds PulseLookedAt(const Url& url) { return VouchMax(url) / 4; }

Pulse::Pulse(const Url& url, NodeRef self, std::shared_ptr<Upkeep> upkeep)
    : url_(url), check_(CheckOf(url, self)), upkeep_(std::move(upkeep)), client_(url_) {}

Pulse::~Pulse() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  const Reply reply = client_.Put(HttpTarget("/v1/agent/check/deregister/", check_), "");
  // It fails by itself, a little later.
  if (!reply.answered())
    spdlog::warn("consul: the health check could not be taken away: {}", reply.status.ToString());
}

std::string Pulse::CheckOf(const Url& url, NodeRef node) {
  return absl::StrCat("semaphored:", url.prefix, ":", node.number, ".", node.incarnation);
}

absl::Status Pulse::Register() {
  const SteadyTime sent = SteadyClock::now();
  const Reply reply = client_.Ask(
      "/v1/agent/check/register",
      absl::StrCat("{\"ID\":", JsonText(check_), ",\"Name\":", JsonText(check_), ",\"TTL\":\"",
                   url_.check_ttl.count(), "s\",\"Status\":\"passing\"}"));
  if (!reply.answered()) return reply.status;
  const std::lock_guard lock(mutex_);
  passed_at_ = sent;
  return absl::OkStatus();
}

absl::Status Pulse::Start() {
  if (absl::Status status = Register(); !status.ok()) return status;
  upkeep_->Note(UpkeepWork::kNodes, DropFailed());
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

// Checks that earlier lives of this node have left behind. They only stand there.
absl::Status Pulse::DropFailed() {
  const std::string lives = check_.substr(0, check_.rfind('.') + 1);
  const Reply reply = client_.Get("/v1/agent/checks");
  const auto checks = nlohmann::json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (!reply.answered()) return reply.status;
  if (!checks.is_object())
    return absl::InternalError("consul: the list of the agent's checks is not understood");
  absl::Status dropped;
  for (const auto& [id, check] : checks.items()) {
    if (!id.starts_with(lives) || id == check_ || check.value("Status", "") != "critical") continue;
    dropped.Update(client_.Put(HttpTarget("/v1/agent/check/deregister/", id), "").status);
  }
  return dropped;
}

absl::Status Pulse::Pass() {
  const SteadyTime sent = SteadyClock::now();
  const Reply reply = client_.Put(HttpTarget("/v1/agent/check/pass/", check_), "");
  if (!reply.answered()) return reply.status;
  if (reply.http_status == 404) return absl::NotFoundError("consul: the agent has no such check");
  const std::lock_guard lock(mutex_);
  passed_at_ = sent;
  return absl::OkStatus();
}

void Pulse::Run() {
  using std::chrono::milliseconds;
  const milliseconds ttl = url_.check_ttl;
  bool passed = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    const milliseconds pause = ttl / (passed ? kPassesInTtl : kRetriesInTtl);
    if (ended_.wait_for(lock, pause, [this] { return ending_; })) return;
    lock.unlock();
    absl::Status status = Pass();
    // An agent that has forgotten the check (its data are gone) gets it again.
    if (!status.ok()) status = Register();
    upkeep_->Note(UpkeepWork::kSessions, status);
    passed = status.ok();
    lock.lock();
  }
}

absl::Status Pulse::Check() const {
  const std::lock_guard lock(mutex_);
  if (SteadyClock::now() - passed_at_ < url_.check_ttl / 2.0) return absl::OkStatus();
  return absl::UnavailableError(
      "consul: the health check of this daemon could not be passed for too long; what hangs on it "
      "may have ended");
}

}  // namespace semaphored::consul
