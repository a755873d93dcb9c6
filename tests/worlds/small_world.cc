#include "tests/worlds/small_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger.h"

namespace semaphored::worlds {

using ledger::Transaction;
using simulation::StoredSemaphore;

namespace {

constexpr uint64_t kClaims = 0x100;
constexpr uint64_t kSessions = 0x200;
constexpr int64_t kTtl_ms = 10'000;
constexpr std::chrono::seconds kSweepInterval{5};
// A world comes to rest in fewer rounds, or never does.
constexpr int kRoundsMax = 60;
// So many rounds without a commit: an intention is taken over when it has stood still for two sweeps.
constexpr int kQuietRounds = 4;

std::string ClientName(size_t client) { return absl::StrCat("client", client); }

}  // namespace

Id ClaimId(size_t client, size_t request, size_t attempt) {
  return {kClaims + client, (request << 8) | (attempt + 1)};
}

Id SessionId(size_t client) { return {kSessions + client, 1}; }

SmallWorld::SmallWorld(const WorldSpec* spec, const Planted* planted)
    : spec_(spec), planted_(planted), checks_(&engine_) {
  simulation::MutateEngine(planted->mutant, &engine_);
  engine_.conditions.epoch = !planted->ignore_epoch;
  engine_.conditions.session_row = !planted->ignore_session_row;
  engine_.on_landed = [this](const Transaction& transaction,
                             const std::map<std::string, StoredSemaphore>& before) {
    OnLanded(transaction, before);
  };
  notifier_.silent = true;
  nodes_.resize(static_cast<size_t>(spec->nodes));
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].ref = engine_.Join(absl::StrCat("node", i));
  lanes_.resize(static_cast<size_t>(spec->lanes));
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].node = spec->nodes == 1 ? 0 : i;
    Start(lanes_[i], i);
  }
  for (const int script : spec->clients)
    known_.emplace_back(spec->scripts[static_cast<size_t>(script)].size());
  for (const Script& script : spec->scripts) {
    std::set<uint64_t> ids;
    for (const Request& request : script) reuses_ = reuses_ || !ids.insert(request.sequence).second;
  }
  Setup();
}

void SmallWorld::Start(Lane& lane, size_t index) {
  const simulation::EngineHandle handle{&engine_, &notifier_};
  auto link = std::make_shared<simulation::EngineLink>(&time_, &faults_);
  auto connection = std::make_shared<simulation::MemoryStore>(handle, std::move(link), nullptr);
  auto store = std::make_unique<ChoiceStore>(index, spec_->exclusive, &author_, planted_->store,
                                             std::move(connection));
  lane.store = store.get();
  ledger::LedgerOptions options;
  options.self = nodes_[lane.node].ref;
  options.carry_on_time = std::chrono::milliseconds(0);
  options.changes_per_commit_max = spec_->changes_per_commit_max;
  options.sweep_interval = kSweepInterval;
  options.now_unix_ms = [] { return int64_t{0}; };
  options.now = [&lane] { return lane.now; };
  auto adapter = ledger::MakeLedgerAdapter(
      simulation::MutateStore(planted_->mutant, std::move(store)), std::move(options));
  if (!adapter.ok()) Fail("a lane does not start: " + std::string(adapter.status().message()));
  lane.ledger = adapter->get();
  lane.adapter = simulation::MutateAdapter(planted_->mutant, *std::move(adapter));
  lane.up = true;
  lane.view = {};
}

void SmallWorld::Setup() {
  std::vector<Sent> create;
  for (const Initial& initial : spec_->semaphores) {
    if (initial.limit == 0) continue;
    AdminCommand command;
    command.semaphore = initial.semaphore;
    command.act = AdminCreate{initial.limit, {}};
    create.push_back({command, next_number_++});
  }
  if (!create.empty()) Step(0, std::move(create));
  for (size_t client = 0; spec_->sessions && client < known_.size(); ++client) {
    const size_t home = client % lanes_.size();
    OpenSessionCommand open;
    open.session = SessionId(client);
    open.client_id = ClientName(client);
    open.ttl_ms = kTtl_ms;
    Step(home, {{open, next_number_++}});
    NodeOf(home).sessions[open.session] = 1;
  }
  for (Lane& lane : lanes_) lane.notices.clear();
}

