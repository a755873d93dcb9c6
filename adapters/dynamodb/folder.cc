#include "adapters/dynamodb/folder.h"

#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/random.h"

namespace semaphored::dynamodb {
namespace {

// Until all that is read of a semaphore is of one moment.
constexpr int kReadingsMax = 14;
// From this reading on the writers of a semaphore that has changed meanwhile are made to pause.
constexpr int kReadingsBeforePause = 3;
constexpr std::chrono::milliseconds kPauseStep{5};

absl::Status NotOfOneMoment(const std::string& name) {
  return absl::UnavailableError(
      absl::StrCat("dynamodb: ", name, " changes faster than it can be read"));
}

absl::Status ByHand(const std::string& name) {
  return absl::DataLossError(absl::StrCat(
      "dynamodb: ", name, ": its leases, waiters and tickets are not those that its HEAD has ",
      "counted: items were changed by hand. See what stands there, then: semctl prune ", name));
}

}  // namespace

Folder FolderReader::ReadOne(const std::string& name, const std::vector<json>& items) {
  Folder folder;
  folder.name = name;
  uint64_t digest = 0;
  try {
    for (const json& item : items) {
      const std::string sort = KeyOf(item).sort;
      if (sort == kHead) {
        folder.head = ReadHead(name, item);
        folder.exists = true;
      } else if (absl::StartsWith(sort, kLeases)) {
        folder.leases.push_back(ReadLease(item, number_of_client_));
        digest ^= DigestOf(*folder.leases.back(), folder.leases.back()->token);
      } else if (absl::StartsWith(sort, kQueue) && IsTicket(item)) {
        folder.tickets.push_back(ReadTicket(item));
        digest ^= DigestOf(*folder.tickets.back());
      } else if (absl::StartsWith(sort, kQueue) || absl::StartsWith(sort, kOffers)) {
        folder.waiters.push_back(ReadWaiter(item, number_of_client_));
        digest ^= DigestOf(*folder.waiters.back());
      }
    }
  } catch (const std::exception& why) {
    folder.damage = absl::DataLossError(
        absl::StrCat("dynamodb: an item of ", name, " is not understood: ", why.what()));
    return folder;
  }
  folder.is_moment = digest == folder.head.digest && (folder.exists || items.empty());
  for (const LeasePtr& lease : folder.leases)
    lease->longest_hold_ms = folder.head.row.settings.longest_hold_ms;
  return folder;
}

absl::StatusOr<std::vector<Folder>> FolderReader::Read(const std::vector<std::string>& names) {
  std::vector<Folder> folders(names.size());
  std::vector<size_t> open(names.size());
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  std::map<size_t, uint64_t> revisions;  // With which they were found not to be of one moment.
  std::map<size_t, uint64_t> last;       // By the last reading of each that is not of one moment.
  for (int reading = 1;; ++reading) {
    std::vector<Range> ranges;
    for (const size_t i : open) ranges.emplace_back().partition = PartitionOf(names[i]);
    const auto items = QueryAll(client_, table_, std::move(ranges), Deadline());
    if (!items.ok()) return items.status();
    std::vector<size_t> more;
    for (size_t at = 0; at < open.size(); ++at) {
      const size_t i = open[at];
      folders[i] = ReadOne(names[i], (*items)[at]);
      if (!folders[i].damage.ok() || folders[i].is_moment) continue;
      const uint64_t revision = folders[i].head.row.revision;
      const bool stands_still = revisions.contains(i) && revisions[i] == revision;
      const auto before = last.find(i);
      if (reading >= kReadingsBeforePause && before != last.end() && before->second != revision) {
        last[i] = MakeWritersPause(names[i]);
      } else {
        last[i] = revision;
      }
      if (reading < kReadingsMax) {
        if (reading > kReadingsMax / 2 - 1) revisions.try_emplace(i, revision);
        more.push_back(i);
      } else if (stands_still) {
        folders[i].damage = ByHand(names[i]);
      } else {
        // The others that were read with it are not to suffer for it.
        folders[i].damage = NotOfOneMoment(names[i]);
      }
    }
    if (more.empty()) return folders;
    open = std::move(more);
    std::this_thread::sleep_for(Skewed(kPauseStep * reading));
  }
}

// Raises the revision and nothing else: the commits of others that are under way are lost, and these read the
// semaphore before they try again, while this one reads it too. Returns the revision; 0: it was not raised.
uint64_t FolderReader::MakeWritersPause(const std::string& name) {
  Change change;
  change.add.emplace_back("revision", 1);
  const Reply reply =
      client_->Repeat(UpdateItem(table_, HeadKey(name), change, Condition::Present()), Deadline());
  if (!reply.answered()) return 0;
  try {
    return NumberIn(reply.body.at("Attributes"), "revision");
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace semaphored::dynamodb
