// semctl work: carries tickets out with a command.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/notifier.h"
#include "client/semctl/admin.h"
#include "client/semctl/context.h"
#include "client/semctl/duration.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/inherited_signals.h"
#include "client/semctl/mailbox.h"
#include "client/semctl/work_job.h"
#include "client/semctl/work_session.h"
#include "client/semctl/work_stream.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFeedMost(250);
// With --exit-when-empty: nothing was to do for so long before it is asked whether anything is
// left, and again after so long.
constexpr milliseconds kIdle(500);
constexpr milliseconds kReapEvery(1'000);
constexpr milliseconds kReleaseTimeout(5'000);
constexpr std::uint32_t kRows = 1000;
constexpr int kMessagesMost = 1000;

struct Options {
  std::vector<std::string> names;  // Or PREFIX*.
  std::uint32_t tickets_max = 1;
  bool once = false;
  bool exit_when_empty = false;
  std::string holder;
  milliseconds ttl{0};
  milliseconds kill_after{-1};  // the default
};

std::string OwnName() {
  char host[128] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

WorkOptions OptionsOfSession(const Context& context, const Options& options) {
  WorkOptions work;
  work.endpoints = context.endpoints().size();
  for (const std::string& name : options.names) {
    if (name.ends_with('*')) {
      work.prefixes.push_back(name.substr(0, name.size() - 1));
    } else {
      work.semaphores.push_back(name);
    }
  }
  work.tickets_max = options.once ? 1 : options.tickets_max;
  work.holder = options.holder.empty() ? OwnName() : options.holder;
  work.ttl = options.ttl;
  work.connect_timeout = context.long_patience();
  return work;
}

// Says on a thread of its own what Context says, since standard error may be a pipe whose reader stands still. What
// comes while kMessagesMost wait is left out. Its destructor waits until all was said.
class Voice {
 public:
  explicit Voice(const Context& context) : context_(context) {}

  void Say(const std::string& event, const std::string& message) {
    Post([this, event, message] { context_.Say(event, message); });
  }
  void Fail(const absl::Status& status) {
    Post([this, status] { context_.Fail(status); });
  }

 private:
  void Post(std::function<void()> say) {
    if (waiting_.load() >= kMessagesMost) return;
    ++waiting_;
    thread_.Post([this, say = std::move(say)] {
      say();
      --waiting_;
    });
  }

  const Context& context_;
  std::atomic<int> waiting_{0};
  Notifier thread_;
};

// One worker, on one thread: everything that happens comes through poll.
class Work final : public WorkListener {
 public:
  Work(const Context& context, const Options& options, int signals)
      : context_(context),
        options_(options),
        signals_(signals),
        voice_(context),
        session_(OptionsOfSession(context, options), NewClientId, this, BootClock::now()) {}

  int Execute();

  void OnAssigned(const v1::TicketAssignment& assignment,
                  const LeaseKeeper::LeasePtr& lease) override;
  void OnLost(const std::string& lease_id, const std::string& why) override;
  void OnRecalled(const LeaseKeeper::LeasePtr& lease, const RecallNotice& notice) override;
  void OnRefusedAgain(const std::string& lease_id, const absl::Status& why) override;
  void OnAnswered(const std::string& lease_id, const absl::Status& status,
                  v1::TicketState state) override;

 private:
  void Poll();
  int PollTimeoutMs() const;
  void RunStream();
  void OpenStream(std::size_t endpoint);
  void OnSignal();
  void OnJobs();
  void OnJobOver(const Job& job);
  void TakeNoMore();
  void LeaveStuck() const;
  void MaybeEnd();
  // Whether tickets are left anywhere, dead letters not counted. nullopt: not known now.
  std::optional<bool> AnyLeft() const;
  std::optional<bool> AnyLeftAt(const std::string& name) const;

  const Context& context_;
  const Options& options_;
  const int signals_;
  std::shared_ptr<Transport> transport_;  // Set by Execute().
  Voice voice_;
  Mailbox mailbox_;
  WorkSession session_;
  std::unique_ptr<WorkStream> stream_;
  std::unique_ptr<WorkStream> dropped_;  // Not within its own callbacks.
  std::map<std::string, Job> jobs_;      // By lease id.
  std::map<std::string, std::string> titles_;
  int code_ = kDone;
  int signalled_ = 0;
  bool no_more_ = false;
  TimePoint busy_at_ = BootClock::now();
  TimePoint close_by_ = kNever;
};

// ---- tickets ----

void Work::OnAssigned(const v1::TicketAssignment& assignment, const LeaseKeeper::LeasePtr& lease) {
  const std::string& lease_id = assignment.lease().lease_id();
  busy_at_ = BootClock::now();
  v1::FinishTicket put_back;
  put_back.set_lease_id(lease_id);
  put_back.mutable_put_back();
  // What was given to it while it was cut off it hears of when it resumes, though its hands are
  // full. A command whose lease is lost, and which is being ended, takes up no hand.
  const auto in_hand = [this](const auto& entry) { return session_.Holds(entry.first); };
  const bool full = std::ranges::count_if(jobs_, in_hand) >= options_.tickets_max;
  // What was done for it before it was lost here is not over yet.
  if (no_more_ || full || jobs_.contains(lease_id)) return session_.Finish(std::move(put_back));
  if (options_.once) TakeNoMore();
  absl::StatusOr<Job> job = Job::Start(assignment, lease, context_.command, options_.kill_after);
  if (!job.ok()) {
    voice_.Say("guardian", std::string(job.status().message()));
    code_ = kCannotExecute;
    TakeNoMore();
    return session_.Finish(std::move(put_back));
  }
  titles_[lease_id] = job->title();
  voice_.Say("assigned", absl::StrCat(job->title(), ": begun"));
  jobs_.emplace(lease_id, *std::move(job));
}

void Work::OnLost(const std::string& lease_id, const std::string& why) {
  const auto job = jobs_.find(lease_id);
  if (job == jobs_.end()) return;
  // Before what may block.
  job->second.KillOff("its worker lost contact, and ended the command");
  voice_.Say("lost", absl::StrCat(job->second.title(), ": lost (", why, "); killing the command"));
  if (options_.once) code_ = kLost;
}

void Work::OnRecalled(const LeaseKeeper::LeasePtr& lease, const RecallNotice& notice) {
  const auto job = jobs_.find(lease->lease_id);
  if (job == jobs_.end()) return;
  // Its time may end sooner now.
  job->second.Look();
  job->second.CutShort(absl::StrCat("it was recalled: ", notice.reason));
  voice_.Say("recalled", absl::StrCat(job->second.title(), ": recalled (", notice.reason,
                                      "), to be given back within ", FormatDuration(notice.grace),
                                      "; ending the command"));
}

void Work::OnRefusedAgain(const std::string& lease_id, const absl::Status& why) {
  const auto title = titles_.find(lease_id);
  if (title == titles_.end()) return;
  voice_.Say("not_taken", absl::StrCat(title->second, ": its result is refused, and sent again: ",
                                       std::string(why.message())));
}

void Work::OnAnswered(const std::string& lease_id, const absl::Status& status,
                      v1::TicketState state) {
  const auto title = titles_.find(lease_id);
  if (title == titles_.end()) return;
  if (!status.ok()) {
    voice_.Say(
        "not_held",
        absl::StrCat(title->second, ": its result came too late: ", std::string(status.message())));
    if (options_.once && ErrorReason(status) == "NOT_HELD") code_ = kLost;
  } else if (state == v1::TICKET_STATE_DEAD) {
    voice_.Say("dead_letter", absl::StrCat(title->second, ": a dead letter now"));
  }
  titles_.erase(title);
}

void Work::OnJobs() {
  std::vector<std::string> over;
  for (auto& [lease_id, job] : jobs_) {
    job.Look();
    const std::string warning = job.TakeWarning();
    if (!warning.empty()) voice_.Say("guardian", absl::StrCat(job.title(), ": ", warning));
    if (job.over()) over.push_back(lease_id);
  }
  for (const std::string& lease_id : over) {
    const Job job = std::move(jobs_.at(lease_id));
    jobs_.erase(lease_id);
    OnJobOver(job);
  }
}

void Work::OnJobOver(const Job& job) {
  busy_at_ = BootClock::now();
  voice_.Say("finished", absl::StrCat(job.title(), ": ", job.verdict()));
  if (options_.once && code_ == kDone) code_ = job.exit_code();
  if (job.cannot_execute()) {
    code_ = job.exit_code();
    TakeNoMore();
  }
  if (session_.Holds(job.lease_id())) {
    session_.Finish(job.Result());
  } else {
    titles_.erase(job.lease_id());
  }
}

// ---- the end ----

void Work::TakeNoMore() {
  if (std::exchange(no_more_, true)) return;
  session_.SetTicketsMax(0);
}

void Work::OnSignal() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGUSR1 || number == SIGUSR2) {
      for (auto& [lease_id, job] : jobs_) job.Signal(number);
      continue;
    }
    if (signalled_ == 0 && number != SIGQUIT && !jobs_.empty()) {
      voice_.Say("stopping", absl::StrCat("taking no more tickets; waiting for ", jobs_.size(),
                                          " to finish (again to end them)"));
    } else if (!jobs_.empty()) {
      for (auto& [lease_id, job] : jobs_) job.CutShort("its worker was stopped");
      code_ = kSignalled + number;
    }
    signalled_ = number;
    TakeNoMore();
  }
}