// ---- what may be done ----

bool SmallWorld::InDoubt(size_t lane) const {
  return ledger::LedgerProbe{*lanes_[lane].ledger}.commands_in_doubt() > 0;
}

bool SmallWorld::IsOpenAt(size_t index, size_t client) const {
  const Id session = SessionId(client);
  const auto closes = [&](const Sent& sent) {
    const auto* close = std::get_if<CloseSessionCommand>(&sent.command);
    return close != nullptr && close->session == session;
  };
  return NodeOf(index).sessions.contains(session) &&
         std::ranges::none_of(lanes_, [&](const Lane& lane) {
           return lane.node == lanes_[index].node && std::ranges::any_of(lane.in_doubt, closes);
         });
}

// ---- what is done ----

int SmallWorld::Do(const Action& action) {
  for (Lane& lane : lanes_) lane.store->Plan(-1, Fate::kLands);
  lanes_[action.lane].store->Plan(action.commit, action.fate);
  if (action.commit >= 0) ++spent_.losses;
  Act(action);
  return lanes_[action.lane].store->commits();
}

void SmallWorld::Act(const Action& action) {
  const size_t lane = action.lane;
  using Kind = Action::Kind;
  switch (action.kind) {
    case Kind::kSubmit:
    case Kind::kMoveOver:
      Step(lane, {Submission(action, action.client, action.request)});
      return;
    case Kind::kSubmitPair:
      Step(lane, {Submission(action, action.client, action.request),
                  Submission(action, action.second_client, action.second_request)});
      return;
    case Kind::kExpire:
      Step(lane, {{EndOf(action, EndCause::kExpired), next_number_++}});
      return;
    case Kind::kCancel:
      Step(lane, {{EndOf(action, EndCause::kCancelled), next_number_++}});
      return;
    case Kind::kAdoptClaim: {
      const Request& request =
          spec_->scripts[static_cast<size_t>(spec_->clients[action.client])][action.request];
      AdoptCommand adopt{request.semaphore, known_[action.client][action.request].claim};
      Step(lane, {{adopt, next_number_++}});
      return;
    }
    case Kind::kAdoptSession:
      Step(lane, {{AdoptSessionCommand{SessionId(action.client)}, next_number_++}});
      return;
    case Kind::kCloseSession: {
      CloseSessionCommand close;
      close.session = SessionId(action.client);
      close.epoch = NodeOf(lane).sessions.at(close.session);
      Step(lane, {{close, next_number_++}});
      return;
    }
    case Kind::kSweep:
      return Sweep(lane);
    case Kind::kHear:
      return Hear(lane);
    case Kind::kSettle:
      return Settle(lane);
    case Kind::kLandLate: {
      const auto& write =
          action.attempt == 0 ? lanes_[lane].store->in_flight() : late_[action.attempt - 1u];
      checks_.BeginStep({});
      worlds::Land(write.get(), &author_);
      return;
    }
    case Kind::kRestart:
      return Restart(lane);
    case Kind::kDeclareDead:
      ++spent_.deaths;
      for (const NodeStore::Node& node : engine_.Nodes()) {
        if (node.ref == NodeOf(lane).ref) NodeOf(lane).dead = engine_.DeclareDead(node);
      }
      return;
    case Kind::kTakeOver:
      return TakeOver(lane);
  }
}

