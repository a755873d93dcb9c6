#include "server/rpc/unread_answers.h"

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "server/rpc/long_answers.h"
#include "server/rpc/unary_call.h"

namespace semaphored {
namespace {

struct Answer final : UnreadAnswer {
  explicit Answer(std::string its_peer) : peer(std::move(its_peer)) {}
  void OnUnread() override { cut_off = true; }
  std::string Peer() const override { return peer; }

  std::string peer;
  bool cut_off = false;
};

class Lister final : public LongAnswer {
 public:
  Lister(LongAnswers* all, std::vector<std::string>* order, std::string name)
      : all_(all), order_(order), name_(std::move(name)) {}
  void Add() { all_->Add(this, name_.substr(0, 1)); }
  void Compose() override {
    order_->push_back(name_);
    if (at_once) all_->Done();
  }

  bool at_once = false;

 private:
  LongAnswers* all_;
  std::vector<std::string>* order_;
  std::string name_;
};

// Of no client.
class UnaskedCall final : public MethodCall<UnaskedCall> {
 public:
  static constexpr Method kMethod = Method::kAcquire;
  using MethodCall::MethodCall;

 private:
  void Register() override {}
  void Begin() override {}
};

}  // namespace

TEST_CASE("unread answers: a call beyond calls_max, whose caller is not known, has a peer") {
  grpc::ServerBuilder builder;
  Reactor reactor(&SystemClock(), builder.AddCompletionQueue());
  reactor.Close();  // Nothing is sent.
  Environment environment;
  environment.reactor = &reactor;
  environment.limits.calls_max = 0;
  Acceptor<UnaskedCall> acceptor(&environment);
  UnaskedCall call(&environment, &acceptor);
  call.Request();
  call.OnEvent(true);
  CHECK(static_cast<const UnreadAnswer&>(call).Peer().empty());
  reactor.Run();
}

TEST_CASE("unread answers: the connection that leaves most unread loses its calls, and no other") {
  UnreadAnswers all;
  const SteadyTime now{};
  Answer slow("slow"), deaf1("deaf"), deaf2("deaf"), other("other");
  all.Add(&slow, 400, now, 1'000);
  all.Add(&deaf1, 300, now, 1'000);
  all.Add(&deaf2, 300, now, 1'000);
  CHECK(all.bytes() == 1'000);
  all.Add(&other, 1, now, 1'000);
  CHECK(deaf1.cut_off);
  CHECK(deaf2.cut_off);
  CHECK_FALSE(slow.cut_off);
  CHECK_FALSE(other.cut_off);
  CHECK(all.bytes() == 401);
  // Its events come later, and change nothing.
  all.Remove(&deaf1);
  all.Remove(&slow);
  all.Remove(&other);
  CHECK(all.bytes() == 0);
  CHECK(all.empty());
  // One that is too long by itself.
  Answer huge("huge");
  all.Add(&huge, 1'001, now, 1'000);
  CHECK(huge.cut_off);
  CHECK(all.empty());
}

TEST_CASE("unread answers: at the bound an eighth of it is made free at once") {
  UnreadAnswers all;
  const SteadyTime now{};
  std::vector<std::unique_ptr<Answer>> answers;
  const auto add = [&](size_t bytes) {
    answers.push_back(std::make_unique<Answer>("peer " + std::to_string(answers.size())));
    all.Add(answers.back().get(), bytes, now, 1'000);
  };
  add(1);
  for (int i = 0; i < 499; ++i) add(2);
  CHECK(all.bytes() == 999);
  add(2);
  // Otherwise each of many small connections would cost a look at all others.
  CHECK(all.bytes() == 875);
  CHECK_FALSE(answers[0]->cut_off);
}

TEST_CASE("unread answers: what has not been taken for too long is cut off, the oldest first") {
  UnreadAnswers all;
  SteadyTime now{};
  std::vector<std::unique_ptr<Answer>> answers;
  for (int i = 0; i < 10; ++i) {
    answers.push_back(std::make_unique<Answer>("one"));
    all.Add(answers.back().get(), 1, now, 1'000);
    now += Milliseconds(1'000);
  }
  all.Remove(answers[0].get());
  CHECK(all.oldest() == SteadyTime(Milliseconds(1'000)));
  all.CutOffBefore(SteadyTime(Milliseconds(4'500)));
  for (size_t i = 0; i < answers.size(); ++i) CHECK(answers[i]->cut_off == (i > 0 && i < 5));
  CHECK(all.bytes() == 5);
}

TEST_CASE("long answers: few are put together at once, and connections take turns") {
  LongAnswers all;
  std::vector<std::string> order;
  std::vector<std::unique_ptr<Lister>> listers;
  const auto add = [&](const std::string& name) {
    listers.push_back(std::make_unique<Lister>(&all, &order, name));
    listers.back()->Add();
    return listers.back().get();
  };
  for (size_t i = 0; i < LongAnswers::kAtOnce + 100; ++i) add("a");
  REQUIRE(order.size() == LongAnswers::kAtOnce);
  Lister* const gone = add("b1");
  add("b2");
  add("c1");
  Lister* const last = add("d1");
  // Their clients have gone.
  CHECK(all.Remove(gone));
  CHECK_FALSE(all.Remove(gone));
  CHECK(all.Remove(last));
  CHECK_FALSE(all.Remove(listers[0].get()));  // It has its turn.
  order.clear();
  for (int i = 0; i < 4; ++i) all.Done();
  CHECK(order == std::vector<std::string>{"a", "b2", "c1", "a"});
  for (int i = 0; i < 200; ++i) all.Done();
  CHECK(order.size() == 102);
}

TEST_CASE("long answers: many that are done at once need no deep stack") {
  LongAnswers all;
  std::vector<std::string> order;
  std::vector<std::unique_ptr<Lister>> listers;
  for (size_t i = 0; i < LongAnswers::kAtOnce + 200'000; ++i) {
    listers.push_back(std::make_unique<Lister>(&all, &order, "a"));
    listers.back()->at_once = i >= LongAnswers::kAtOnce;
    listers.back()->Add();
  }
  all.Done();
  CHECK(order.size() == listers.size());
}

}  // namespace semaphored
