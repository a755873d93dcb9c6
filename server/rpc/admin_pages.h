// The questions of Administer whose answers have rows, in pages. One of many rows is answered by several small
// pages, between which the daemon does other work.
#pragma once

#include <cstdint>
#include <string>

#include "semaphore/v1/semaphore.pb.h"
#include "server/rpc/validate.h"

namespace semaphored {

// True: the act has pages.
bool HasPages(semaphore::v1::AdministerRequest& request);
// How many rows were asked for. 0: the act has no pages.
uint32_t PageRowsOf(const AdminParams& params);
// REQUIRES (here and below): HasPages.
std::string PageTokenOf(semaphore::v1::AdministerRequest& request);
void SetPage(uint32_t rows, const std::string& token, semaphore::v1::AdministerRequest* request);
// Rows of the pages that were added so far; of describe, of the longer of its two lists.
uint32_t RowsOf(semaphore::v1::AdministerResponse& response);
// Of the page that was added last; it is taken from the answer, so that another page can be added. Empty: there are
// no more rows.
std::string TakeNextPageToken(semaphore::v1::AdministerResponse* response);
void SetNextPageToken(const std::string& token, semaphore::v1::AdministerResponse* response);

}  // namespace semaphored
