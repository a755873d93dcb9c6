#include "server/web/page_feed.h"

#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/base/version.h"
#include "server/lanes/daemon_card.h"
#include "server/rpc/status.h"
#include "server/sessions/lists.h"
#include "server/web/connect.h"
#include "server/web/query.h"

namespace semaphored::web {
namespace {

// ---- Who looks ----

page::RightsNow RightsOf(Site* site, Visitor visitor) {
  return [site, visitor = std::move(visitor)]() -> std::optional<page::Rights> {
    page::Rights rights;
    rights.policy = site->policy();
    rights.writes = !site->CheckWrites(visitor).has_value();
    if (rights.policy == nullptr) return rights;
    // A feed ends with the sign-in by which it was opened.
    if (site->IsSignedOut(visitor)) return std::nullopt;
    rights.identity = IdentityOf(visitor, rights.policy.get());
    rights.certified = visitor.authorization.empty();
    if (rights.identity == nullptr) return std::nullopt;
    return rights;
  };
}

// ---- The route ----

std::optional<Refusal> ReadView(const std::string& query, page::View* view) {
  page::Parameters parameters;
  std::optional<Refusal> refusal =
      ForEachParameter(query, [&parameters](const std::string& name, std::string value) {
        parameters[name] = std::move(value);
        return std::optional<Refusal>();
      });
  if (refusal) return refusal;
  auto parsed = page::ParseView(parameters);
  if (const auto* wrong = std::get_if<page::WrongParameter>(&parsed))
    return InvalidField(wrong->name, wrong->right);
  *view = std::get<page::View>(std::move(parsed));
  return std::nullopt;
}

void Follow(Site* site, const FeedSlot& slot, const http::Request& request, Visitor visitor,
            const http::Reply& reply) {
  const auto refuse = [&reply](const Refusal& refusal) { reply(ErrorResponse(refusal)); };
  page::View view;
  if (const auto refusal = ReadView(request.query, &view)) return refuse(*refusal);
  const std::shared_ptr<page::Feed> feed = slot.Get();
  if (feed == nullptr) return refuse(ShuttingDown());
  page::RightsNow rights_now = RightsOf(site, std::move(visitor));
  const std::optional<page::Rights> rights = rights_now();
  if (!rights)
    return refuse({absl::StatusCode::kUnauthenticated, Reason::kUnauthenticated,
                   "this daemon serves only clients that it knows", "", "sign in with a token"});
  const std::string owner = rights->identity == nullptr ? "" : rights->identity->name();
  const absl::StatusOr<uint64_t> number = feed->Add(std::move(view), std::move(rights_now), owner);
  if (!number.ok())
    return refuse({absl::StatusCode::kResourceExhausted, Reason::kLimitReached,
                   std::string(number.status().message()), "", "close other pages of this daemon"});
  http::Stream::Events events;
  events.on_gone = [weak = std::weak_ptr<page::Feed>(feed), number = *number] {
    if (const auto still = weak.lock()) still->Remove(number);
  };
  feed->Start(*number, reply.Begin({}, std::move(events)));
}

// ---- What is shown ----

page::NodeLine LineOf(const NodeStore::Node& node, const NodeRef& self) {
  using State = page::NodeLine::State;
  const DaemonCard card = ReadCard(node.daemon);
  page::NodeLine line{node.node_id, State::kAlive, card.host,
                      card.address, card.pid,      card.since_unix_ms};
  if (node.ref == self) {
    line.state = State::kSelf;
  } else if (node.dead) {
    line.state = State::kDead;
  } else if (node.stopped) {
    line.state = State::kStopped;
  }
  return line;
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::vector<page::NodeLine> NodesOf(const Membership& membership, const page::NodeLine& self) {
  std::vector<page::NodeLine> lines;
  for (const NodeStore::Node& node : membership.nodes())
    lines.push_back(LineOf(node, membership.self()));
  // An exclusive engine has one daemon, which does not read its row.
  if (lines.empty()) lines.push_back(self);
  return lines;
}

}  // namespace

std::vector<Route> PageFeedRoutes(Site* site, FeedSlot* slot) {
  std::vector<Route> routes;
  routes.push_back(
      {"/page/feed", http::kReads, Route::Kind::kReads,
       [site, slot](const http::Request& request, Visitor visitor, const http::Reply& reply) {
         Follow(site, *slot, request, std::move(visitor), reply);
       }});
  return routes;
}

std::shared_ptr<page::Feed> StartFeed(const Config& config, const FeedParts& parts) {
  Reactor* const reactor = parts.server->reactor();
  const Clock& clock = reactor->clock();
  const Guarantees& guarantees = parts.host->guarantees();
  page::FeedOptions options;
  options.node_id = config.node_id;
  options.adapter = guarantees.adapter;
  options.version = kVersion;
  options.tickets = guarantees.durable_tickets;
  options.pushes = guarantees.push;
  options.embedded = guarantees.exclusive;
  options.slice_rows = SliceRows(guarantees);
  options.figures = [gatherer = parts.gatherer] { return gatherer->Gather(); };
  const page::NodeLine self{config.node_id, page::NodeLine::State::kSelf,
                            HostName(),     parts.server->address(),
                            getpid(),       clock.NowUnixMs()};
  options.nodes = [membership = parts.membership, self] { return NodesOf(*membership, self); };
  options.node_name = [host = parts.host](const NodeRef& node) { return host->NodeName(node); };
  options.vouched = [host = parts.host, &clock] { return host->vouch_until() > clock.Now(); };
  return std::make_shared<page::Feed>(
      &clock, parts.sessions,
      [reactor](absl::AnyInvocable<void()> task) { reactor->Post(std::move(task)); },
      std::move(options));
}

}  // namespace semaphored::web