SmallWorld::Sent SmallWorld::Submission(const Action& action, size_t client, size_t place) {
  const Request& request = spec_->scripts[static_cast<size_t>(spec_->clients[client])][place];
  Sent sent;
  sent.number = next_number_++;
  sent.client = static_cast<int>(client);
  sent.request = place;
  const Requester requester{ClientName(client), request.sequence};
  if (request.act == Request::Act::kAcquire) {
    AcquireCommand acquire;
    acquire.requester = requester;
    acquire.semaphore = request.semaphore;
    acquire.claim = ClaimId(client, place, known_[client][place].asked++);
    acquire.session = acquire.claim;
    if (action.variant % 2 == 1) {
      acquire.session = SessionId(client);
      acquire.epoch = NodeOf(action.lane).sessions.at(acquire.session);
    }
    acquire.permits = request.permits;
    acquire.limit = request.limit;
    acquire.wait = request.wait;
    acquire.priority = request.priority;
    acquire.ttl_ms = kTtl_ms;
    acquire.holder = ClientName(client);
    acquire.holder_is_default = true;
    acquire.only_if_repeated = action.variant >= 2;
    if (action.kind == Action::Kind::kMoveOver) {
      acquire.moved_is_over = true;
      acquire.moved_epoch = known_[client][place].moving;
    }
    sent.command = std::move(acquire);
    return sent;
  }
  if (request.act == Request::Act::kRelease) {
    sent.command =
        ReleaseCommand{requester, request.semaphore, known_[client][request.of].claim, {}, {}};
    return sent;
  }
  AdminCommand admin;
  admin.requester = requester;
  admin.semaphore = request.semaphore;
  if (request.act == Request::Act::kResize) admin.act = request.resize;
  if (request.act == Request::Act::kRevokeAll) admin.act = AdminRevoke{{}, "", request.grace_ms};
  if (request.act == Request::Act::kDestroy) admin.act = AdminDestroy{request.destroy};
  if (request.act == Request::Act::kPause) admin.act = AdminPause{request.paused};
  sent.command = std::move(admin);
  return sent;
}

Command SmallWorld::EndOf(const Action& action, EndCause cause) const {
  const Id claim = ClaimId(action.client, action.request, action.attempt);
  const Hosted& hosted = NodeOf(action.lane).claims.at(claim);
  EndCommand end;
  end.semaphore =
      spec_->scripts[static_cast<size_t>(spec_->clients[action.client])][action.request].semaphore;
  end.claim = claim;
  end.cause = cause;
  end.session = hosted.session;
  end.epoch = hosted.epoch;
  end.only_waiting = cause == EndCause::kCancelled && action.variant == 0;
  return end;
}

void SmallWorld::Settle(size_t lane) { Step(lane, {}); }

void SmallWorld::Hear(size_t lane) {
  for (auto& [name, notice] : std::exchange(lanes_[lane].notices, {}))
    lanes_[lane].store->Deliver(std::move(notice));
  Step(lane, {});
}

void SmallWorld::Sweep(size_t lane) {
  lanes_[lane].notices.clear();
  lanes_[lane].now += kSweepInterval;
  Step(lane, {});
}

void SmallWorld::Restart(size_t which) {
  ++spent_.restarts;
  const size_t node = lanes_[which].node;
  nodes_[node].ref = engine_.Join(absl::StrCat("node", node));
  nodes_[node].dead = false;
  nodes_[node].claims.clear();
  nodes_[node].sessions.clear();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.node != node) continue;
    if (const auto& write = lane.store->in_flight(); write && !write->result)
      late_.push_back(write);
    lane.adapter.reset();
    lane.in_doubt.clear();
    lane.notices.clear();
    Start(lane, i);
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].node == node) TakeOver(i);
  }
}

void SmallWorld::TakeOver(size_t lane) {
  OrphansCommand orphans;
  for (const Node& node : nodes_) {
    if (node.dead) orphans.dead.push_back(node.ref);
  }
  Step(lane, {{orphans, next_number_++}});
}

bool SmallWorld::MayFail(const Lane& lane, const absl::Status& status) {
  if (!engine_.MayWrite(nodes_[lane.node].ref)) return absl::IsFailedPrecondition(status);
  return absl::IsUnavailable(status) && ledger::LedgerProbe{*lane.ledger}.in_doubt();
}