std::optional<bool> Work::AnyLeftAt(const std::string& name) const {
  v1::AdministerRequest request;
  const bool prefix = name.ends_with('*');
  if (prefix) {
    request.mutable_list()->set_prefix(name.substr(0, name.size() - 1));
    request.mutable_list()->set_page_size(kRows);
  } else {
    request.set_semaphore(name);
    request.mutable_describe()->set_page_size(1);
  }
  while (true) {
    const absl::StatusOr<v1::AdministerResponse> response = Administer(context_, request);
    if (absl::IsNotFound(response.status())) return false;
    if (!response.ok()) return std::nullopt;
    const auto& listed = response->list().semaphores();
    std::vector<v1::SemaphoreInfo> infos(listed.begin(), listed.end());
    if (!prefix) infos.push_back(response->describe().semaphore());
    for (const v1::SemaphoreInfo& info : infos) {
      const v1::TicketCounts& tickets = info.tickets();
      if (tickets.queued() + tickets.delayed() + tickets.assigned() > 0) return true;
    }
    if (response->list().next_page_token().empty()) return false;
    request.mutable_list()->set_page_token(response->list().next_page_token());
  }
}

std::optional<bool> Work::AnyLeft() const {
  for (const std::string& name : options_.names) {
    const std::optional<bool> left = AnyLeftAt(name);
    if (!left.has_value() || *left) return left;
  }
  return false;
}

