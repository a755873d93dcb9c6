// One command, by the rule that it stands for.
#pragma once

#include "adapters/commands.h"
#include "adapters/ledger/ends.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/outcomes.h"

namespace semaphored::ledger {

// Decides the command and changes the state through the editor. `ends` explains why a claim is not
// held. A HistoryCommand is no rule's: kUnsupported. A FlushCommand changes nothing: kDone.
Outcome Execute(const Command& command, Editor& editor, const Context& context,
                const RecentEnds& ends);

}  // namespace semaphored::ledger
