#include "server/guard/loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "server/base/signals.h"

namespace semaphored::guard {
namespace {

// Read at once from one connection; then it is another's turn.
constexpr size_t kBufferBytes = 64 << 10;
constexpr size_t kEventsAtOnce = 256;
// How often it is looked whether those that are held up may go on.
constexpr Milliseconds kLookInterval{1};
// How often it is looked whether those that wait may be let in.
constexpr Milliseconds kLetInInterval{5};

uint32_t Events(const Connection::Interest& interest) {
  return (interest.read ? EPOLLIN : 0u) | (interest.write ? EPOLLOUT : 0u) |
         (interest.end ? EPOLLRDHUP : 0u);
}

}  // namespace

Loop::Loop(const Clock* clock, Milliseconds handshake, Handlers handlers)
    : clock_(clock),
      handshake_(handshake),
      handlers_(std::move(handlers)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      buffer_(kBufferBytes) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) std::abort();
  thread_ = std::thread([this] { Run(); });
}

Loop::~Loop() {
  Stop(Milliseconds(0));
  close(wake_);
  close(epoll_);
}

void Loop::Wake() const {
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof one) < 0 && errno != EAGAIN) std::abort();
}

void Loop::Add(ConnectionPtr connection) {
  {
    const std::lock_guard lock(mutex_);
    if (!end_by_) added_.push_back(std::move(connection));
  }
  if (connection == nullptr) return Wake();
  handlers_.on_over(std::move(connection));
}

void Loop::Stop(Milliseconds patience) {
  {
    const std::lock_guard lock(mutex_);
    end_by_ = clock_->Now() + patience;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

bool Loop::TakeAdded() {
  std::vector<ConnectionPtr> added;
  std::optional<SteadyTime> end_by;
  {
    const std::lock_guard lock(mutex_);
    added.swap(added_);
    end_by = end_by_;
  }
  const SteadyTime now = clock_->Now();
  for (ConnectionPtr& connection : added) {
    Connection* const raw = connection.get();
    auto watched = std::make_unique<Watched>();
    watched->connection = std::move(connection);
    watched->client = {raw, true, {}};
    watched->daemon = {raw, false, {}};
    const bool waits = raw->state() == Connection::State::kWaiting;
    if (waits || raw->state() == Connection::State::kHandshake)
      SetDeadline(watched.get(), now + handshake_);
    Watched* const added_one = watched.get();
    if (waits) {
      added_one->arrival = ++arrivals_;
      waiting_[added_one->arrival] = added_one;
    }
    watched_[raw] = std::move(watched);
    After(added_one, now);
  }
  return !end_by || (!watched_.empty() && now < *end_by);
}

void Loop::Run() {
  BlockSignals();
  std::array<epoll_event, kEventsAtOnce> events{};
  while (TakeAdded()) {
    const int count =
        epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), SleepMs(clock_->Now()));
    const SteadyTime now = clock_->Now();
    for (int i = 0; i < count; ++i) {
      const auto* const socket =
          static_cast<const Socket*>(events[static_cast<size_t>(i)].data.ptr);
      if (socket == nullptr) {
        uint64_t drained = 0;
        (void)!read(wake_, &drained, sizeof drained);
        continue;
      }
      OnEvent(*socket, now);
    }
    EndOverdue(now);
    LetIn(now);
    GoOn(now);
    let_go_.clear();
  }
  while (!watched_.empty()) LetGo(watched_.begin()->second.get(), clock_->Now());
}

void Loop::OnEvent(const Socket& socket, SteadyTime now) {
  Connection* const connection = socket.connection;
  if (connection == nullptr) return;
  if (socket.of_client) {
    connection->OnClient(now, buffer_);
  } else {
    connection->OnDaemon(now, buffer_);
  }
  After(watched_.at(connection).get(), now);
}

void Loop::After(Watched* watched, SteadyTime now) {
  Connection* const connection = watched->connection.get();
  switch (connection->state()) {
    case Connection::State::kReady:
    case Connection::State::kOver:
      return LetGo(watched, now);
    case Connection::State::kFarewell:
    case Connection::State::kRelaying:
      SetDeadline(watched, connection->Deadline(now));
      break;
    case Connection::State::kWaiting:
    case Connection::State::kHandshake:
      break;
  }
  Watch(connection->client(), &watched->client, connection->client_interest());
  if (connection->daemon() >= 0)
    Watch(connection->daemon(), &watched->daemon, connection->daemon_interest());
  // The kernel has no room to watch it.
  if (connection->state() == Connection::State::kOver) return LetGo(watched, now);
  if (connection->held_up()) {
    held_up_.insert(connection);
  } else {
    held_up_.erase(connection);
  }
}

