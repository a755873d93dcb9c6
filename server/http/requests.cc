// The server's requests: from their heads to what answers them.
#include <utility>

#include "server/http/server_thread.h"

namespace semaphored::http {

using State = Connection::State;

// Where the answer to one request goes.
class Server::Impl::Sink final : public ReplySink, public std::enable_shared_from_this<Sink> {
 public:
  Sink(Impl* impl, const Asked& asked) : impl_(impl), mailbox_(impl->mailbox_), asked_(asked) {}

  void Answer(Response response) override {
    mailbox_->Post([impl = impl_, asked = asked_, response = std::move(response)]() mutable {
      impl->OnReply(asked, std::move(response));
    });
  }
  void Begin(Response head, StreamPtr stream) override {
    mailbox_->Post([impl = impl_, asked = asked_, head = std::move(head), stream]() mutable {
      impl->OnBegin(asked, std::move(head), stream);
    });
  }
  void Pump() override {
    mailbox_->Post([impl = impl_, asked = asked_] { impl->OnPump(asked); });
  }
  void SetOnGone(std::function<void()> on_gone) override {
    mailbox_->Post([impl = impl_, asked = asked_, on_gone = std::move(on_gone)]() mutable {
      impl->SetOnGone(asked, std::move(on_gone));
    });
  }
  void DropBody() override {
    mailbox_->Post([impl = impl_, asked = asked_] {
      if (Connection* const connection = impl->Find(asked)) connection->DropBody();
    });
  }

 private:
  Impl* const impl_;  // It stands as long as the mailbox has a context.
  const std::shared_ptr<Mailbox> mailbox_;
  const Asked asked_;
};

Connection* Server::Impl::Find(const Asked& asked) const {
  const auto found = connections_.find(asked.connection);
  if (found == connections_.end() || found->second->asked() != asked.request) return nullptr;
  return found->second.get();
}

// After a refusal the connection ends: what follows may be the rest of what was refused.
void Server::Impl::OnHead(Connection* connection, HeadReader::Result result) {
  if (const Status* const wrong = std::get_if<Status>(&result))
    return AnswerLast(connection, *wrong);
  Head& head = std::get<Head>(result);
  const bool with_body = head.request.method != Method::kHead;
  const auto resource = resources_.find(head.request.path);
  if (resource == resources_.end()) return AnswerLast(connection, Status::kNotFound, with_body);
  if (!resource->second.methods.Has(head.request.method)) {
    Response response = RefusalOf(Status::kMethodNotAllowed);
    response.headers.emplace_back("Allow", resource->second.methods.Text());
    return Answer(connection, std::move(response), false, with_body);
  }
  if (options_.check) {
    if (std::optional<Response> refused = options_.check(head.request))
      return Answer(connection, *std::move(refused), head.keep_alive && !head.has_body(),
                    with_body);
  }
  if (!head.has_body()) return Ask(connection, std::move(head.request), head.keep_alive);
  const bool takes_body = !kReads.Has(head.request.method) && resource->second.body_bytes_max > 0;
  if (!takes_body) return AnswerLast(connection, Status::kContentTooLarge, with_body);
  connection->ReadBody(std::move(head), resource->second.body_bytes_max);
}

void Server::Impl::OnRequest(Connection* connection, std::variant<Request, Status> result) {
  if (const Status* const wrong = std::get_if<Status>(&result))
    return AnswerLast(connection, *wrong);
  Ask(connection, std::get<Request>(std::move(result)), connection->body_keep_alive());
}

// Those whose handlers have theirs stay: they are about to be answered.
void Server::Impl::OnBodyBytes(size_t before, size_t now) {
  bodies_bytes_ = bodies_bytes_ - before + now;
  const auto comes = [](const Connection& each) {
    return each.state() == State::kBody && each.body_bytes() > 0;
  };
  while (bodies_bytes_ > options_.bodies_bytes_max && now > before) {
    if (!MakeRoom(comes)) return;
  }
}

void Server::Impl::Ask(Connection* connection, Request request, bool keep_alive) {
  const Handler& handler = resources_.at(request.path).handler;
  connection->Ask();
  const Asked asked{connection->number(), connection->asked(), keep_alive && all_ended_ == nullptr,
                    request.method != Method::kHead, request.is_1_1};
  handler(std::move(request),
          Reply(std::make_shared<Sink>(this, asked), options_.stream_bytes_max));
}

void Server::Impl::OnReply(const Asked& asked, Response response) {
  Connection* const connection = Find(asked);
  if (connection == nullptr || connection->state() != State::kAsking) return;
  on_gone_.erase(asked.connection);
  const bool has_next = !connection->ended_by_client() || connection->has_begun();
  Answer(connection, std::move(response), asked.keep_alive && has_next, asked.with_body);
}

void Server::Impl::OnBegin(const Asked& asked, Response head, const StreamPtr& stream) {
  Connection* const connection = Find(asked);
  if (connection == nullptr || connection->state() != State::kAsking) return stream->Gone();
  on_gone_.erase(asked.connection);
  if (connection->ended_by_client()) {
    Close(*connection);
    return stream->Gone();
  }
  if (!asked.with_body) {
    Answer(connection, std::move(head), false, false);
    return stream->Gone();
  }
  ++answers_[static_cast<size_t>(head.status)];
  AddHeaders(&head);
  connection->Stream(head, asked.is_1_1, stream);
}

void Server::Impl::OnPump(const Asked& asked) {
  Connection* const connection = Find(asked);
  if (connection == nullptr || connection->state() != State::kStreaming) return;
  if (connection->stream()->overflowed()) {
    CountClosed(Closed::kSlow);
    return Close(*connection);
  }
  connection->Pump();
}

void Server::Impl::SetOnGone(const Asked& asked, std::function<void()> on_gone) {
  Connection* const connection = Find(asked);
  if (connection != nullptr && connection->state() != State::kAsking) return;  // It is answered.
  if (connection == nullptr) return on_gone();
  connection->BePatient();
  on_gone_[asked.connection] = std::move(on_gone);
}

// A client that has only said that it sends no more may still wait for its answer: Sweep() sees when it has gone. The
// end of a stream's client is its end.
void Server::Impl::OnEof(const Connection& connection) {
  if (connection.state() == State::kStreaming) Close(connection);
}

void Server::Impl::AddHeaders(Response* response) {
  const int64_t now_unix_s = options_.clock->NowUnixMs() / 1'000;
  if (std::exchange(date_unix_s_, now_unix_s) != now_unix_s) date_ = DateText(now_unix_s);
  response->headers.emplace_back("Date", date_);
  response->headers.insert(response->headers.end(), options_.headers.begin(),
                           options_.headers.end());
}

void Server::Impl::Answer(Connection* connection, Response response, bool keep_alive,
                          bool with_body) {
  ++answers_[static_cast<size_t>(response.status)];
  AddHeaders(&response);
  const size_t bytes = with_body && response.body != nullptr ? response.body->size() : 0;
  const auto unread = [](const Connection& each) { return each.unread_bytes() > 0; };
  while (bytes > 0 && unread_bytes_ + bytes > options_.unread_bytes_max) {
    if (!MakeRoom(unread)) break;
  }
  unread_bytes_ += bytes;
  connection->Answer(std::move(response), keep_alive && all_ended_ == nullptr, with_body);
}

}  // namespace semaphored::http
