#include "adapters/watched_names.h"

#include <algorithm>
#include <mutex>

namespace semaphored {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

WatchedNames::Watch& WatchedNames::Watch::operator=(Watch&& other) noexcept {
  if (names_ != nullptr) names_->Remove(id_);
  names_ = std::move(other.names_);
  id_ = std::exchange(other.id_, 0);
  return *this;
}

WatchedNames::Watch::~Watch() {
  if (names_ != nullptr) names_->Remove(id_);
}

std::shared_ptr<WatchedNames> WatchedNames::Make() { return std::make_shared<WatchedNames>(); }

WatchedNames::Watch WatchedNames::Add(std::string prefix, std::string name) {
  const bool whole = !name.empty();
  std::string text = std::move(whole ? name : prefix);
  const std::unique_lock lock(mutex_);
  const uint64_t id = ++last_id_;
  const auto [place, is_new] = (whole ? by_name_ : by_prefix_).try_emplace(text);
  place->second.insert(id);
  if (!whole && is_new) ++prefixes_by_size_[text.size()];
  entries_[id] = {whole, std::move(text)};
  count_ = entries_.size();
  return {shared_from_this(), id};
}

void WatchedNames::Remove(uint64_t id) {
  const std::unique_lock lock(mutex_);
  const auto entry = entries_.find(id);
  Index& index = entry->second.whole ? by_name_ : by_prefix_;
  const auto place = index.find(entry->second.text);
  place->second.erase(id);
  if (place->second.empty()) {
    const auto size = prefixes_by_size_.find(place->first.size());
    if (!entry->second.whole && --size->second == 0) prefixes_by_size_.erase(size);
    index.erase(place);
  }
  entries_.erase(entry);
  count_ = entries_.size();
}

template <typename Found>
void WatchedNames::Look(std::string_view name, Found found) const {
  if (count_ == 0) return;
  const std::shared_lock lock(mutex_);
  if (const auto place = by_name_.find(View(name)); place != by_name_.end() && found(place->second))
    return;
  for (const auto& [size, count] : prefixes_by_size_) {
    if (size > name.size()) return;
    const auto place = by_prefix_.find(View(name.substr(0, size)));
    if (place != by_prefix_.end() && found(place->second)) return;
  }
}

bool WatchedNames::Matches(std::string_view name) const {
  bool matches = false;
  Look(name, [&](const auto&) { return matches = true; });
  return matches;
}

std::vector<uint64_t> WatchedNames::MatchesOf(std::string_view name) const {
  std::vector<uint64_t> ids;
  Look(name, [&](const absl::btree_set<uint64_t>& more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return false;
  });
  std::ranges::sort(ids);
  return ids;
}

}  // namespace semaphored
