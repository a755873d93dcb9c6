// semctl run: a command under a lease.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/semaphore/client.h"
#include "client/semaphore/errors.h"
#include "client/semctl/context.h"
#include "client/semctl/duration.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/guardian.h"
#include "client/semctl/inherited_signals.h"
#include "client/semctl/mailbox.h"
#include "client/semctl/program.h"
#include "client/semctl/wording.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

// semctl reports a wait after kQuietWait, and then again after each kWaitTold.
constexpr milliseconds kQuietWait(2'000);
constexpr milliseconds kWaitTold(30'000);
// The longest delay until the guardian receives a new end of the lease.
constexpr milliseconds kFeedMost(250);
constexpr milliseconds kKillAllBound(10'000);
// A guardian that is gone so short before the deadline, or later, was killed by the watcher.
constexpr milliseconds kSlow(100);

struct RunOptions {
  std::string name;
  AcquireOptions acquire;
  milliseconds wait{-1};
  bool no_wait = false;
  milliseconds ttl{0};
  milliseconds kill_after{-1};  // the default
};

// One run, on one thread: everything that happens comes through poll.
class Run {
 public:
  Run(const Context& context, const RunOptions& options, Guardian guardian, int signals)
      : context_(context), options_(options), guardian_(std::move(guardian)), signals_(signals) {}

  int Execute();

 private:
  absl::Status Connect();
  void Ask();
  void OnAnswer(absl::StatusOr<Permit> permit);
  void Begin();
  void Poll();
  int PollTimeoutMs() const;
  void OnSignal();
  void OnGuardian(const GuardianEvent& event);
  void OnGuardianGone(const std::string& why);
  void CutShort(const std::string& event, const std::string& why);
  void OnLost(const Loss& loss);
  void OnNoContact();
  void FeedGuardian();
  void TellWait();
  void Finish(int code) { code_ = code; }
  int FinishCommand(int status);
  bool NoDaemonHears() const;
  std::vector<std::string> Environment() const;

  const Context& context_;
  const RunOptions& options_;
  Guardian guardian_;
  const int signals_;
  Mailbox mailbox_;
  std::unique_ptr<Client> client_;
  std::stop_source give_up_;
  int gave_up_by_ = 0;  // a signal
  QueuePlace place_;
  TimePoint asked_at_ = BootClock::now();
  TimePoint tell_at_ = asked_at_ + kQuietWait;
  Permit permit_;
  TimePoint fed_{};
  // The start is ordered; and it is reported. A guardian that is stopped in between may have done it.
  bool begun_ = false;
  bool started_ = false;
  bool cut_short_ = false;
  // Until when a daemon had vouched for the lease when contact was lost; 0: it was not.
  TimePoint without_contact_since_{};
  std::optional<int> code_;
};

absl::Status Run::Connect() {
  ClientOptions options;
  options.endpoints = context_.endpoints();
  options.security = context_.security;
  options.ttl = options_.ttl;
  options.connect_timeout = context_.long_patience();
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(options);
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  return absl::OkStatus();
}

void Run::Ask() {
  AcquireOptions acquire = options_.acquire;
  acquire.wait = options_.no_wait ? milliseconds(0) : options_.wait;
  acquire.cancel = give_up_.get_token();
  acquire.on_queued = [this](const QueuePlace& place) {
    mailbox_.Post([this, place] { place_ = place; });
  };
  acquire.on_lost = [this](const Loss& loss) {
    mailbox_.Post([this, loss] { OnLost(loss); });
    guardian_.Kill();
  };
  acquire.on_recall = [this](const RecallNotice& notice) {
    // The recall is acknowledged when this returns: the guardian is to know of it, whatever becomes of this process.
    guardian_.Shorten(notice.stop_by);
    mailbox_.Post([this, notice] {
      CutShort("recalled",
               absl::StrCat("the lease is recalled (", notice.reason, "), to be given back within ",
                            FormatDuration(notice.grace), "; ending the command"));
    });
  };
  client_->AcquireAsync(options_.name, acquire, [this](absl::StatusOr<Permit> permit) {
    auto shared = std::make_shared<absl::StatusOr<Permit>>(std::move(permit));
    mailbox_.Post([this, shared] { OnAnswer(std::move(*shared)); });
  });
}

void Run::OnAnswer(absl::StatusOr<Permit> permit) {
  if (gave_up_by_ != 0) {
    Finish(kSignalled + gave_up_by_);
  } else if (!permit.ok()) {
    Finish(context_.Fail(permit.status()));
  } else {
    permit_ = *std::move(permit);
    if (permit_.held()) return Begin();
    CutShort("lost", "the lease was lost before the command could begin");
    Finish(kLost);
  }
}

std::vector<std::string> Run::Environment() const {
  return {absl::StrCat("SEMAPHORE_NAME=", permit_.semaphore()),
          absl::StrCat("SEMAPHORE_SLOT=", absl::StrJoin(permit_.slots(), ",")),
          absl::StrCat("SEMAPHORE_TOKEN=", permit_.token()),
          absl::StrCat("SEMAPHORE_LEASE=", permit_.lease_id())};
}

void Run::Begin() {
  fed_ = permit_.good_until();
  begun_ = guardian_.Start(Environment(), fed_);
  if (begun_) return;
  context_.Say("guardian",
               "the guardian process is gone, or the slots are too many for the environment");
  Finish(kCannotExecute);
}

void Run::CutShort(const std::string& event, const std::string& why) {
  if (cut_short_ || code_.has_value()) return;
  cut_short_ = true;
  // Before what may block.
  guardian_.Terminate();
  context_.Say(event, why);
}

// Another holder may have the permit already. It may come before the grant does.
void Run::OnLost(const Loss& loss) {
  if (loss.cause == LossCause::kNoContact && permit_) without_contact_since_ = permit_.good_until();
  CutShort("lost", absl::StrCat("the lease is lost (", ToString(loss.cause), ": ", loss.message,
                                "); killing the command"));
}

void Run::OnNoContact() {
  // A kill that is under way ends the time, too.
  if (!cut_short_) without_contact_since_ = permit_.good_until();
  CutShort("lost", "no daemon vouches for the lease any more; ending the command before it ends");
}

void Run::FeedGuardian() {
  if (!begun_) return;
  const TimePoint good_until = permit_.good_until();
  if (good_until == fed_) return;
  fed_ = good_until;
  guardian_.Extend(good_until);
}

void Run::TellWait() {
  const TimePoint now = BootClock::now();
  if (permit_ || now < tell_at_) return;
  tell_at_ = now + kWaitTold;
  const auto waited = std::chrono::duration_cast<milliseconds>(now - asked_at_);
  std::string message =
      absl::StrCat("waiting for ", options_.name, " since ", FormatDuration(waited));
  if (place_.position > 0)
    absl::StrAppend(&message, ", joined the queue at position ", place_.position);
  if (place_.expected_wait >= milliseconds(0)) {
    absl::StrAppend(&message, ", expected wait ", FormatDuration(place_.expected_wait));
  }
  v1::WaitReason reason = v1::WAIT_REASON_UNSPECIFIED;
  v1::WaitReason_Parse(absl::StrCat("WAIT_REASON_", place_.reason), &reason);
  if (!Text(reason).empty()) absl::StrAppend(&message, ": ", Text(reason));
  context_.Say("waiting", message);
}

void Run::OnSignal() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (started_) {
      guardian_.Signal(number);
    } else {
      gave_up_by_ = number;
      give_up_.request_stop();
    }
  }
}

// What is lost since no daemon could be reached need not be given back, which would take a while.
bool Run::NoDaemonHears() const {
  return cut_short_ && permit_ && permit_.good_until() == without_contact_since_;
}

int Run::FinishCommand(int status) {
  if (NoDaemonHears()) return kLost;
  const absl::Status released = permit_.Release();
  if (cut_short_) return kLost;
  if (!released.ok()) context_.Fail(released);
  if (ErrorReason(released) == "NOT_HELD") return kLost;
  return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
}

void Run::OnGuardianGone(const std::string& why) {
  cut_short_ = true;
  const bool killed = guardian_.KillAll(kKillAllBound);
  context_.Say("guardian", why + (killed ? "; the command is killed"
                                         : "; the command does not die, and its permits are left "
                                           "to the TTL"));
  if (!killed) _exit(kLost);
  if (!NoDaemonHears()) permit_.Release().IgnoreError();
  Finish(kLost);
}

void Run::OnGuardian(const GuardianEvent& event) {
  switch (event.kind) {
    case GuardianEvent::Kind::kStarted:
      started_ = true;
      // What came between the grant and the start.
      if (cut_short_) guardian_.Terminate();
      if (gave_up_by_ != 0) guardian_.Signal(gave_up_by_);
      return;
    case GuardianEvent::Kind::kExecFailed:
      context_.Say("exec", ExecErrorText(context_.command.front(), event.value));
      permit_.Release().IgnoreError();
      return Finish(event.value == ENOENT ? kNotFound : kCannotExecute);
    case GuardianEvent::Kind::kExited:
      return Finish(FinishCommand(event.value));
    case GuardianEvent::Kind::kTerminating:
      return OnNoContact();
    case GuardianEvent::Kind::kUnwatched:
      return CutShort("guardian", "the watcher process was killed; ending the command");
    case GuardianEvent::Kind::kCannotKill:
      return context_.Say("guardian", CannotKillText(event.value));
    case GuardianEvent::Kind::kGone:
      return OnGuardianGone(BootClock::now() < guardian_.overdue_at() - kSlow
                                ? "the guardian process was killed"
                                : "the lease ends, and the guardian process stands still");
  }
}

// Until something has to be looked at: how far the lease reaches, or that it has ended.
int Run::PollTimeoutMs() const {
  milliseconds timeout = permit_ ? std::min(kFeedMost, permit_.ttl() / 12) : kFeedMost;
  timeout = std::max(timeout, milliseconds(10));
  if (begun_) {
    const auto left = std::chrono::ceil<milliseconds>(guardian_.overdue_at() - BootClock::now());
    timeout = std::clamp(left, milliseconds(0), timeout);
  }
  return static_cast<int>(timeout.count());
}

void Run::Poll() {
  pollfd polled[] = {{signals_, POLLIN, 0},
                     {guardian_.descriptor(), POLLIN, 0},
                     {mailbox_.descriptor(), POLLIN, 0}};
  poll(polled, 3, PollTimeoutMs());
  ReapOrphans();
  OnSignal();
  mailbox_.Deliver();
  while (!code_.has_value()) {
    const std::optional<GuardianEvent> event = guardian_.Next();
    if (!event.has_value()) break;
    OnGuardian(*event);
  }
  if (code_.has_value()) return;
  FeedGuardian();
  if (begun_ && BootClock::now() >= guardian_.overdue_at()) {
    if (!cut_short_) without_contact_since_ = permit_.good_until();
    return OnGuardianGone("the lease ends, and the guardian process stands still");
  }
  TellWait();
}

int Run::Execute() {
  const absl::Status connected = Connect();
  if (!connected.ok()) return context_.Fail(connected);
  Ask();
  while (!code_.has_value()) Poll();
  // The client would wait for a daemon that hears its farewell.
  if (NoDaemonHears()) _exit(*code_);
  // The client goes before the mailbox that its callbacks post to.
  permit_ = Permit();
  client_ = nullptr;
  return *code_;
}

int RunCommand(const Context& context, const RunOptions& options) {
  if (context.command.empty())
    return context.Misused("run needs a command behind \"--\": semctl run NAME -- COMMAND...");
  if (const auto warning = CannotKillWarning(context.command.front()))
    context.Say("guardian", *warning);
  // Before any thread, as must be the fork.
  const sigset_t forwarded = BlockHandledSignals();
  absl::StatusOr<Guardian> guardian = Guardian::Fork(context.command, options.kill_after);
  if (!guardian.ok()) {
    context.Say("guardian", std::string(guardian.status().message()));
    return kCannotExecute;
  }
  const int signals = signalfd(-1, &forwarded, SFD_CLOEXEC | SFD_NONBLOCK);
  return Run(context, options, *std::move(guardian), signals).Execute();
}

}  // namespace