// What does not die keeps its lease until the TTL.
void Work::LeaveStuck() const {
  const auto is_stuck = [](const auto& entry) { return entry.second.is_stuck(); };
  if (!jobs_.empty() && std::ranges::all_of(jobs_, is_stuck)) _exit(kLost);
}

void Work::MaybeEnd() {
  if ((no_more_ || options_.exit_when_empty) && session_.answered()) LeaveStuck();
  if (!jobs_.empty()) return;
  const TimePoint now = BootClock::now();
  if (!no_more_ && options_.exit_when_empty && session_.open() && now - busy_at_ >= kIdle) {
    busy_at_ = now;
    if (AnyLeft() == false) TakeNoMore();
  }
  if (!no_more_) return;
  session_.Close();
  if (close_by_ == kNever) close_by_ = now + kReleaseTimeout;
}

// ---- the loop ----

void Work::OpenStream(std::size_t endpoint) {
  WorkStream::Callbacks callbacks;
  callbacks.on_message = [this](const v1::WorkResponse& message) {
    session_.OnMessage(message, BootClock::now());
  };
  callbacks.on_written = [] {};  // The loop looks after each letter.
  callbacks.on_end = [this](const absl::Status& status) {
    session_.OnStreamEnd(status, BootClock::now());
    dropped_ = std::move(stream_);
  };
  stream_ = std::make_unique<WorkStream>(context_.endpoints()[endpoint], *transport_, &mailbox_,
                                         std::move(callbacks));
}

void Work::RunStream() {
  const TimePoint now = BootClock::now();
  session_.Tick(now);
  if (session_.TakeDrop()) stream_ = nullptr;
  dropped_ = nullptr;
  std::size_t endpoint = 0;
  if (stream_ == nullptr && session_.StartConnecting(&endpoint, now)) OpenStream(endpoint);
  v1::WorkRequest message;
  if (stream_ != nullptr && stream_->writable() && session_.NextMessage(&message, now))
    stream_->Write(std::move(message));
}

