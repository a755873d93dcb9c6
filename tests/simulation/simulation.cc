#include "tests/simulation/simulation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "tests/simulation/chaos.h"
#include "tests/simulation/clients.h"
#include "tests/simulation/foreign_clients.h"
#include "tests/simulation/impolite_client.h"
#include "tests/simulation/ticket_clients.h"

namespace semaphored::simulation {
namespace {

// After the faults have ended: sessions expire, queues empty, releases are sent again.
constexpr int64_t kWindDownUs = 150 * kSecond;

class Simulation {
 public:
  explicit Simulation(const RunOptions& options)
      : options_(options),
        cell_(options.cell.value_or(CellOf(options.seed))),
        world_(options.seed * 0x9e3779b97f4a7c15ull + 1, options.tracing),
        notifier_(&world_, &faults_),
        branches_(&faults_),
        checks_(&world_, &engine_, &faults_),
        cluster_(&world_, {&engine_, &notifier_}, &faults_, cell_, options.mutant, &branches_) {
    faults_.world = &world_;
    checks_.SetLimits(cluster_.limits(), cell_.exclusive);
    MutateEngine(options.mutant, &engine_);
    notifier_.silent = options.mutant == Mutant::kNoNotices;
    engine_.on_landed = [this](const ledger::Transaction& transaction, const auto& before) {
      TraceWrite(transaction);
      branches_.Count(transaction);
      checks_.OnLanded(transaction, before);
    };
    engine_.on_heartbeat = [this](const NodeStore::Node& node) { checks_.OnHeartbeat(node); };
    engine_.on_declared_dead = [this](const NodeStore::Node& node) {
      checks_.OnDeclaredDead(node, cluster_.node_ttl_ms());
    };
    engine_.on_foreign = [this](const std::string& name) {
      checks_.OnForeign(name);
      notifier_.TellForeign(name, engine_.Find(name)->row.revision);
    };
    engine_.may_forget = [this](const ledger::Transaction& transaction, uint32_t client) {
      if (!checks_.MayForget(transaction, client, cell_.exclusive, cluster_.client_retention_ms()))
        return false;
      faults_.Note(FaultKind::kForgotten);
      return true;
    };
    world_.set_after_event([this] { checks_.AfterEvent(); });
  }

  void Run() {
    MakeClients();
    for (int node = 0; node < cluster_.nodes(); ++node) cluster_.StartNode(node);
    world_.RunUntil(kSecond);
    for (const auto& actor : actors_) actor->Start();
    if (foreign_) foreign_->Start();
    Chaos chaos(&world_, &faults_, &network_, &cluster_, &engine_, around_.semaphores, actors_);
    chaos.Start();
    world_.RunUntil(kSecond + options_.chaos_s * kSecond);
    chaos.Heal();
    world_.Trace("all faults end");
    around_.winding_down = true;
    if (foreign_) foreign_->CleanUp();
    admin_->CleanUp();
    world_.RunUntil(world_.now() + kWindDownUs);
    for (const auto& actor : actors_) {
      if (!actor->idle())
        throw Violation{
            absl::StrCat(actor->name(), " is still not served, long after all faults have ended")};
    }
    checks_.AtTheEnd();
  }

  World& world() { return world_; }
  const MemoryEngine& engine() const { return engine_; }
  const Faults& faults() const { return faults_; }
  Tally tally() const { return branches_.ByName(); }
  CountChecks& counts() { return checks_.counts(); }
  uint64_t tickets_done() { return checks_.tickets().done(); }

 private:
  void MakeClients() {
    Random& random = world_.random();
    around_.world = &world_;
    around_.network = &network_;
    around_.cluster = &cluster_;
    around_.checks = &checks_;
    around_.engine = &engine_;
    around_.mutant = options_.mutant;
    around_.semaphores = SemaphoreCount();
    around_.shared_holders = random.Chance(0.3);
    const int lease_clients = static_cast<int>(random.Between(3, 7));
    const int session_clients = static_cast<int>(random.Between(1, 3));
    for (int i = 0; i < lease_clients; ++i) {
      actors_.push_back(std::make_shared<LeaseClient>(
          &around_, i, absl::StrCat(i % 3 == 2 ? "hold" : "lease", i), i % 3 == 2));
    }
    for (int i = 0; i < session_clients; ++i) {
      actors_.push_back(std::make_shared<SessionClient>(
          &around_, lease_clients + i, absl::StrCat("session", i), /*crowd=*/false));
    }
    admin_ = std::make_shared<AdminClient>(&around_, lease_clients + session_clients, "admin");
    actors_.push_back(admin_);
    if (random.Chance(0.5)) MakeTicketClients();
    if (random.Chance(0.3)) MakeImpoliteClients();
    if (random.Chance(options_.crowd)) {
      actors_.push_back(std::make_shared<SessionClient>(&around_, static_cast<int>(actors_.size()),
                                                        "crowd", /*crowd=*/true));
    }
    // An exclusive store has no other clients.
    if (!cell_.exclusive && random.Chance(0.25))
      foreign_.emplace(&world_, &faults_, &engine_, around_.semaphores);
    around_.acts_now = random.Chance(0.5);
    if (around_.acts_now) checks_.LetActsEndLeases();
    for (const auto& actor : actors_) checks_.AddBeliever(actor.get());
  }