void Loop::Watch(int descriptor, Socket* socket, const Connection::Interest& wanted) const {
  if (socket->known == wanted) return;
  const bool was = socket->known != Connection::Interest();
  const bool is = wanted != Connection::Interest();
  epoll_event event{};
  event.events = Events(wanted);
  event.data.ptr = socket;
  // A socket of which nothing is wanted is taken out: else epoll reports endlessly that its peer is gone.
  const int act = !is ? EPOLL_CTL_DEL : was ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_, act, descriptor, &event) != 0) return socket->connection->GiveUp();
  socket->known = wanted;
}

void Loop::SetDeadline(Watched* watched, std::optional<SteadyTime> deadline) {
  if (watched->deadline == deadline) return;
  Connection* const connection = watched->connection.get();
  if (watched->deadline) deadlines_.erase({*watched->deadline, connection});
  watched->deadline = deadline;
  if (deadline) deadlines_.emplace(*deadline, connection);
}

void Loop::EndOverdue(SteadyTime now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Connection* const connection = deadlines_.begin()->second;
    connection->OnDeadline(now);
    After(watched_.at(connection).get(), now);
  }
}

void Loop::LetGo(Watched* watched, SteadyTime now) {
  SetDeadline(watched, std::nullopt);
  Connection* const raw = watched->connection.get();
  Watch(raw->client(), &watched->client, {});
  if (raw->daemon() >= 0) Watch(raw->daemon(), &watched->daemon, {});
  watched->client.connection = watched->daemon.connection = nullptr;
  held_up_.erase(raw);
  waiting_.erase(watched->arrival);
  raw->Settle(now);
  auto node = watched_.extract(raw);
  ConnectionPtr connection = std::move(node.mapped()->connection);
  let_go_.push_back(std::move(node.mapped()));
  const bool ready = connection->state() == Connection::State::kReady;
  (ready ? handlers_.on_ready : handlers_.on_over)(std::move(connection));
}

void Loop::LetIn(SteadyTime now) {
  if (waiting_.empty() || now < let_in_at_) return;
  absl::flat_hash_set<const Origin*> full;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    Watched* const watched = at->second;
    ++at;
    Connection* const connection = watched->connection.get();
    if (full.contains(&connection->origin())) continue;
    if (!connection->Enter(now)) {
      full.insert(&connection->origin());
      continue;
    }
    waiting_.erase(std::exchange(watched->arrival, 0));
    SetDeadline(watched, now + handshake_);
    After(watched, now);
  }
  const SteadyTime end = clock_->Now();
  let_in_at_ = end + std::max<SteadyTime::duration>(kLetInInterval, 4 * (end - now));
}

void Loop::GoOn(SteadyTime now) {
  if (held_up_.empty() || now < look_at_) return;
  // Of the others of their address, too: what they had pending may have begun.
  for (const auto& [connection, watched] : watched_) connection->CountPending(now);
  const std::vector<Connection*> held_up(held_up_.begin(), held_up_.end());
  const size_t first = turn_++ % held_up.size();
  for (size_t i = 0; i < held_up.size(); ++i) {
    Connection* const connection = held_up[(first + i) % held_up.size()];
    connection->GoOn(now);
    After(watched_.at(connection).get(), now);
  }
  // Of very many connections the look takes a while: it is not all that is done.
  const SteadyTime end = clock_->Now();
  look_at_ = end + std::max<SteadyTime::duration>(kLookInterval, 4 * (end - now));
}

int Loop::SleepMs(SteadyTime now) const {
  // The system's waits stand still while the machine is suspended.
  SteadyTime until = now + kLongestSleep;
  if (!held_up_.empty()) until = std::min(until, std::max(now, look_at_));
  if (!waiting_.empty()) until = std::min(until, std::max(now, let_in_at_));
  if (!deadlines_.empty()) until = std::min(until, deadlines_.begin()->first);
  const auto left = std::chrono::ceil<Milliseconds>(until - now);
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace semaphored::guard
