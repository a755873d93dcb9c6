#include "adapters/open.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/common/url_options.h"
#include "adapters/consul/engine.h"
#include "adapters/dynamodb/engine.h"
#include "adapters/dynamodb/table.h"
#include "adapters/dynamodb/url.h"
#include "adapters/ledger/ledger.h"
#include "adapters/postgres/engine.h"
#include "adapters/postgres/schema.h"
#include "adapters/postgres/url.h"
#include "adapters/rabbitmq/engine.h"
#include "adapters/sqlite/backup.h"
#include "adapters/sqlite/database.h"
#include "adapters/sqlite/node_table.h"
#include "adapters/sqlite/restore.h"
#include "adapters/sqlite/schema.h"
#include "adapters/sqlite/store.h"

namespace semaphored {
namespace {

// ---- sqlite ----

struct SqliteUrl {
  sqlite::DatabaseOptions database;
  sqlite::StoreOptions store;
};

absl::Status BadUrl(absl::string_view url, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("store '", url, "': ", why));
}

absl::StatusOr<SqliteUrl> ReadSqliteUrl(absl::string_view url) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(absl::StripPrefix(url, "sqlite:"), absl::MaxSplits('?', 1));
  SqliteUrl result;
  if (parts.first != ":memory:") {
    std::optional<std::string> path = Unescape(absl::StripPrefix(parts.first, "//"));
    if (!path) return BadUrl(url, kNotUnescaped);
    if (path->empty()) {
      return BadUrl(url,
                    "it names no file; right are sqlite:///var/lib/semaphored/state.db, "
                    "sqlite:state.db, sqlite::memory:");
    }
    result.database.path = *std::move(path);
  }
  UrlOptions options([url](absl::string_view why) { return BadUrl(url, why); });
  options.Number("history_rows", 0, INT64_MAX, &result.store.history_rows);
  options.Choice<bool>("synchronous", {"full", true}, {"off", false}, &result.database.synchronous);
  if (absl::Status status = options.ReadAll(parts.second); !status.ok()) return status;
  return result;
}

class SqliteEngine : public Engine {
 public:
  SqliteEngine(std::unique_ptr<sqlite::Database> database, const sqlite::StoreOptions& options)
      : database_(std::move(database)),
        nodes_(std::make_shared<sqlite::NodeTable>(database_)),
        options_(options),
        guarantees_(sqlite::SqliteStore(database_, nodes_, options).guarantees()) {}

  const Guarantees& guarantees() const override { return guarantees_; }
  NodeStore& nodes() override { return *nodes_; }

  absl::StatusOr<std::unique_ptr<Adapter>> OpenLane(const ledger::LedgerOptions& options) override {
    if (!lane_.expired()) {
      return absl::FailedPreconditionError(
          "sqlite: one lane is all that an embedded file can have");
    }
    if (absl::Status status = nodes_->CheckMayWrite(options.self); !status.ok()) return status;
    auto lane = std::make_shared<char>();
    lane_ = lane;
    sqlite::StoreOptions store = options_;
    store.upkeep = upkeep();
    return ledger::MakeLedgerAdapter(
        std::make_unique<LaneStore>(database_, nodes_, store, std::move(lane)), options);
  }

  absl::StatusOr<Descriptor> BackUp(const BackUpRequest& request) override {
    return sqlite::BackUp(database_.get(), {request.bytes_per_second, request.progress});
  }

 private:
  // While it lives, no other is opened.
  class LaneStore : public sqlite::SqliteStore {
   public:
    LaneStore(std::shared_ptr<sqlite::Database> database, std::shared_ptr<sqlite::NodeTable> nodes,
              const sqlite::StoreOptions& options, std::shared_ptr<void> lane)
        : SqliteStore(std::move(database), std::move(nodes), options), lane_(std::move(lane)) {}

   private:
    const std::shared_ptr<void> lane_;
  };

  const std::shared_ptr<sqlite::Database> database_;
  const std::shared_ptr<sqlite::NodeTable> nodes_;
  const sqlite::StoreOptions options_;
  const Guarantees guarantees_;
  std::weak_ptr<void> lane_;
};

absl::StatusOr<std::unique_ptr<Engine>> OpenSqlite(const std::string& url) {
  absl::StatusOr<SqliteUrl> parsed = ReadSqliteUrl(url);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<std::unique_ptr<sqlite::Database>> database =
      sqlite::Database::Open(parsed->database);
  if (!database.ok()) return database.status();
  if (absl::Status status = sqlite::PrepareSchema(**database); !status.ok()) return status;
  return std::make_unique<SqliteEngine>(*std::move(database), parsed->store);
}

// ---- All ----

using Progress = std::function<void(const std::string& line)>;

absl::StatusOr<std::string> PostgresSchema(const std::string& url) {
  absl::StatusOr<postgres::Url> parsed = postgres::ReadUrl(url);
  if (!parsed.ok()) return parsed.status();
  return postgres::SchemaSql(parsed->schema);
}

