#include "adapters/dynamodb/generation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "adapters/dynamodb/node_table.h"
#include "adapters/dynamodb/requests.h"

namespace semaphored::dynamodb {
namespace {

constexpr int kBeginsMax = 8;

bool IsRefusedByCondition(const Reply& reply) {
  return reply.error == "ConditionalCheckFailedException";
}

// Another daemon may be first: which of them it was is found out by reading.
absl::Status Begin(Client* client, const std::string& table, const Generation& before,
                   int64_t now_s, SteadyTime deadline) {
  Change next;
  next.set.emplace_back("generation",
                        Number(std::max(before.number + 1, static_cast<uint64_t>(now_s))));
  const Reply reply = client->Repeat(
      UpdateItem(table, GenerationKey(), next, Condition::Is("generation", before.number)),
      deadline);
  return reply.answered() || IsRefusedByCondition(reply) ? absl::OkStatus() : reply.status;
}

// A lane that is opened meanwhile has the number from the start: MakeLane makes it a condition.
absl::Status CarryToLanes(Client* client, const std::string& table, uint64_t number,
                          SteadyTime deadline) {
  const absl::StatusOr<std::vector<Key>> lanes = LanesOfLivingNodes(client, table, deadline);
  if (!lanes.ok()) return lanes.status();
  Change raise;
  raise.set.emplace_back("generation", Number(number));
  const Condition lower = Condition::Present().And(Condition::Below("generation", number));
  std::vector<Request> requests;
  for (const Key& lane : *lanes) requests.push_back(UpdateItem(table, lane, raise, lower));
  for (const Reply& reply : client->RepeatAll(requests, deadline)) {
    // Refused: it has the number, or its node has been ended.
    if (!reply.answered() && !IsRefusedByCondition(reply)) return reply.status;
  }
  Change everywhere;
  everywhere.set.emplace_back("everywhere", Number(number));
  const Reply reply = client->Repeat(
      UpdateItem(table, GenerationKey(), everywhere, Condition::Is("generation", number)),
      deadline);
  return reply.answered() || IsRefusedByCondition(reply) ? absl::OkStatus() : reply.status;
}

}  // namespace

absl::StatusOr<Generation> ReadGeneration(Client* client, const std::string& table,
                                          SteadyTime deadline) {
  const Reply reply = client->Repeat(GetItem(table, GenerationKey()), deadline);
  if (!reply.answered()) return reply.status;
  const auto item = reply.body.find("Item");
  Generation generation;
  if (item == reply.body.end()) return generation;
  try {
    generation.number = NumberIn(*item, "generation");
    generation.everywhere = NumberIn(*item, "everywhere") == generation.number;
  } catch (const std::exception&) {
    return absl::DataLossError("dynamodb: the item STORE, GENERATION is not understood");
  }
  return generation;
}

absl::StatusOr<Generation> CurrentGeneration(Client* client, const std::string& table,
                                             int64_t now_s, std::chrono::seconds length,
                                             SteadyTime deadline) {
  for (int i = 0; i < kBeginsMax; ++i) {
    absl::StatusOr<Generation> generation = ReadGeneration(client, table, deadline);
    if (!generation.ok()) return generation.status();
    const bool is_over = generation->HasLasted(length, now_s);
    if (!is_over && generation->everywhere) return generation;
    absl::Status status = is_over ? Begin(client, table, *generation, now_s, deadline)
                                  : CarryToLanes(client, table, generation->number, deadline);
    if (!status.ok()) return status;
  }
  return absl::UnavailableError("dynamodb: other daemons begin generations all the time");
}

}  // namespace semaphored::dynamodb
