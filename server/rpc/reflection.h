// What gRPC's reflection service answers.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

#include "proto/standard/services.pb.h"

namespace semaphored {

standard::ReflectionResponse Reflect(const standard::ReflectionRequest& request);

// The file as a serialized FileDescriptorProto, which is kept for the next time. On one thread.
const std::string& Serialized(const google::protobuf::FileDescriptor* file);

}  // namespace semaphored
