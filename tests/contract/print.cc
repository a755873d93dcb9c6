#include "tests/contract/print.h"

#include <array>
#include <cstddef>

namespace semaphored {
namespace {

template <size_t N>
std::ostream& Name(std::ostream& out, const std::array<const char*, N>& names, size_t value) {
  return value < N ? out << names[value] : out << "number " << value;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, OutcomeKind kind) {
  static constexpr std::array kNames = {"kGranted",        "kQueued",           "kFull",
                                        "kHolderCap",      "kPaused",           "kLimitMismatch",
                                        "kExceedsLimit",   "kNoSuchSemaphore",  "kDestroyed",
                                        "kLimitReached",   "kOverQuota",        "kTooOld",
                                        "kReused",         "kSessionLost",      "kReleased",
                                        "kNotHeld",        "kNoSuchSlot",       "kHeld",
                                        "kStillWaiting",   "kBelongsToSession", "kDone",
                                        "kStale",          "kRevisionMismatch", "kAlreadyExists",
                                        "kInUse",          "kWouldOvershoot",   "kOutOfRange",
                                        "kUnsupported",    "kUnusable",         "kDamaged",
                                        "kWaitEnded",      "kWithheld",         "kBusy",
                                        "kEnqueued",       "kNothing",          "kNoSuchTicket",
                                        "kNotAskedBefore", "kMoving",           "kReading",
                                        "kUnknown"};
  static_assert(kNames.size() == static_cast<size_t>(OutcomeKind::kUnknown) + 1);
  return Name(out, kNames, static_cast<size_t>(kind));
}

std::ostream& operator<<(std::ostream& out, EndCause cause) {
  static constexpr std::array kNames = {
      "kNone",         "kReleased",     "kExpired", "kRevoked",     "kRecalled",
      "kDestroyed",    "kDisconnected", "kUnknown", "kWaitExpired", "kCancelled",
      "kExceedsLimit", "kEngineLost",   "kMoved"};
  static_assert(kNames.size() == static_cast<size_t>(EndCause::kCount));
  return Name(out, kNames, static_cast<size_t>(cause));
}

std::ostream& operator<<(std::ostream& out, Event::Kind kind) {
  static constexpr std::array kNames = {"kGranted", "kEnded", "kWaitEnded", "kRecalled", "kMoved"};
  static_assert(kNames.size() == static_cast<size_t>(Event::Kind::kMoved) + 1);
  return Name(out, kNames, static_cast<size_t>(kind));
}

std::ostream& operator<<(std::ostream& out, SemaphoreChange::Kind kind) {
  static constexpr std::array kNames = {"kCreated", "kChanged", "kDestroyed", "kQueued",
                                        "kGranted", "kEnded",   "kRecalled",  "kWaitEnded"};
  static_assert(kNames.size() == static_cast<size_t>(SemaphoreChange::Kind::kWaitEnded) + 1);
  return Name(out, kNames, static_cast<size_t>(kind));
}

std::ostream& operator<<(std::ostream& out, Recall::Reason reason) {
  static constexpr std::array kNames = {"kNone", "kShrunk", "kLongestHold", "kAdministrator",
                                        "kDestroyed"};
  static_assert(kNames.size() == static_cast<size_t>(Recall::Reason::kDestroyed) + 1);
  return Name(out, kNames, static_cast<size_t>(reason));
}

std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.Hex(); }

}  // namespace semaphored
