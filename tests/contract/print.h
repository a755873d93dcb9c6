// How a failing case shows the words of the contract.
#pragma once

#include <ostream>
#include <string>

#include "adapters/adapter.h"

namespace semaphored {

std::ostream& operator<<(std::ostream& out, OutcomeKind kind);
std::ostream& operator<<(std::ostream& out, EndCause cause);
std::ostream& operator<<(std::ostream& out, Event::Kind kind);
std::ostream& operator<<(std::ostream& out, SemaphoreChange::Kind kind);
std::ostream& operator<<(std::ostream& out, Recall::Reason reason);
std::ostream& operator<<(std::ostream& out, const Id& id);

}  // namespace semaphored
