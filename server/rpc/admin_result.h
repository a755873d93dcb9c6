// The typed result of each act of Administer.
#pragma once

#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/rpc/convert.h"
#include "server/sessions/sessions.h"

namespace semaphored {

// Fills in the result of the act `act`, which `answer` answers. `message` is empty.
void ToProto(const AdminAnswer& answer, semaphore::v1::AdministerRequest::ActCase act,
             const NodeNames& names, semaphore::v1::AdministerResponse* message);

}  // namespace semaphored
