// The answers of one block (answers.h), as the value of one key: JSON, short, since all of it is
// written with each answer that is added.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "adapters/ledger/state/transaction.h"

namespace semaphored::consul {

using Answers = std::map<uint64_t, ledger::Answer>;  // By sequence number.

// Of the claims no more is kept than Answer::claim says. REQUIRES: what was granted has ended, and
// no two sequence numbers are further apart than 1,000.
std::string WriteAnswers(const Answers& answers);

// Of what is not understood nothing is known: it is passed over. The answers name no client.
Answers ReadAnswers(const std::string& text);

}  // namespace semaphored::consul
