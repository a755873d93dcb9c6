// Errors in the words of the caller: the daemon speaks of fields of its protocol.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_WORDING_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_WORDING_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace semaphore {

// What the caller calls a field or a value of the protocol. Empty: the word stays as it is.
using NameOf = std::function<std::string(absl::string_view word)>;

// `text`, in which each word with an underscore is asked for.
std::string WithNames(absl::string_view text, const NameOf& name_of);

// The field that the message begins with: "open.semaphores[3]: …". Empty if it does not.
absl::string_view FieldOf(absl::string_view message);

// The message without the semaphore's name in front.
absl::string_view WithoutSemaphore(const absl::Status& status);

// The same status: message and advice speak of ClientOptions and AcquireOptions.
absl::Status InOptions(const absl::Status& status);

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_WORDING_H_