  // Several lanes share the semaphores out among them.
  int SemaphoreCount() {
    Random& random = world_.random();
    if (random.Chance(0.25)) return 6;
    return static_cast<int>(cell_.lanes > 1 ? random.Between(2, 4) : random.Between(1, 2));
  }

  void MakeImpoliteClients() {
    auto book = std::make_shared<ImpoliteBook>();
    book->client_id = "impolite";
    checks_.IsImpolite(book->client_id);
    for (int i = 0; i < 2; ++i) {
      actors_.push_back(
          std::make_shared<ImpoliteClient>(&around_, static_cast<int>(actors_.size()), book));
    }
  }

  void MakeTicketClients() {
    Random& random = world_.random();
    around_.tickets = true;
    cluster_.MakeRoomForWorkers();
    checks_.SetLimits(cluster_.limits(), cell_.exclusive);
    around_.dead_letters = random.Chance(options_.crowd);
    const int workers = static_cast<int>(random.Between(1, Cluster::kWorkersMax));
    const int64_t enqueuers = random.Between(1, 2);
    for (int i = 0; i < workers; ++i) {
      actors_.push_back(std::make_shared<WorkClient>(&around_, static_cast<int>(actors_.size()),
                                                     absl::StrCat("worker", i), i == 0));
    }
    for (int64_t i = 0; i < enqueuers; ++i) {
      actors_.push_back(std::make_shared<TicketClient>(&around_, static_cast<int>(actors_.size()),
                                                       absl::StrCat("enqueuer", i)));
    }
  }

  void TraceTickets(const ledger::SemaphoreDelta& delta, std::string* line) {
    for (const ledger::TicketChange& change : delta.tickets) {
      const Ticket& ticket = change.after ? *change.after : *change.before;
      absl::StrAppend(line, "; ticket ", ticket.id.Hex().substr(0, 6), " attempt ", ticket.attempt,
                      !change.before  ? " comes, state "
                      : !change.after ? " goes, state "
                                      : " state ",
                      static_cast<int>(ticket.state));
    }
  }

  void TraceWrite(const ledger::Transaction& transaction) {
    if (!world_.tracing()) return;
    for (const ledger::SemaphoreDelta& delta : transaction.semaphores) {
      std::string line =
          absl::StrCat("engine: node ", transaction.node.number, ".", transaction.node.incarnation,
                       " ", delta.name, " revision ", delta.revision, " limit ",
                       delta.after ? static_cast<int>(delta.after->limit) : -1);
      for (const ledger::WaiterChange& change : delta.waiters) {
        const Waiter& waiter = change.after ? *change.after : *change.before;
        absl::StrAppend(&line, "; waiter ", waiter.id.Hex().substr(0, 6), " of ", waiter.holder,
                        " x", waiter.permits,
                        !change.before ? " queues"
                        : change.after
                            ? " moves"
                            : absl::StrCat(" leaves, cause ", static_cast<int>(change.cause)));
      }
      for (const ledger::LeaseChange& change : delta.leases) {
        const Lease& lease = change.after ? *change.after : *change.before;
        absl::StrAppend(&line, "; lease ", lease.id.Hex().substr(0, 6), " of ", lease.holder, " x",
                        lease.permits, " epoch ", lease.epoch,
                        !change.before ? " is granted"
                        : change.after
                            ? " changes"
                            : absl::StrCat(" ends, cause ", static_cast<int>(change.cause)));
      }
      TraceTickets(delta, &line);
      world_.Trace(line);
    }
    for (const ledger::SessionChange& change : transaction.sessions) {
      const Session& session = change.after ? *change.after : *change.before;
      world_.Trace(absl::StrCat("engine: session ", session.id.Hex().substr(0, 6), " of ",
                                session.holder, " epoch ", session.epoch,
                                !change.before ? " is opened"
                                : change.after ? " moves"
                                               : " is closed",
                                " by node ", transaction.node.number));
    }
  }

  const RunOptions options_;
  const Cell cell_;
  World world_;
  Faults faults_;
  Network network_;
  MemoryEngine engine_;
  Notifier notifier_;
  BranchCounter branches_;
  Checks checks_;
  Cluster cluster_;
  Surroundings around_;
  std::vector<std::shared_ptr<Actor>> actors_;
  std::shared_ptr<AdminClient> admin_;
  std::optional<ForeignClients> foreign_;
};

}  // namespace

RunResult Run(const RunOptions& options) {
  RunResult result;
  // What the daemons log is of use beside a trace only, and would hide a failure.
  spdlog::set_level(options.tracing ? spdlog::level::info : spdlog::level::off);
  Simulation simulation(options);
  try {
    simulation.Run();
  } catch (const Violation& violation) {
    result.ok = false;
    result.what =
        absl::StrCat("after ", simulation.world().now() / kMillisecond, " ms: ", violation.what);
  }
  result.trace = simulation.world().trace();
  result.digest = simulation.world().digest();
  result.events = simulation.world().events_run();
  result.grants = simulation.engine().history().size();
  result.tickets_done = simulation.tickets_done();
  result.faults = simulation.faults().struck;
  result.tally = simulation.tally();
  result.counts_exact = simulation.counts().exact();
  result.counts_bounded = simulation.counts().bounded();
  return result;
}

}  // namespace semaphored::simulation
