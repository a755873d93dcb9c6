#include "server/http/reply.h"

#include "absl/strings/str_cat.h"

namespace semaphored::http {
namespace {

std::string EventText(std::string_view event, std::string_view data) {
  std::string text =
      event.empty() ? ""
                    : absl::StrCat("event: ", absl::string_view(event.data(), event.size()), "\n");
  while (true) {
    const size_t end = data.find('\n');
    const std::string_view line = data.substr(0, end);
    absl::StrAppend(&text, "data: ", absl::string_view(line.data(), line.size()), "\n");
    if (end == data.npos) break;
    data.remove_prefix(end + 1);
  }
  text += '\n';
  return text;
}

}  // namespace

bool Stream::Send(std::string_view event, std::string_view data) {
  const std::string text = EventText(event, data);
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || gone_ || overflowed_) return false;
    // A single event may be as long as it is.
    overflowed_ = !waiting_.empty() && waiting_.size() + text.size() > unread_bytes_max_;
    if (!overflowed_) waiting_ += text;
    if (std::exchange(pumping_, true) && !overflowed_) return true;
  }
  sink_->Pump();
  return !overflowed();
}

void Stream::End() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true) || gone_) return;
  }
  sink_->Pump();
}

size_t Stream::unread() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

std::string Stream::Take(bool* ended) {
  const std::lock_guard lock(mutex_);
  pumping_ = false;
  *ended = ended_;
  return std::exchange(waiting_, {});
}

void Stream::Drained() {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || gone_) return;
  }
  if (events_.on_drained) events_.on_drained();
}

void Stream::Gone() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(gone_, true) || ended_) return;
    waiting_ = {};
  }
  if (events_.on_gone) events_.on_gone();
}

bool Stream::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

StreamPtr Reply::Begin(Response head, Stream::Events events) const {
  auto stream = std::make_shared<Stream>(sink_, std::move(events), stream_bytes_max_);
  head.content_type = "text/event-stream";
  head.headers.emplace_back("Cache-Control", "no-store");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // A proxy is not to collect events.
  sink_->Begin(std::move(head), stream);
  return stream;
}

}  // namespace semaphored::http
