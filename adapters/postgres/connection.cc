#include "adapters/postgres/connection.h"

#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/postgres/libpqxx.h"
#include "adapters/steady_clock.h"

namespace semaphored::postgres {

// ---- Guard ----

Guard::Guard() : thread_([this] { Run(); }) {}

Guard::~Guard() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t Guard::Arm(int socket, Time time) {
  const std::lock_guard lock(mutex_);
  entries_[++last_] = {socket, time};
  // Awake, it looks often enough; it need not be woken for each statement.
  if (asleep_) changed_.notify_one();
  return last_;
}

bool Guard::Disarm(uint64_t armed) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(armed);
  const bool done = found->second.done;
  entries_.erase(found);
  return done;
}

void Guard::Run() {
  constexpr std::chrono::milliseconds kLook(50);
  constexpr uint64_t kIdleLooks = 20;
  std::unique_lock lock(mutex_);
  uint64_t seen = 0;
  uint64_t idle = 0;
  while (!stopping_) {
    idle = last_ == seen && entries_.empty() ? idle + 1 : 0;
    seen = last_;
    if (idle > kIdleLooks) {
      asleep_ = true;
      changed_.wait(lock, [&] { return stopping_ || !entries_.empty(); });
      asleep_ = false;
      continue;
    }
    const Time now = SteadyClock::now();
    for (auto& [armed, entry] : entries_) {
      if (entry.done || now < entry.time) continue;
      entry.done = true;
      shutdown(entry.socket, SHUT_RDWR);
    }
    changed_.wait_for(lock, kLook);
  }
}

// ---- errors ----

namespace {

// The first line, without "ERROR:".
std::string FirstLine(absl::string_view message) {
  message = message.substr(0, message.find('\n'));
  for (absl::string_view prefix : {"ERROR:  ", "FATAL:  "}) {
    if (absl::StartsWith(message, prefix)) message.remove_prefix(prefix.size());
  }
  return std::string(message);
}

// The server ends, or ends the connection: the answer may be lost although the commit stands.
bool EndsConnection(absl::string_view state) {
  return absl::StartsWith(state, "57P") || absl::StartsWith(state, "08") || state == "25P03" ||
         state == "57P05";
}

}  // namespace

absl::Status StatusOf(const std::string& state, const std::string& message) {
  const std::string text = absl::StrCat("postgres: ", FirstLine(message),
                                        state.empty() ? "" : absl::StrCat(" (", state, ")"));
  const absl::string_view kind = absl::string_view(state).substr(0, 2);
  if (kind == "53" || kind == "54") return absl::ResourceExhaustedError(text);
  if (kind == "28" || state == "42501") return absl::PermissionDeniedError(text);
  if (kind == "XX" || kind == "58") return absl::DataLossError(text);
  if (kind == "23" || kind == "42" || kind == "22" || state == "SM004")
    return absl::InternalError(text);
  return absl::UnavailableError(text);
}

// ---- Connection ----

Connection::Connection(Options options, Guard* guard)
    : options_(std::move(options)), guard_(guard) {}

Connection::~Connection() { Close(); }

void Connection::Close() {
  if (connection_ != nullptr) {
    // The socket and the connection go before the receivers: otherwise pqxx sends UNLISTEN, and
    // waits for the answer. (And it leaks the error that it gets when the server does not answer.)
    if (connection_->sock() >= 0) shutdown(connection_->sock(), SHUT_RDWR);
    Disconnect(connection_.get());
  }
  receivers_.clear();
  prepared_.clear();
  connection_.reset();
}

int Connection::socket() const { return connection_ == nullptr ? -1 : connection_->sock(); }

int Connection::backend_pid() const {
  return connection_ == nullptr ? 0 : connection_->backendpid();
}

absl::Status Connection::Open() {
  if (connection_ != nullptr && connection_->is_open()) return absl::OkStatus();
  Close();
  try {
    connection_ = std::make_unique<pqxx::connection>(options_.connection);
    // A new connection must be prepared, and noticed, by us.
    KeepEnded(connection_.get());
  } catch (const std::exception& error) {
    Close();
    const absl::string_view why = error.what();
    const std::string text = absl::StrCat("postgres: cannot connect: ", FirstLine(why));
    if (absl::StrContains(why, "too many clients") || absl::StrContains(why, "connection slots"))
      return absl::ResourceExhaustedError(text);
    if (absl::StrContains(why, "authentication failed") || absl::StrContains(why, "no password"))
      return absl::PermissionDeniedError(text);
    return absl::UnavailableError(text);
  }
  ++life_;
  if (options_.prepare) {
    if (absl::Status status = options_.prepare(*this); !status.ok()) {
      Close();
      return status;
    }
  }
  return absl::OkStatus();
}

