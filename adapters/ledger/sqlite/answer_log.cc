#include "adapters/ledger/sqlite/answer_log.h"

#include <algorithm>

namespace semaphored::sqlite {
namespace {

// Dead rows are deleted this many at a time, or when they hold this many answers: a delete writes a
// page or two.
constexpr uint64_t kRowsDeletedMin = 64;
constexpr uint64_t kAnswersDeletedMin = 4096;
// The dead may be as many as the living, and this many more.
constexpr uint64_t kDeadAllowed = 8192;

template <typename Places>
auto PlaceOf(Places& answers, uint64_t sequence) {
  return std::lower_bound(
      answers.places.begin() + static_cast<std::ptrdiff_t>(answers.begin), answers.places.end(),
      sequence, [](const auto& place, uint64_t wanted) { return place.sequence < wanted; });
}

}  // namespace

std::optional<uint64_t> AnswerLog::Find(const RequestKey& request) const {
  const auto client = by_client_.find(request.client);
  if (client == by_client_.end()) return std::nullopt;
  const auto place = PlaceOf(client->second, request.sequence);
  if (place == client->second.places.end() || place->sequence != request.sequence)
    return std::nullopt;
  return place->row;
}

uint64_t AnswerLog::Highest(uint32_t client) const {
  const auto found = by_client_.find(client);
  if (found == by_client_.end() || found->second.places.size() == found->second.begin) return 0;
  return found->second.places.back().sequence;
}

// The last row always stays: its key is how the next start knows where to go on, and clients'
// `since` rests on that.
uint64_t AnswerLog::DeadBelow() const {
  uint64_t rows = 0;
  uint64_t answers = 0;
  while (rows + 1 < rows_.size() && rows_[rows].living == 0) answers += rows_[rows++].answers;
  return rows >= kRowsDeletedMin || answers >= kAnswersDeletedMin ? first_row_ + rows : 0;
}

AnswerLog::Range AnswerLog::RowsToMove(uint64_t answers_max) const {
  Range range{first_row_, first_row_};
  if (answers_ <= 2 * living_ + kDeadAllowed) return range;
  uint64_t answers = 0;
  for (size_t i = 0; i + 1 < rows_.size(); ++i) {
    answers += rows_[i].living;
    if (i > 0 && answers > answers_max) break;
    range.last = first_row_ + i + 1;
    if (i + 1 == kRowsDeletedMin) break;
  }
  return range;
}

void AnswerLog::BeginRow(uint64_t row) {
  if (rows_.empty()) first_row_ = row;
  rows_.emplace_back();
}

void AnswerLog::Add(const RequestKey& request) {
  const uint64_t row = next_row() - 1;
  rows_.back().answers++;
  rows_.back().living++;
  ++answers_;
  ++living_;
  Answers& answers = by_client_[request.client];
  const auto place = PlaceOf(answers, request.sequence);
  if (place != answers.places.end() && place->sequence == request.sequence) {
    Drop(*place);
    place->row = row;
  } else {
    answers.places.insert(place, Place{request.sequence, row});
  }
}

void AnswerLog::AddDead() {
  rows_.back().answers++;
  ++answers_;
}

void AnswerLog::CutBelow(uint64_t row) {
  while (first_row_ < row && !rows_.empty()) {
    answers_ -= rows_.front().answers;
    rows_.pop_front();
    ++first_row_;
  }
}

void AnswerLog::RaiseFloor(uint32_t client, uint64_t below) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  Answers& answers = found->second;
  while (answers.begin < answers.places.size() && answers.places[answers.begin].sequence < below) {
    Drop(answers.places[answers.begin++]);
  }
  if (answers.begin == answers.places.size()) {
    by_client_.erase(found);
  } else if (answers.begin > 16 && answers.begin * 2 > answers.places.size()) {
    answers.places.erase(answers.places.begin(),
                         answers.places.begin() + static_cast<std::ptrdiff_t>(answers.begin));
    answers.begin = 0;
  }
}

void AnswerLog::Forget(uint32_t client) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  Answers& answers = found->second;
  while (answers.begin < answers.places.size()) Drop(answers.places[answers.begin++]);
  by_client_.erase(found);
}

void AnswerLog::Drop(const Place& place) {
  RowAt(place.row).living--;
  --living_;
}

}  // namespace semaphored::sqlite
