// What layout=tokens keeps in messages: a permit's message, and the document of a semaphore's settings. Pure functions over
// memory; docs/compatibility.md says what a change of them means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "adapters/types.h"

namespace semaphored::rabbitmq {

// A semaphore as the broker has it.
struct StoredSemaphore {
  // row.revision is the document's version. next_order is each daemon's own and not kept here.
  SemaphoreRow row;
  // Rises when the queue of tokens is made again: what was held of an older one is void.
  uint64_t incarnation = 0;
  uint64_t act = 0;             // The number of the act that wrote it last.
  std::set<uint32_t> slots;     // That have a token.
  std::set<uint32_t> doubtful;  // Of these it is not known whether their token arrived.
  // Not all of its first tokens are known to have arrived: it is not there yet, and is made again.
  bool making = false;

  // How many tokens there should be.
  uint32_t wanted() const { return row.destroying ? 0 : row.limit; }
  // How many are to be taken out.
  size_t excess() const { return slots.size() > wanted() ? slots.size() - wanted() : 0; }
};

// Of incarnations, and of tokens' bases above the 32 bits that count what is granted.
inline constexpr uint64_t kGenerationMax = uint64_t{1} << 31;
inline constexpr int kCountBits = 32;

// A permit's message.
struct Token {
  uint32_t slot = 0;
  uint64_t base = 0;
};
std::string TokenText(const Token& token);
// nullopt: it is none of ours.
std::optional<Token> ReadToken(const std::string& text);
// It was sent before the queue of tokens was made (again), and arrived late: it is no permit, and is to be
// acknowledged.
bool IsVoid(const Token& token, const StoredSemaphore& stored);

// The content of the document, without its version and format.
nlohmann::json SettingsOf(const StoredSemaphore& stored);
// DATA_LOSS: it is not what SettingsOf makes.
absl::StatusOr<StoredSemaphore> ReadSettings(const std::string& name,
                                             const nlohmann::json& content);
// Document::Merge of two connections that wrote without knowing of each other: a slot of either may have a token, and gets no
// second one.
nlohmann::json MergeSettings(const nlohmann::json& a, const nlohmann::json& b);

}  // namespace semaphored::rabbitmq
