// The broker's answers to messages that were published together (publisher confirms). No I/O; used by one thread.
//
// The broker confirms by sequence number, one or all up to a number. A message that no queue takes it returns first,
// with no number, and confirms it all the same: returns come in the order of publishing, each before its confirm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace semaphored::rabbitmq {

enum class Confirm : uint8_t {
  kStored,
  kNoQueue,  // Returned: there is no such queue.
  kRefused,  // The broker says that it did not keep it.
  kUnknown,  // The connection broke before the broker answered.
};

class Confirms {
 public:
  // `first`: the sequence number of the first message. `keys`: of each message, what its return is recognised by.
  Confirms(uint64_t first, std::vector<std::string> keys)
      : first_(first), keys_(std::move(keys)), answers_(keys_.size()), left_(keys_.size()) {}

  // The broker has confirmed (or refused) the message of this number; with `multiple`, all up to it. A number that is
  // none of these, or was confirmed before, changes nothing.
  void Settle(uint64_t sequence, bool multiple, Confirm confirm);
  // The broker has returned a message with this key.
  void Return(const std::string& key);

  // How many are not confirmed yet.
  size_t left() const { return left_; }
  // One for each message, in order; of one that is not confirmed, kUnknown, or kNoQueue if it was returned.
  std::vector<Confirm> Answers() const;

 private:
  struct Answer {
    Confirm confirm = Confirm::kUnknown;
    bool is_settled = false;
  };

  uint64_t first_;
  std::vector<std::string> keys_;
  std::vector<Answer> answers_;
  size_t left_;
};

}  // namespace semaphored::rabbitmq
