// Ids of claims, of which a document and the request rows have many: 22 characters instead of 32.
// What people look for by its id (sessions, tickets) has the 32 that they see elsewhere.
#pragma once

#include <optional>
#include <string>

#include "adapters/types.h"

namespace semaphored::consul {

// Base64 for URLs, without padding.
std::string ShortText(const Id& id);

// nullopt unless `text` is exactly what ShortText makes.
std::optional<Id> IdOfShortText(const std::string& text);

}  // namespace semaphored::consul
