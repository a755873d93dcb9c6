// Compresses the body of an answer.
#pragma once

#include <string>
#include <string_view>

namespace semaphored::http {

// As "Content-Encoding: gzip" has it. Empty: zlib had no memory; the plain text has to do.
std::string Gzip(std::string_view text);

}  // namespace semaphored::http
