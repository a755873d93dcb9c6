#include "server/backup/backup_service.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/backup/channel.h"
#include "server/base/logging.h"

namespace semaphored {
namespace {

constexpr std::string_view kRequest = "backup 1 ";
constexpr Milliseconds kRequestTime(2'000);  // To send the request, and to take the last message.
constexpr Milliseconds kOthersTime(100);
constexpr Milliseconds kReportInterval(200);

// 0: it is no request.
int64_t RateOf(const std::string& text) {
  int64_t rate = 0;
  if (!text.starts_with(kRequest)) return 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + kRequest.size(), end, rate);
  return error == std::errc() && at == end && rate > 0 ? rate : 0;
}

void Fail(int channel, absl::string_view why) {
  SendBackUpMessage(channel, absl::StrCat("failed ", why), -1, kRequestTime);
}

// The socket's mode keeps others out. Whether root has handed a connection on, say, is seen here.
bool MayBackUp(int channel) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(channel, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == geteuid();
}

Descriptor Accept(int listener) {
  return Descriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int64_t SizeOf(const Descriptor& file) {
  struct stat about {};
  return fstat(file.get(), &about) == 0 ? about.st_size : 0;
}

}  // namespace

BackUpService::BackUpService(const std::string& store_file, Make make)
    : path_(BackUpSocketOf(store_file)),
      make_(std::move(make)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  absl::StatusOr<Descriptor> listener = ListenForBackUps(path_);
  if (!listener.ok() || !wake_.open()) {
    const auto why = listener.status().message();
    spdlog::warn("`semaphored backup` cannot reach this daemon: {}",
                 std::string_view(why.data(), why.size()));
    return;
  }
  listener_ = *std::move(listener);
  thread_ = std::thread([this] { Run(); });
}

BackUpService::~BackUpService() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  eventfd_write(wake_.get(), 1);
  thread_.join();
  unlink(path_.c_str());
}

void BackUpService::Run() {
  while (!stopping_) {
    std::array<pollfd, 2> ready{{{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), -1) <= 0 || stopping_) continue;
    if (const Descriptor channel = Accept(listener_.get()); channel.open()) {
      Serve(channel);
    } else {
      // It may be out of descriptors: the client still stands in line, and poll would not wait.
      poll(&ready[1], 1, static_cast<int>(kOthersTime.count()));
    }
  }
}

void BackUpService::Serve(const Descriptor& channel) {
  const std::optional<BackUpMessage> request = ReceiveBackUpMessage(channel.get(), kRequestTime);
  if (!request) return;
  if (!MayBackUp(channel.get())) return Fail(channel.get(), "only the daemon's user and root may");
  const int64_t rate = RateOf(request->text);
  if (rate == 0)
    return Fail(channel.get(), "this daemon is of another version: it does not know the request");
  const SteadyTime began = SystemClock().Now();
  spdlog::info("a back-up begins, at {} MB/s at most", rate / 1'000'000);
  absl::StatusOr<Descriptor> made =
      make_(rate, [&](int64_t done, int64_t all) { return Continue(channel.get(), done, all); });
  if (!made.ok()) {
    const auto why = made.status().message();
    spdlog::warn("the back-up was not made: {}", std::string_view(why.data(), why.size()));
    return Fail(channel.get(), stopping_ ? "the daemon stops" : why);
  }
  const int64_t size = SizeOf(*made);
  spdlog::info("the back-up is made: {} bytes in {} ms", size,
               std::chrono::duration_cast<Milliseconds>(SystemClock().Now() - began).count());
  SendBackUpMessage(channel.get(), absl::StrCat("done ", size), made->get(), kRequestTime);
}

bool BackUpService::Continue(int channel, int64_t done_bytes, int64_t all_bytes) {
  if (stopping_) return false;
  RefuseOthers();
  // The client sends nothing more: what comes is its end.
  pollfd client{channel, POLLIN | POLLRDHUP, 0};
  if (poll(&client, 1, 0) > 0) return false;
  const SteadyTime now = SystemClock().Now();
  if (now - reported_at_ < kReportInterval) return true;
  reported_at_ = now;
  // A client that does not read it misses it.
  SendBackUpMessage(channel, absl::StrCat("progress ", done_bytes, " ", all_bytes), -1,
                    Milliseconds(0));
  return true;
}

void BackUpService::RefuseOthers() {
  const Descriptor other = Accept(listener_.get());
  if (!other.open()) return;
  // Were its request not read, the kernel would give it an error in place of the answer.
  static_cast<void>(ReceiveBackUpMessage(other.get(), kOthersTime));
  SendBackUpMessage(other.get(), "failed another back-up is under way", -1, Milliseconds(0));
}

}  // namespace semaphored
