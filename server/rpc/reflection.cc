#include "server/rpc/reflection.h"

#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/support/status.h>

#include <map>
#include <set>

#include "proto/semaphore/v1/semaphore.grpc.pb.h"

namespace semaphored {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>* seen,
             standard::FileDescriptorResponse* response) {
  if (!seen->insert(file).second) return;
  response->add_file_descriptor_proto(Serialized(file));
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), seen, response);
}

void AnswerFile(const FileDescriptor* file, standard::ReflectionResponse* response) {
  if (file == nullptr) {
    response->mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response->mutable_error_response()->set_error_message("no such file, symbol or extension");
    return;
  }
  std::set<const FileDescriptor*> seen;
  AddFile(file, &seen, response->mutable_file_descriptor_response());
}

}  // namespace

const std::string& Serialized(const FileDescriptor* file) {
  // As many as there are files in the program.
  static thread_local std::map<const FileDescriptor*, std::string> files;
  std::string& text = files[file];
  if (text.empty()) {
    google::protobuf::FileDescriptorProto copy;
    file->CopyTo(&copy);
    text = copy.SerializeAsString();
  }
  return text;
}

standard::ReflectionResponse Reflect(const standard::ReflectionRequest& request) {
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  standard::ReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case standard::ReflectionRequest::kFileByFilename:
      AnswerFile(pool->FindFileByName(request.file_by_filename()), &response);
      break;
    case standard::ReflectionRequest::kFileContainingSymbol:
      AnswerFile(pool->FindFileContainingSymbol(request.file_containing_symbol()), &response);
      break;
    case standard::ReflectionRequest::kListServices:
      response.mutable_list_services_response()->add_service()->set_name(
          semaphore::v1::SemaphoreService::service_full_name());
      break;
    default:
      AnswerFile(nullptr, &response);  // proto3 has no extensions.
      break;
  }
  return response;
}

}  // namespace semaphored
