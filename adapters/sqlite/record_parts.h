// What the readers of records share. Included by the records' own files only.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/sqlite/codec.h"

namespace semaphored::sqlite {

inline absl::Status Damaged(absl::string_view what, uint64_t key) {
  return absl::DataLossError(absl::StrCat("the record of ", what, " ", key, " is damaged"));
}

// All has been read, and nothing more was there.
inline bool Whole(const ByteReader& in) { return in.ok() && in.at_end(); }

}  // namespace semaphored::sqlite