int Work::PollTimeoutMs() const {
  const TimePoint now = BootClock::now();
  const bool can_send = stream_ != nullptr && stream_->writable();
  TimePoint due = std::min(session_.NextDue(can_send), close_by_);
  if (!jobs_.empty()) due = std::min<TimePoint>(due, now + kFeedMost);
  for (const auto& [lease_id, job] : jobs_) due = std::min(due, job.overdue_at());
  if (options_.exit_when_empty && jobs_.empty()) due = std::min(due, now + kIdle);
  // The first process of a container gets all its orphans.
  if (getpid() == 1) due = std::min<TimePoint>(due, now + kReapEvery);
  if (due == kNever) return -1;
  const auto left = std::chrono::ceil<milliseconds>(due - now);
  return static_cast<int>(std::clamp<int64_t>(left.count(), 1, 60'000));
}

void Work::Poll() {
  std::vector<pollfd> polled = {{signals_, POLLIN, 0}, {mailbox_.descriptor(), POLLIN, 0}};
  for (const auto& [lease_id, job] : jobs_) polled.push_back({job.descriptor(), POLLIN, 0});
  poll(polled.data(), polled.size(), PollTimeoutMs());
  OnSignal();
  mailbox_.Deliver();
  OnJobs();
  ReapOrphans();
  MaybeEnd();
  RunStream();
}

int Work::Execute() {
  absl::StatusOr<std::shared_ptr<Transport>> transport = context_.MakeTransport();
  if (!transport.ok()) return context_.Fail(transport.status());
  transport_ = *std::move(transport);
  RunStream();
  while (!session_.over() && BootClock::now() < close_by_) Poll();
  const absl::Status status = session_.status();
  // Without a daemon nothing vouches for what is still at work.
  for (auto& [lease_id, job] : jobs_) job.CutShort("its worker lost contact");
  while (!jobs_.empty()) {
    for (auto& [lease_id, job] : jobs_) job.WaitForEnd();
    std::erase_if(jobs_, [](const auto& entry) { return entry.second.over(); });
    LeaveStuck();
  }
  stream_ = nullptr;
  if (!session_.over() && !session_.answered()) {
    voice_.Say("unanswered",
               "what became of a ticket could not be reported; it is given out again");
    if (code_ == kDone) code_ = kUnreachable;
  }
  if (!session_.over() || status.ok()) return code_;
  voice_.Fail(status);
  return ExitCodeOf(status);
}

int WorkCommand(const Context& context, const Options& options) {
  if (context.command.empty())
    return context.Misused("work needs a command behind \"--\": semctl work NAME... -- COMMAND...");
  if (const auto warning = CannotKillWarning(context.command.front()))
    context.Say("guardian", *warning);
  const sigset_t handled = BlockHandledSignals();
  const int signals = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  return Work(context, options, signals).Execute();
}

constexpr char kExamples[] = R"(  semctl work deploy/prod -- ./deploy.sh
  semctl work 'deploy/*' --tickets 8 -- ./deploy.sh
  semctl work thumbnails --exit-when-empty -- convert - -resize 200x200 /srv/out.png

The command is started once for each ticket, with the ticket's payload on its standard input, in a
process group of its own. In its environment are SEMAPHORE_NAME, SEMAPHORE_TICKET,
SEMAPHORE_ATTEMPT (from 1), SEMAPHORE_MAX_ATTEMPTS (0: no bound), SEMAPHORE_CONTENT_TYPE,
SEMAPHORE_SLOT, SEMAPHORE_TOKEN, SEMAPHORE_LEASE and TRACEPARENT. What it exits with decides:
  0       the ticket is done
  65      it is rejected: no attempt could do it, a dead letter at once (EX_DATAERR)
  75      it failed, and is tried again after its back-off (EX_TEMPFAIL)
  others  it failed, too; the code, or the signal, is kept among its reasons
After its last attempt a ticket that failed becomes a dead letter: semctl dead-letters.

A ticket is delivered at least once. When its lease is recalled or about to be lost, the command
gets TERM, and KILL after --kill-after, always before another worker can have it; also when semctl is
killed or stopped. The ticket returns to its position at once, without a back-off; the attempt counts.
The target of the work can turn away a worker that was overtaken by SEMAPHORE_TOKEN, which rises
with every attempt at a slot.

After INT, TERM or HUP it takes no more tickets, and ends with 0 when those in hand are finished; a
second one ends their commands. With --once the command's exit code is semctl's own.
)";

}  // namespace

void AddWorkCommand(Command app, Context& context) {
  auto options = std::make_shared<Options>();
  const Command work = AddCommand(
      app, context, "work",
      "Carry tickets out with a command: semctl work NAME|PREFIX*... [options] -- COMMAND...",
      std::string(kExamples) + kExitCodesHelp,
      [&context, options] { return WorkCommand(context, *options); });
  work.Add("NAME", &options->names,
           "Semaphores, or PREFIX* for all whose names begin so; they need not exist yet")
      .Takes(kTakesSemaphore)
      .Required();
  const Option tickets =
      work.Add("--tickets", &options->tickets_max, "How many at once; up to 1000")
          .TakesBetween(1, 1000)
          .ShowsDefault();
  const Option once = work.AddFlag("--once", &options->once, "One ticket, then end");
  once.Excludes(tickets);
  work.AddFlag("--exit-when-empty", &options->exit_when_empty,
               "End when none of the semaphores has a ticket left, but dead letters")
      .Excludes(once);
  work.Add("--holder", &options->holder, "For people: who works [host:pid]");
  work.AddDuration(
      "--ttl", &options->ttl,
      "How long its tickets outlive a semctl that cannot be reached [the daemon's default]");
  work.AddDuration("--kill-after", &options->kill_after, "Time between TERM and KILL [10s]");
}

}  // namespace semaphore::semctl