bool SmallWorld::Step(size_t index, std::vector<Sent> sent) {
  Lane& lane = lanes_[index];
  std::vector<semaphored::Submission> batch;
  author_ = {index, {}};
  for (const Sent& each : sent) batch.push_back({each.number, each.command});
  for (const Sent& each : sent.empty() ? lane.in_doubt : sent)
    author_.commands.push_back(each.command);
  checks_.BeginStep(author_.commands);
  absl::StatusOr<StepResult> result = lane.adapter->Step(batch, lane.now + std::chrono::hours(1));
  if (!result.ok()) {
    if (!MayFail(lane, result.status()))
      Fail("a step failed: " + std::string(result.status().message()));
    if (!absl::IsFailedPrecondition(result.status())) return false;
    lane.up = false;
    if (const auto& write = lane.store->in_flight(); write && !write->result)
      late_.push_back(write);
    lane.in_doubt.clear();
    return false;
  }
  for (Settled& settled : result->settled) {
    const auto found = std::ranges::find(lane.in_doubt, settled.number, &Sent::number);
    if (found == lane.in_doubt.end()) Fail("a command was settled that was not in doubt");
    const Sent known = *found;
    lane.in_doubt.erase(found);
    if (settled.outcome.ok()) {
      See(index, known, *settled.outcome, /*settled=*/true);
    } else if (!spec_->exclusive && engine_.MayWrite(nodes_[lane.node].ref)) {
      Fail("a command failed: " + std::string(settled.outcome.status().message()));
    }
  }
  if (result->outcomes.size() != sent.size()) Fail("not each command has an outcome");
  for (size_t i = 0; i < sent.size(); ++i) {
    if (result->outcomes[i].kind == OutcomeKind::kUnknown) {
      lane.in_doubt.push_back(sent[i]);
    } else {
      See(index, sent[i], result->outcomes[i], /*settled=*/false);
    }
  }
  // The order among the events of one claim is the adapter's; among claims it has no meaning.
  std::ranges::stable_sort(result->events, {}, &Event::claim);
  for (const Event& event : result->events) Hear(index, event);
  return true;
}

// ---- what lands ----

void SmallWorld::OnLanded(const Transaction& transaction,
                          const std::map<std::string, StoredSemaphore>& before) {
  ++landed_;
  checks_.Landed(transaction, before, author_.commands);
  if (spec_->exclusive) return;
  for (const ledger::SemaphoreDelta& delta : transaction.semaphores) {
    std::optional<ledger::DetailsAndGrants> told = DetailsOf(transaction, delta, /*claims_max=*/8);
    for (size_t i = 0; told && i < told->grants.size(); ++i)
      told->details.granted[i].token = told->grants[i]->token;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (i == author_.lane || !lanes_[i].up) continue;
      Notice& notice = lanes_[i].notices[delta.name];
      notice.notice = {delta.name, delta.revision, ""};
      notice.details.reset();
      if (told) notice.details = told->details;
    }
  }
}

// ---- what is answered ----

void SmallWorld::See(size_t lane, const Sent& sent, const Outcome& outcome, bool settled) {
  if (settled) {
    checks_.Settled(sent.command, outcome, lanes_[lane].view);
  } else {
    checks_.Answered(sent.command, outcome, lanes_[lane].view);
  }
  if (std::holds_alternative<AcquireCommand>(sent.command)) LearnAcquired(lane, sent, outcome);
  if (outcome.report) LearnReport(lane, *outcome.report);
  if (const auto* adopt = std::get_if<AdoptCommand>(&sent.command)) {
    const bool held = outcome.kind == OutcomeKind::kHeld;
    const uint32_t epoch = held ? outcome.lease->epoch : outcome.epoch();
    if (held || outcome.kind == OutcomeKind::kStillWaiting)
      LearnClaim(lane, adopt->claim, {adopt->claim, epoch, epoch}, held);
  }
  const auto* end = std::get_if<EndCommand>(&sent.command);
  const bool stays = end != nullptr && outcome.kind == OutcomeKind::kStale && end->only_waiting;
  if (end != nullptr && !stays) NodeOf(lane).claims.erase(end->claim);
  if (const auto* close = std::get_if<CloseSessionCommand>(&sent.command))
    NodeOf(lane).sessions.erase(close->session);
}

void SmallWorld::LearnClaim(size_t lane, const Id& claim, const Hosted& hosted, bool held) {
  NodeOf(lane).claims[claim] = hosted;
  const auto [at, is_new] = lanes_[lane].view.claims.try_emplace(claim, LaneView::Is::kWaiting);
  if (held) at->second = LaneView::Is::kHeld;
}

