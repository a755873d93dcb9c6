// Which acts the explorer may choose, and their names.
#include "absl/strings/str_cat.h"
#include "tests/worlds/small_world.h"

namespace semaphored::worlds {

using Kind = Action::Kind;

class ActionList {
 public:
  explicit ActionList(const SmallWorld& world) : world_(world), spec_(*world.spec_) {}

  std::vector<Action> Make() {
    for (size_t i = 0; i < world_.lanes_.size(); ++i) {
      lane_ = static_cast<uint8_t>(i);
      OfEngine();
      if (!world_.lanes_[i].up) continue;
      if (world_.InDoubt(i)) {
        Add(Kind::kSettle);
        continue;
      }
      OfClients();
      OfHost();
      OfLane();
    }
    for (size_t i = 0; i < world_.late_.size(); ++i) {
      if (MayLand(*world_.late_[i])) Add(Kind::kLandLate).attempt = static_cast<uint8_t>(i + 1);
    }
    return std::move(actions_);
  }

 private:
  Action& Add(Kind kind) {
    Action& action = actions_.emplace_back();
    action.kind = kind;
    action.lane = lane_;
    return action;
  }

  static bool MayLand(const InFlight& write) { return !write.result && write.fate == Fate::kLater; }

  // What needs no lane that is up.
  void OfEngine() {
    const auto& lane = world_.lanes_[lane_];
    if (const auto& write = lane.store->in_flight(); write && lane.up && MayLand(*write))
      Add(Kind::kLandLate);
    const bool first = lane_ == 0 || world_.lanes_[lane_ - 1u].node != lane.node;
    if (first && world_.spent_.restarts < spec_.restarts) Add(Kind::kRestart);
    const bool may_die = spec_.nodes > 1 && world_.spent_.deaths < spec_.deaths;
    if (first && may_die && !world_.NodeOf(lane_).dead) Add(Kind::kDeclareDead);
  }

  void OfClients() {
    for (size_t client = 0; client < world_.known_.size(); ++client) {
      if (!spec_.every_lane && client % world_.lanes_.size() != lane_) continue;
      for (size_t place = 0; place < world_.known_[client].size(); ++place) {
        if (MaySubmit(client, place)) Submits(client, place);
      }
      if (!spec_.sessions) continue;
      const bool here = world_.IsOpenAt(lane_, client);
      if (spec_.adopt) OfClient(Kind::kAdoptSession, client);
      if (spec_.close && here) OfClient(Kind::kCloseSession, client);
    }
  }

  Action& OfClient(Kind kind, size_t client, size_t place = 0, size_t variant = 0) {
    Action& action = Add(kind);
    action.client = static_cast<uint8_t>(client);
    action.request = static_cast<uint8_t>(place);
    action.variant = static_cast<uint8_t>(variant);
    return action;
  }

  const Request& RequestAt(size_t client, size_t place) const {
    return spec_.scripts[static_cast<size_t>(spec_.clients[client])][place];
  }

  bool MaySubmit(size_t client, size_t place) const {
    const Request& request = RequestAt(client, place);
    return request.act != Request::Act::kRelease ||
           !world_.known_[client][request.of].claim.empty();
  }

  void Submits(size_t client, size_t place) {
    const Request& request = RequestAt(client, place);
    const auto& known = world_.known_[client][place];
    const bool acquires = request.act == Request::Act::kAcquire;
    std::vector<size_t> variants;
    if (spec_.detached || !acquires) variants.push_back(0);
    if (spec_.sessions && acquires && world_.IsOpenAt(lane_, client)) variants.push_back(1);
    for (const size_t variant : variants) {
      OfClient(Kind::kSubmit, client, place, variant);
      if (acquires && spec_.only_if_repeated) OfClient(Kind::kSubmit, client, place, variant + 2);
      if (acquires && known.moving != 0) OfClient(Kind::kMoveOver, client, place, variant);
      if (spec_.pairs) Pairs(client, place, variant);
    }
    const bool adopts = acquires && spec_.adopt && spec_.detached && !known.claim.empty();
    if (adopts) OfClient(Kind::kAdoptClaim, client, place);
  }

  void Pairs(size_t client, size_t place, size_t variant) {
    for (size_t other = 0; other < world_.known_.size(); ++other) {
      for (size_t second = 0; second < world_.known_[other].size(); ++second) {
        if (!MaySubmit(other, second)) continue;
        if (variant == 1 && !world_.IsOpenAt(lane_, other)) continue;
        Action& pair = OfClient(Kind::kSubmitPair, client, place, variant);
        pair.second_client = static_cast<uint8_t>(other);
        pair.second_request = static_cast<uint8_t>(second);
      }
    }
  }

  void OfHost() {
    for (const auto& [claim, hosted] : world_.NodeOf(lane_).claims) {
      const size_t client = claim.high - ClaimId(0, 0, 0).high;
      const auto add = [&](Kind kind, size_t variant) {
        Action& action = OfClient(kind, client, claim.low >> 8, variant);
        action.attempt = static_cast<uint8_t>((claim.low & 0xff) - 1);
      };
      if (spec_.expire) add(Kind::kExpire, 0);
      if (!spec_.cancel) continue;
      add(Kind::kCancel, 0);
      add(Kind::kCancel, 1);
    }
  }

