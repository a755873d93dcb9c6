// Lines that show what other clients have written: holders, payloads, reasons, names.
#ifndef SEMAPHORED_CLIENT_SEMCTL_SHOWN_H_
#define SEMAPHORED_CLIENT_SEMCTL_SHOWN_H_

#include <string>
#include <string_view>

namespace semaphore::semctl {

// `text` without what makes a terminal do something: control characters, characters that turn the direction of writing,
// and bytes that are no UTF-8 become escapes such as \n, \u001b and \x9b. `keep`: control characters that stay.
std::string Escaped(std::string_view text, std::string_view keep = "");

// Whether Protobuf takes `text` for a string.
bool IsUtf8(std::string_view text);

// A line to standard output, without its end. Escaped if that is a terminal; a program receives the bytes themselves.
void PrintLine(const std::string& line);
// The same, to standard error.
void PrintErrorLine(const std::string& line);
// A payload to standard output. On a terminal it is escaped but for tabs and ends of lines.
void PrintPayload(const std::string& payload);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_SHOWN_H_
