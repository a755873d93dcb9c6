#include "adapters/sqlite/request_log.h"

#include <algorithm>
#include <utility>

namespace semaphored::sqlite {
namespace {

// Dead rows are deleted this many at a time, or when they hold this many requests: a delete writes a
// page or two.
constexpr uint64_t kRowsDeletedMin = 64;
constexpr uint64_t kRequestsDeletedMin = 4096;
// The dead may be as many as the living, and this many more.
constexpr uint64_t kDeadAllowed = 8192;

template <typename Requests>
auto PlaceOf(Requests& requests, uint64_t sequence) {
  return std::lower_bound(
      requests.places.begin() + static_cast<std::ptrdiff_t>(requests.begin), requests.places.end(),
      sequence, [](const auto& place, uint64_t wanted) { return place.sequence < wanted; });
}

}  // namespace

const RequestLog::Place* RequestLog::At(const RequestKey& request) const {
  if (!request.one_shot.empty()) {
    const auto one_shot = one_shots_.find(request.one_shot);
    return one_shot == one_shots_.end() ? nullptr : &one_shot->second;
  }
  const auto client = by_client_.find(request.client);
  if (client == by_client_.end()) return nullptr;
  const auto place = PlaceOf(client->second, request.sequence);
  const bool found = place != client->second.places.end() && place->sequence == request.sequence;
  return found ? &*place : nullptr;
}

RequestLog::Place* RequestLog::At(const RequestKey& request) {
  return const_cast<Place*>(std::as_const(*this).At(request));
}

std::optional<uint64_t> RequestLog::Find(const RequestKey& request) const {
  const Place* place = At(request);
  if (place == nullptr || place->removed != 0) return std::nullopt;
  return place->row;
}

std::optional<uint64_t> RequestLog::RowOf(const RequestKey& request) const {
  const Place* place = At(request);
  if (place == nullptr) return std::nullopt;
  return place->row;
}

uint64_t RequestLog::Highest(uint32_t client) const {
  const auto found = by_client_.find(client);
  if (found == by_client_.end() || found->second.places.size() == found->second.begin) return 0;
  return found->second.places.back().sequence;
}

// The last row always stays: its key is how the next start knows where to go on, and clients'
// `since` rests on that.
uint64_t RequestLog::DeadBelow() const {
  uint64_t rows = 0;
  uint64_t requests = 0;
  while (rows + 1 < rows_.size() && rows_[rows].living == 0) requests += rows_[rows++].requests;
  return rows >= kRowsDeletedMin || requests >= kRequestsDeletedMin ? first_row_ + rows : 0;
}

RequestLog::Range RequestLog::RowsToMove(uint64_t requests_max) const {
  Range range{first_row_, first_row_};
  if (written_ <= 2 * living_ + kDeadAllowed) return range;
  uint64_t requests = 0;
  for (size_t i = 0; i + 1 < rows_.size(); ++i) {
    requests += rows_[i].living;
    if (i > 0 && requests > requests_max) break;
    range.last = first_row_ + i + 1;
    if (i + 1 == kRowsDeletedMin) break;
  }
  return range;
}

void RequestLog::BeginRow(uint64_t row) {
  if (rows_.empty()) first_row_ = row;
  rows_.emplace_back();
}

void RequestLog::Put(const RequestKey& request, bool pinned, bool removed) {
  const uint64_t row = next_row() - 1;
  rows_.back().requests++;
  rows_.back().living++;
  ++written_;
  ++living_;
  if (!request.one_shot.empty()) {
    const auto [at, is_new] = one_shots_.try_emplace(request.one_shot);
    if (!is_new) Drop(at->second);
    at->second = {0, row, pinned, removed};
    return;
  }
  Requests& requests = by_client_[request.client];
  const auto place = PlaceOf(requests, request.sequence);
  if (place != requests.places.end() && place->sequence == request.sequence) {
    Drop(*place);
    *place = Place{request.sequence, row, pinned, removed};
  } else {
    requests.places.insert(place, Place{request.sequence, row, pinned, removed});
  }
}

void RequestLog::AddDead() {
  rows_.back().requests++;
  ++written_;
}

void RequestLog::AddRemoval(const RequestKey& request) {
  if (request.one_shot.empty()) return Put(request, /*pinned=*/false, /*removed=*/true);
  AddDead();
  const auto place = one_shots_.find(request.one_shot);
  if (place == one_shots_.end()) return;
  Drop(place->second);
  one_shots_.erase(place);
}

void RequestLog::Move(const RequestKey& request) {
  const Place* place = At(request);
  if (place != nullptr) Put(request, place->pinned != 0, place->removed != 0);
}

void RequestLog::Unpin(const RequestKey& request) {
  if (Place* place = At(request)) place->pinned = 0;
}

bool RequestLog::IsPinned(const RequestKey& request) const {
  const Place* place = At(request);
  return place != nullptr && place->pinned != 0;
}

void RequestLog::CutBelow(uint64_t row) {
  while (first_row_ < row && !rows_.empty()) {
    written_ -= rows_.front().requests;
    rows_.pop_front();
    ++first_row_;
  }
}

void RequestLog::RaiseFloor(uint32_t client, uint64_t below) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  Requests& requests = found->second;
  const auto first = requests.places.begin() + static_cast<std::ptrdiff_t>(requests.begin);
  // The pinned ones move up to those that stay.
  auto kept = PlaceOf(requests, below);
  for (auto at = kept; at != first;) {
    --at;
    if (at->pinned != 0) {
      *--kept = *at;
    } else {
      Drop(*at);
    }
  }
  requests.begin = static_cast<size_t>(kept - requests.places.begin());
  Tidy(client, &requests);
}

void RequestLog::Tidy(uint32_t client, Requests* requests) {
  constexpr size_t kForgottenMin = 16;
  if (requests->begin == requests->places.size()) {
    by_client_.erase(client);
  } else if (requests->begin > kForgottenMin && requests->begin * 2 > requests->places.size()) {
    requests->places.erase(requests->places.begin(),
                           requests->places.begin() + static_cast<std::ptrdiff_t>(requests->begin));
    requests->begin = 0;
  }
}

void RequestLog::Forget(uint32_t client) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  Requests& requests = found->second;
  while (requests.begin < requests.places.size()) Drop(requests.places[requests.begin++]);
  by_client_.erase(found);
}

void RequestLog::Drop(const Place& place) {
  RowAt(place.row).living--;
  --living_;
}

}  // namespace semaphored::sqlite
