// The call behind all of semctl's administration.
#ifndef SEMAPHORED_CLIENT_SEMCTL_ADMIN_H_
#define SEMAPHORED_CLIENT_SEMCTL_ADMIN_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/semctl/context.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

// Calls Administer. `wait` is how long the act itself may wait; negative: for ever.
absl::StatusOr<v1::AdministerResponse> Administer(
    const Context& context, v1::AdministerRequest request,
    std::chrono::milliseconds wait = std::chrono::milliseconds(0));

// The same over a connection that is kept for the next call.
absl::StatusOr<v1::AdministerResponse> Administer(
    UnaryCaller* caller, v1::AdministerRequest request,
    std::chrono::milliseconds wait = std::chrono::milliseconds(0));

// What of a listing is to be shown.
struct Paging {
  std::uint32_t rows = 0;  // At most so many; 0: all.
  std::string token;       // Where it begins; empty: at the beginning.
};
// "--rows" and "--page-token".
void AddPaging(Command command, Paging* paging);

// What was found in one page.
struct Page {
  std::uint32_t rows = 0;
  std::string next;  // Empty: it was the last page.
};
// Reads page after page. `set` puts a size and a token into a request; `take` takes the rows of a response. Returns the
// token of the page behind the last row that was taken; empty: there is none.
absl::StatusOr<std::string> ReadPages(
    const Context& context, v1::AdministerRequest request, const Paging& paging,
    const std::function<void(std::uint32_t, const std::string&, v1::AdministerRequest*)>& set,
    const std::function<Page(const v1::AdministerResponse&)>& take);
// On stderr: that there is more, and how to go on. Nothing if `next` is empty.
void SayMore(const Context& context, const std::string& next);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_ADMIN_H_