void AddRunCommand(Command app, Context& context) {
  auto options = std::make_shared<RunOptions>();
  const Command run =
      AddCommand(app, context, "run",
                 "Run a command while permits are held: semctl run NAME [options] -- COMMAND...",
                 R"(  semctl run team/db --limit 4 -- ./nightly-report --all
  semctl run team/db --permits 2 --wait 5m -- make test
  semctl run deploy --limit 1 --no-wait -- ./deploy.sh || echo "another deploy runs"

The command gets SEMAPHORE_NAME, SEMAPHORE_SLOT (a comma list when there are several),
SEMAPHORE_TOKEN and SEMAPHORE_LEASE in its environment, stays in the process group and the terminal
of semctl, and is passed INT, TERM, HUP, QUIT, USR1 and USR2. When it ends, or the lease is recalled
or about to be lost, it and all that it has started (daemons, too) get TERM, and KILL after
--kill-after, always before the permits can have another holder; after a lease that is lost already,
KILL at once. Also when semctl is killed or stopped. (An engine whose leases end with the daemon,
RabbitMQ, may be sooner than we can know: let the resource check the token.)
)" + std::string(kExitCodesHelp),
                 [&context, options] { return RunCommand(context, *options); });
  run.AddName(&options->name);
  run.Add("--limit", &options->acquire.limit, "Create it with this limit if it does not exist")
      .NotZero();
  run.AddFlag("--adopt", &options->acquire.adopt_limit, "Take another stored limit as it is");
  run.Add("--permits", &options->acquire.permits, "How many permits").NotZero().ShowsDefault();
  run.Add("--priority", &options->acquire.priority, "-1000 to 1000; higher is served first")
      .ShowsDefault();
  run.Add("--holder", &options->acquire.holder, "For people: who holds [host:pid]");
  const Option wait =
      run.AddDuration("--wait", &options->wait, "How long to wait for the permits [for ever]");
  run.AddFlag("--no-wait", &options->no_wait, "At once or not at all").Excludes(wait);
  run.AddDuration(
      "--ttl", &options->ttl,
      "How long the permits outlive a semctl that cannot be reached [the daemon's default]");
  run.AddDuration("--kill-after", &options->kill_after,
                  "Time between TERM and KILL, within the lease [10s]");
}

}  // namespace semaphore::semctl
