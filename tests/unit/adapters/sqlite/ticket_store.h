// A store of the size that a test wants: a semaphore with tickets, whose payloads fill the file.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "adapters/sqlite/store.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/sqlite/fixture.h"

namespace semaphored::sqlite {

inline constexpr size_t kPayloadBytes = 65'536;
inline constexpr uint64_t kTicketsInACommit = 250;
inline constexpr int64_t kMiB = 1 << 20;

// One semaphore with tickets of 64 KiB, whose numbers are given.
class TicketStore {
 public:
  explicit TicketStore(OpenStore open) : open_(std::move(open)) {
    ledger::Transaction transaction = Create(open_, "s");
    Win(&transaction);
  }

  void Add(uint64_t first, uint64_t last) {
    Change(first, last, [](ledger::SemaphoreDelta* delta, uint64_t number) {
      delta->tickets.push_back({nullptr, MakeTicket(number), PayloadOf(number)});
    });
  }
  void Remove(uint64_t first, uint64_t last) {
    Change(first, last, [](ledger::SemaphoreDelta* delta, uint64_t number) {
      delta->tickets.push_back({MakeTicket(number), nullptr, nullptr});
    });
  }
  // A commit that moves hardly any pages.
  void Touch() {
    Change(1, 1, [](ledger::SemaphoreDelta*, uint64_t) {});
  }

  OpenStore& open() { return open_; }
  Database& database() { return *open_.database; }
  int64_t FileBytes() const {
    return static_cast<int64_t>(std::filesystem::file_size(open_.database->name()));
  }
  int64_t FreePages() { return open_.database->CountPages().value().free; }

  // As a lane that has nothing to do, until the file has at most so many bytes; at most so often.
  bool IdleUntilAtMost(int64_t bytes, int rounds) {
    for (int i = 0; i < rounds && FileBytes() > bytes; ++i) Idle();
    return FileBytes() <= bytes;
  }
  void Idle() {
    REQUIRE(open_.store->Wait(SteadyClock::now() + std::chrono::milliseconds(300)).ok());
  }

  static PayloadPtr PayloadOf(uint64_t number) {
    return std::make_shared<const std::string>(kPayloadBytes, static_cast<char>('a' + number % 26));
  }

 private:
  template <typename Act>
  void Change(uint64_t first, uint64_t last, Act act) {
    while (first <= last) {
      ledger::Transaction transaction = Begin(open_);
      auto& delta = sqlite::Touch(transaction, row_);
      for (uint64_t i = 0; i < kTicketsInACommit && first <= last; ++i) act(&delta, first++);
      Win(&transaction);
    }
  }
  void Win(ledger::Transaction* transaction) {
    REQUIRE(open_.Commit(*transaction).kind == ledger::CommitResult::Kind::kWon);
    row_ = *transaction->semaphores[0].after;
    row_.revision = transaction->semaphores[0].revision;
  }

  OpenStore open_;
  SemaphoreRow row_;
};

}  // namespace semaphored::sqlite
