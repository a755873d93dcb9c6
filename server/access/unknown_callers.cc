#include "server/access/unknown_callers.h"

#include "absl/strings/str_cat.h"

namespace semaphored {

namespace {

const char* WhyUnknown(UnknownKind kind) {
  switch (kind) {
    case UnknownKind::kNothing:
      return "it shows neither a token nor a certificate";
    case UnknownKind::kToken:
      return "its token does not stand in the access file";
    case UnknownKind::kMalformed:
      return "its `authorization` is not one bearer token";
    case UnknownKind::kCertificate:
      return "its certificate does not stand in the access file";
    case UnknownKind::kChanged:
      return "what it shows is another identity's now";
    case UnknownKind::kCount:
      break;
  }
  return "";
}

}  // namespace

const char* UnknownKindName(UnknownKind kind) {
  switch (kind) {
    case UnknownKind::kNothing:
      return "nothing";
    case UnknownKind::kToken:
      return "token";
    case UnknownKind::kMalformed:
      return "malformed";
    case UnknownKind::kCertificate:
      return "certificate";
    case UnknownKind::kChanged:
      return "changed";
    case UnknownKind::kCount:
      break;
  }
  return "";
}

std::optional<std::string> UnknownCallers::Add(UnknownKind kind, std::string_view peer,
                                               SteadyTime now) {
  ++counts_[static_cast<size_t>(kind)];
  const std::optional<std::string> more = line_.Again(now);
  if (!more) return std::nullopt;
  return absl::StrCat("a call from ", absl::string_view(peer.data(), peer.size()),
                      " was refused: ", WhyUnknown(kind), *more);
}

}  // namespace semaphored
