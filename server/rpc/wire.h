// Messages to and from the bytes that gRPC carries. The calls are registered raw, so that one
// scratch message serves all calls of a kind, and so that what cannot be parsed gets our own error.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

namespace semaphored {

// False if the bytes are not a message of this type. Empties `bytes`.
template <typename Message>
bool Parse(grpc::ByteBuffer* bytes, Message* message) {
  message->Clear();
  // A null buffer stands for an empty message.
  if (!bytes->Valid()) return true;
  const bool good = grpc::SerializationTraits<Message>::Deserialize(bytes, message).ok();
  bytes->Clear();
  return good;
}

template <typename Message>
grpc::ByteBuffer Serialize(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  // Fails only on messages of 2 GiB.
  static_cast<void>(grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own));
  return bytes;
}

}  // namespace semaphored