// A daemon would make it likewise.
absl::StatusOr<std::string> MakePostgresSchema(const std::string& url, const Progress&) {
  const absl::StatusOr<postgres::Url> parsed = postgres::ReadUrl(url);
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<std::unique_ptr<Engine>> engine = postgres::OpenPostgres(url);
  if (!engine.ok()) return engine.status();
  return absl::StrCat("the schema '", parsed->schema, "' is there and can be used");
}

absl::StatusOr<std::string> DynamoSchema(const std::string& url) {
  const absl::StatusOr<dynamodb::Url> parsed = dynamodb::ReadUrl(url);
  if (!parsed.ok()) return parsed.status();
  return dynamodb::TableDefinition(parsed->table);
}

absl::StatusOr<std::string> MakeDynamoSchema(const std::string& url, const Progress& progress) {
  const absl::StatusOr<dynamodb::Url> parsed = dynamodb::ReadUrl(url);
  if (!parsed.ok()) return parsed.status();
  dynamodb::Client client(*parsed, dynamodb::FindCredentials(parsed->profile, parsed->region));
  dynamodb::TableMaking making;
  making.progress = progress;
  return dynamodb::MakeTable(&client, *parsed, making);
}

struct Scheme {
  absl::string_view name;
  absl::StatusOr<std::unique_ptr<Engine>> (*open)(const std::string& url);
  // nullptr, both: nothing has to be made before it is used.
  absl::StatusOr<std::string> (*schema)(const std::string& url);
  absl::StatusOr<std::string> (*make)(const std::string& url, const Progress& progress);
};

constexpr Scheme kSchemes[] = {
    {"sqlite", OpenSqlite, nullptr, nullptr},
    {"postgres", postgres::OpenPostgres, PostgresSchema, MakePostgresSchema},
    {"postgresql", postgres::OpenPostgres, PostgresSchema, MakePostgresSchema},
    {"consul", consul::OpenConsul, nullptr, nullptr},
    {"dynamodb", dynamodb::OpenDynamo, DynamoSchema, MakeDynamoSchema},
    {"amqp", rabbitmq::OpenRabbit, nullptr, nullptr},
    {"amqps", rabbitmq::OpenRabbit, nullptr, nullptr}};

absl::Status NothingToMake(const Scheme& scheme) {
  return absl::UnimplementedError(
      absl::StrCat(scheme.name, ": nothing has to be made before it is used"));
}

absl::StatusOr<Scheme> SchemeOf(const std::string& url) {
  const absl::string_view scheme = absl::string_view(url).substr(0, url.find(':'));
  for (const Scheme& known : kSchemes) {
    if (scheme == known.name && url.size() > scheme.size()) return known;
  }
  return BadUrl(url, absl::StrCat("unknown scheme; a store begins with one of: ",
                                  absl::StrJoin(EngineSchemes(), ", ",
                                                [](std::string* out, const std::string& name) {
                                                  absl::StrAppend(out, name, ":");
                                                })));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(const std::string& url) {
  const absl::StatusOr<Scheme> scheme = SchemeOf(url);
  if (!scheme.ok()) return scheme.status();
  return scheme->open(url);
}

absl::StatusOr<std::string> EngineSchema(const std::string& url) {
  const absl::StatusOr<Scheme> scheme = SchemeOf(url);
  if (!scheme.ok()) return scheme.status();
  if (scheme->schema == nullptr) return NothingToMake(*scheme);
  return scheme->schema(url);
}

absl::StatusOr<std::string> MakeEngineSchema(
    const std::string& url, const std::function<void(const std::string& line)>& progress) {
  const absl::StatusOr<Scheme> scheme = SchemeOf(url);
  if (!scheme.ok()) return scheme.status();
  if (scheme->make == nullptr) return NothingToMake(*scheme);
  return scheme->make(url, progress);
}

absl::StatusOr<std::string> RestoreEngine(const std::string& url, const RestoreRequest& request) {
  const absl::StatusOr<Scheme> scheme = SchemeOf(url);
  if (!scheme.ok()) return scheme.status();
  if (scheme->name != "sqlite") {
    return absl::UnimplementedError(
        absl::StrCat(scheme->name, ": only the embedded store is restored so"));
  }
  absl::StatusOr<SqliteUrl> parsed = ReadSqliteUrl(url);
  if (!parsed.ok()) return parsed.status();
  if (parsed->database.path.empty()) return BadUrl(url, "a store in memory cannot be restored");
  const absl::StatusOr<sqlite::Restored> restored =
      sqlite::Restore({parsed->database.path, request.from, request.epoch, request.wait});
  if (!restored.ok()) return restored.status();
  return absl::StrCat("restored: the store's epoch is ", restored->epoch,
                      restored->aside.empty() ? "" : "; what stood there is now ", restored->aside);
}

std::string EmbeddedFile(const std::string& url) {
  const absl::StatusOr<Scheme> scheme = SchemeOf(url);
  if (!scheme.ok() || scheme->name != "sqlite") return "";
  const absl::StatusOr<SqliteUrl> parsed = ReadSqliteUrl(url);
  return parsed.ok() ? parsed->database.path : "";
}

std::vector<std::string> EngineSchemes() {
  std::vector<std::string> names;
  for (const Scheme& scheme : kSchemes) names.emplace_back(scheme.name);
  return names;
}

}  // namespace semaphored