void SmallWorld::LearnAcquired(size_t lane, const Sent& sent, const Outcome& outcome) {
  const auto& acquire = std::get<AcquireCommand>(sent.command);
  Known& known = known_[static_cast<size_t>(sent.client)][sent.request];
  const bool held = outcome.kind == OutcomeKind::kGranted || outcome.kind == OutcomeKind::kMoving;
  if (!held && outcome.kind != OutcomeKind::kQueued) return;
  known.claim = held ? outcome.lease->id : outcome.claim;
  known.moving = outcome.kind == OutcomeKind::kMoving ? outcome.lease->epoch : 0;
  const bool detached = acquire.session == acquire.claim;
  const uint32_t epoch = held ? outcome.lease->epoch : std::max(1u, outcome.epoch());
  const Hosted hosted =
      detached ? Hosted{known.claim, epoch, epoch} : Hosted{acquire.session, acquire.epoch, epoch};
  LearnClaim(lane, known.claim, hosted, held);
}

void SmallWorld::LearnReport(size_t lane, const Report& report) {
  Node& node = NodeOf(lane);
  const auto learn = [&](const std::vector<ClaimInfo>& claims, const Id& session, uint32_t epoch) {
    for (const ClaimInfo& info : claims) {
      const Claim& claim = info.lease ? static_cast<const Claim&>(*info.lease) : *info.waiter;
      LearnClaim(lane, claim.id, {session, epoch, claim.epoch}, info.lease != nullptr);
    }
  };
  if (report.session) {
    node.sessions[report.session->id] = report.session->epoch;
    learn(report.claims, report.session->id, report.session->epoch);
  }
  for (const Orphan& orphan : report.orphans) {
    if (orphan.session.high >= kSessions) node.sessions[orphan.session] = orphan.epoch;
    learn(orphan.claims, orphan.session, orphan.epoch);
  }
}

void SmallWorld::Hear(size_t lane, const Event& event) {
  Node& node = NodeOf(lane);
  if (event.kind == Event::Kind::kMoved && event.claim.high >= kSessions) {
    if (const auto found = node.sessions.find(event.claim);
        found != node.sessions.end() && found->second < event.epoch)
      node.sessions.erase(found);
    std::erase_if(node.claims, [&](const auto& each) {
      return each.second.session == event.claim && each.second.epoch < event.epoch;
    });
    return;
  }
  checks_.Heard(event, &lanes_[lane].view);
  if (event.kind == Event::Kind::kEnded || event.kind == Event::Kind::kWaitEnded)
    node.claims.erase(event.claim);
  if (event.kind != Event::Kind::kMoved) return;
  const auto found = node.claims.find(event.claim);
  // It may be back already, or have moved again.
  if (found == node.claims.end() || event.epoch <= found->second.claim_epoch) return;
  if (event.session.empty() || event.session == found->second.session) node.claims.erase(found);
}

// ---- the checks of a state ----

void SmallWorld::CheckState() {
  checks_.Engine();
  for (const Lane& lane : lanes_) {
    if (lane.up) Checks::Lane(*lane.ledger, reuses_);
  }
}

void SmallWorld::AskForEachClaim(size_t lane) {
  std::vector<Sent> questions;
  for (const auto& [id, life] : checks_.lives())
    questions.push_back({VerifyCommand{life.semaphore, id, 0, 0}, next_number_++});
  if (!questions.empty() && lanes_[lane].up && !InDoubt(lane)) Step(lane, std::move(questions));
}

void SmallWorld::CheckQuiescence() {
  for (Lane& lane : lanes_) lane.store->Plan(-1, Fate::kLands);
  for (size_t i = 0; i < lanes_.size(); ++i) AskForEachClaim(i);
  int quiet = 0;
  for (int round = 0; quiet < kQuietRounds; ++round) {
    if (round == kRoundsMax) Fail("the lanes never come to rest");
    const int64_t before = landed_;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].up && InDoubt(i)) Settle(i);
      if (lanes_[i].up) Hear(i);
      if (lanes_[i].up) Sweep(i);
    }
    quiet = landed_ == before ? quiet + 1 : 0;
  }
  checks_.Engine();
  const auto is_up = [this](const NodeRef& ref) {
    return std::ranges::any_of(nodes_,
                               [&](const Node& node) { return node.ref == ref && !node.dead; });
  };
  for (const Lane& lane : lanes_) {
    if (lane.up) checks_.Quiet(*lane.ledger, lane.view, is_up);
  }
}

}  // namespace semaphored::worlds
