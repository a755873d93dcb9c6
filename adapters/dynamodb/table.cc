#include "adapters/dynamodb/table.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

json Definition(const std::string& table) {
  const auto attribute = [](const char* name) {
    return json{{"AttributeName", name}, {"AttributeType", "S"}};
  };
  const auto key = [](const char* name, const char* type) {
    return json{{"AttributeName", name}, {"KeyType", type}};
  };
  return {{"TableName", table},
          {"AttributeDefinitions", json::array({attribute(kPartitionKey), attribute(kSortKey)})},
          {"KeySchema", json::array({key(kPartitionKey, "HASH"), key(kSortKey, "RANGE")})},
          {"BillingMode", "PAY_PER_REQUEST"}};
}

std::string Named(const Url& url) {
  return absl::StrCat("the table '", url.table, "' in ", url.region,
                      url.endpoint.empty() ? "" : absl::StrCat(" at ", url.endpoint));
}

std::string TextOf(const json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const json& PartOf(const json& object, const char* name) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

// "PK HASH S" and so on, in any order that the engine tells them in.
bool HasKey(const json& table, const char* name, const char* key_type) {
  bool is_key = false;
  for (const json& key : PartOf(table, "KeySchema"))
    is_key |= TextOf(key, "AttributeName") == name && TextOf(key, "KeyType") == key_type;
  bool is_text = false;
  for (const json& attribute : PartOf(table, "AttributeDefinitions"))
    is_text |=
        TextOf(attribute, "AttributeName") == name && TextOf(attribute, "AttributeType") == "S";
  return is_key && is_text;
}

// Whether a table that is there is one for us.
absl::Status CheckShape(const json& table, const Url& url) {
  if (!HasKey(table, kPartitionKey, "HASH") || !HasKey(table, kSortKey, "RANGE"))
    return absl::FailedPreconditionError(absl::StrCat(
        "dynamodb: ", Named(url), " has other keys than ", kPartitionKey, " (HASH) and ", kSortKey,
        " (RANGE), both strings: it is another program's; name another in the URL"));
  const json& replicas = PartOf(table, "Replicas");
  if (replicas.is_array() && !replicas.empty())
    return absl::FailedPreconditionError(
        absl::StrCat("dynamodb: ", Named(url),
                     " is a global table: what is written in one region is seen too "
                     "late in another to count permits by; use one without replicas"));
  return absl::OkStatus();
}

// What the engine says of the table; NOT_FOUND: there is none.
absl::StatusOr<json> Describe(Client* client, const Url& url, SteadyTime deadline) {
  Reply reply =
      client->Repeat({"DescribeTable", json::object({{"TableName", url.table}})}, deadline);
  if (!reply.answered()) return reply.status;
  return PartOf(reply.body, "Table");
}

// Whether what has expired is removed. FAILED_PRECONDITION: by another attribute than ours.
absl::StatusOr<bool> HasExpiry(Client* client, const Url& url, SteadyTime deadline) {
  const Reply now =
      client->Repeat({"DescribeTimeToLive", json::object({{"TableName", url.table}})}, deadline);
  if (!now.answered()) return now.status;
  const json& described = PartOf(now.body, "TimeToLiveDescription");
  const std::string state = TextOf(described, "TimeToLiveStatus");
  if (state != "ENABLED" && state != "ENABLING") return false;
  const std::string attribute = TextOf(described, "AttributeName");
  if (attribute == kExpiresAt) return true;
  return absl::FailedPreconditionError(absl::StrCat("dynamodb: ", Named(url), " expires by '",
                                                    attribute, "', and not by '", kExpiresAt,
                                                    "': it is another program's"));
}

absl::Status SetExpiry(Client* client, const Url& url, SteadyTime deadline) {
  const absl::StatusOr<bool> before = HasExpiry(client, url, deadline);
  if (!before.ok()) return before.status();
  if (*before) return absl::OkStatus();
  const json specification = {{"Enabled", true}, {"AttributeName", kExpiresAt}};
  const Reply set = client->Repeat(
      {"UpdateTimeToLive", {{"TableName", url.table}, {"TimeToLiveSpecification", specification}}},
      deadline);
  if (set.answered()) return absl::OkStatus();
  // Another program was first, or we were and did not hear of it: the error says so only in words.
  const absl::StatusOr<bool> after = HasExpiry(client, url, deadline);
  return after.ok() && *after ? absl::OkStatus() : set.status;
}

absl::Status Still(const Url& url, const std::string& state) {
  return absl::UnavailableError(
      absl::StrCat("dynamodb: ", Named(url), " is still ", state, ": ask again later"));
}

// Until it can be used.
absl::Status Wait(Client* client, const Url& url, const TableMaking& making, SteadyTime deadline) {
  std::string told;
  const auto is_over = [&] { return SteadyClock::now() + making.look_interval >= deadline; };
  while (true) {
    const absl::StatusOr<json> table = Describe(client, url, deadline);
    // One that was just made may not be seen at once.
    if (!table.ok() && !absl::IsNotFound(table.status())) {
      // The last look may have had no time left.
      return told.empty() || !is_over() ? table.status() : Still(url, told);
    }
    const std::string state = table.ok() ? TextOf(*table, "TableStatus") : "not seen yet";
    if (table.ok()) {
      if (absl::Status status = CheckShape(*table, url); !status.ok()) return status;
      if (state == "ACTIVE" || state == "UPDATING") return absl::OkStatus();
    }
    if (state != told && making.progress)
      making.progress(absl::StrCat("waiting for ", Named(url), ": ", state));
    told = state;
    if (is_over()) return Still(url, state);
    std::this_thread::sleep_for(making.look_interval);
  }
}

}  // namespace

std::string TableDefinition(const std::string& table) { return Definition(table).dump(2) + "\n"; }

absl::Status CheckTable(Client* client, const Url& url, SteadyTime deadline) {
  const absl::StatusOr<json> table = Describe(client, url, deadline);
  if (absl::IsNotFound(table.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("dynamodb: ", Named(url),
                     " is not there. Make it with: semaphored schema --create --store ",
                     "'the same URL'; or with: aws dynamodb create-table --region ", url.region,
                     " --cli-input-json '", Definition(url.table).dump(), "'"));
  }
  if (!table.ok()) return table.status();
  if (absl::Status status = CheckShape(*table, url); !status.ok()) return status;
  const std::string state = TextOf(*table, "TableStatus");
  if (state == "ACTIVE" || state == "UPDATING") return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("dynamodb: ", Named(url), " is ", state));
}

absl::StatusOr<std::string> MakeTable(Client* client, const Url& url, const TableMaking& making) {
  const SteadyTime deadline = SteadyClock::now() + making.patience;
  const absl::StatusOr<json> before = Describe(client, url, deadline);
  if (!before.ok() && !absl::IsNotFound(before.status())) return before.status();
  if (!before.ok()) {
    if (making.progress) making.progress(absl::StrCat("making ", Named(url)));
    const Reply made = client->Repeat({"CreateTable", Definition(url.table)}, deadline);
    // Another program makes it at the same time, or we did and did not hear of it.
    if (!made.answered() && made.error != "ResourceInUseException") return made.status;
  }
  if (absl::Status status = Wait(client, url, making, deadline); !status.ok()) return status;
  if (absl::Status status = SetExpiry(client, url, deadline); !status.ok()) return status;
  return absl::StrCat(Named(url), before.ok() ? " was there already" : " is made",
                      " and can be used");
}

}  // namespace semaphored::dynamodb