  void OfLane() {
    const auto& lane = world_.lanes_[lane_];
    const ledger::LedgerProbe probe{*lane.ledger};
    bool serves = probe.in_doubt() || !probe.found_events().empty();
    for (const auto& [name, stored] : world_.engine_.semaphores())
      serves = serves || probe.ToServe(name);
    if (serves || !lane.notices.empty()) Add(Kind::kHear);
    if (!spec_.exclusive) Add(Kind::kSweep);
    bool others_dead = false;
    for (const auto& node : world_.nodes_) others_dead = others_dead || node.dead;
    if (others_dead) Add(Kind::kTakeOver);
  }

  const SmallWorld& world_;
  const WorldSpec& spec_;
  uint8_t lane_ = 0;
  std::vector<Action> actions_;
};

std::vector<Action> SmallWorld::Enabled() const { return ActionList(*this).Make(); }

namespace {

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kSubmit:
      return "submit";
    case Kind::kSubmitPair:
      return "submit in one batch";
    case Kind::kExpire:
      return "expire";
    case Kind::kCancel:
      return "cancel";
    case Kind::kAdoptClaim:
      return "adopt the claim of";
    case Kind::kAdoptSession:
      return "adopt the session of";
    case Kind::kCloseSession:
      return "close the session of";
    case Kind::kMoveOver:
      return "submit, the move being over:";
    case Kind::kSweep:
      return "sweep, notices lost";
    case Kind::kHear:
      return "hear";
    case Kind::kSettle:
      return "settle";
    case Kind::kLandLate:
      return "a commit lands late";
    case Kind::kRestart:
      return "restart";
    case Kind::kDeclareDead:
      return "its node is declared dead";
    case Kind::kTakeOver:
      return "look for what the dead left";
  }
  return "";
}

const char* NameOf(Fate fate) {
  switch (fate) {
    case Fate::kLands:
      return "lands";
    case Fate::kAnswerLost:
      return "lands, its answer is lost";
    case Fate::kNever:
      return "is lost";
    case Fate::kLater:
      return "is under way";
    case Fate::kCount:
      break;
  }
  return "";
}

std::string NameOf(const WorldSpec& spec, size_t client, size_t place) {
  const Request& request = spec.scripts[static_cast<size_t>(spec.clients[client])][place];
  std::string text =
      absl::StrCat("client ", client, " request ", place, " (id ", request.sequence, ": ");
  switch (request.act) {
    case Request::Act::kAcquire:
      absl::StrAppend(&text, "acquire ", request.permits, request.wait ? ", waits" : "");
      break;
    case Request::Act::kRelease:
      absl::StrAppend(&text, "release what request ", request.of, " got");
      break;
    case Request::Act::kResize:
      absl::StrAppend(&text, "resize ", static_cast<int>(request.resize.change), " by ",
                      request.resize.amount, ", policy ", static_cast<int>(request.resize.policy));
      break;
    case Request::Act::kRevokeAll:
      absl::StrAppend(&text, "revoke all");
      break;
    case Request::Act::kDestroy:
      absl::StrAppend(&text, "destroy, policy ", static_cast<int>(request.destroy));
      break;
    case Request::Act::kPause:
      absl::StrAppend(&text, request.paused ? "pause" : "resume");
      break;
  }
  return absl::StrCat(text, " of ", request.semaphore, ")");
}

}  // namespace

std::string Describe(const WorldSpec& spec, const Action& action) {
  std::string text = absl::StrCat("lane ", action.lane, ": ", NameOf(action.kind));
  switch (action.kind) {
    case Kind::kSubmit:
    case Kind::kSubmitPair:
    case Kind::kExpire:
    case Kind::kCancel:
    case Kind::kAdoptClaim:
    case Kind::kMoveOver:
      absl::StrAppend(&text, " ", NameOf(spec, action.client, action.request));
      break;
    case Kind::kAdoptSession:
    case Kind::kCloseSession:
      absl::StrAppend(&text, " client ", action.client);
      break;
    case Kind::kSweep:
    case Kind::kHear:
    case Kind::kSettle:
    case Kind::kLandLate:
    case Kind::kRestart:
    case Kind::kDeclareDead:
    case Kind::kTakeOver:
      break;
  }
  const bool submits = action.kind == Kind::kSubmit || action.kind == Kind::kSubmitPair ||
                       action.kind == Kind::kMoveOver;
  if (submits && action.variant % 2 == 1) absl::StrAppend(&text, " in its session");
  if (submits && action.variant >= 2) absl::StrAppend(&text, " if it was made before");
  if (action.kind == Kind::kCancel && action.variant == 1) absl::StrAppend(&text, ", a lease too");
  if (action.kind == Kind::kSubmitPair)
    absl::StrAppend(&text, " and ", NameOf(spec, action.second_client, action.second_request));
  if (action.commit >= 0)
    absl::StrAppend(&text, "; commit ", static_cast<int>(action.commit), " ", NameOf(action.fate));
  return text;
}

}  // namespace semaphored::worlds