template <typename Call>
Answered Connection::Guarded(Call&& call) {
  Answered answered;
  const auto fail = [&](Failure::Kind kind, std::string state, absl::Status status) {
    answered.ok = false;
    answered.failure = {kind, std::move(state), std::move(status)};
  };
  if (connection_ == nullptr) {
    fail(Failure::Kind::kRefused, "", absl::UnavailableError("postgres: not connected"));
    return answered;
  }
  const uint64_t armed = guard_->Arm(connection_->sock(), SteadyClock::now() + options_.timeout);
  try {
    pqxx::nontransaction work(*connection_);
    answered.rows = call(work);
  } catch (const pqxx::broken_connection& error) {
    fail(Failure::Kind::kBroken, "", StatusOf("", error.what()));
  } catch (const pqxx::deadlock_detected& error) {
    fail(Failure::Kind::kRefused, "40P01", StatusOf("40P01", error.what()));
  } catch (const pqxx::transaction_rollback& error) {
    // serialization_failure among them; statement_completion_unknown alone leaves the outcome open.
    const bool unknown = dynamic_cast<const pqxx::statement_completion_unknown*>(&error) != nullptr;
    fail(unknown ? Failure::Kind::kBroken : Failure::Kind::kRefused, "40001",
         StatusOf("40001", error.what()));
  } catch (const pqxx::sql_error& error) {
    std::string state = error.sqlstate();
    // Of this one pqxx forgets the state.
    if (dynamic_cast<const pqxx::insufficient_privilege*>(&error) != nullptr) state = "42501";
    const bool broken = EndsConnection(state) || !connection_->is_open();
    fail(broken ? Failure::Kind::kBroken : Failure::Kind::kRefused, state,
         StatusOf(state, error.what()));
  } catch (const std::exception& error) {
    fail(Failure::Kind::kBroken, "", StatusOf("", error.what()));
  }
  if (guard_->Disarm(armed)) {
    fail(Failure::Kind::kBroken, "",
         absl::UnavailableError(absl::StrCat("postgres: no answer for ", options_.timeout.count(),
                                             " ms: the connection was given up")));
  }
  if (!answered.ok && answered.failure.kind == Failure::Kind::kBroken) Close();
  return answered;
}

Answered Connection::Run(const std::string& sql) {
  return Guarded([&](pqxx::nontransaction& work) { return work.exec(sql); });
}

Answered Connection::Run(const Statement& statement, const Arguments& arguments) {
  return Guarded([&](pqxx::nontransaction& work) {
    if (!prepared_.contains(statement.name())) {
      connection_->prepare(statement.name(), statement.sql());
      prepared_.insert(statement.name());
    }
    return RunPrepared(&work, statement.name(), arguments);
  });
}

absl::Status Connection::Listen(const std::string& channel) {
  if (connection_ == nullptr) return absl::UnavailableError("postgres: not connected");
  const uint64_t armed = guard_->Arm(connection_->sock(), SteadyClock::now() + options_.timeout);
  absl::Status status;
  try {
    receivers_.push_back(std::make_unique<Receiver>(connection_.get(), channel, &received_));
  } catch (const std::exception& error) {
    status = StatusOf("", error.what());
  }
  if (guard_->Disarm(armed)) status = absl::UnavailableError("postgres: no answer to LISTEN");
  if (!status.ok()) Close();
  return status;
}

absl::Status Connection::TakeNotifications(const std::function<void(const std::string&)>& take) {
  if (connection_ == nullptr) return absl::UnavailableError("postgres: not connected");
  try {
    connection_->get_notifs();
  } catch (const std::exception& error) {
    absl::Status status = StatusOf("", error.what());
    Close();
    return status;
  }
  for (const std::string& payload : received_) take(payload);
  received_.clear();
  return absl::OkStatus();
}

}  // namespace semaphored::postgres
