// A semaphore as it stands in Consul: our document, the record that foreign clients share, and who
// contends. Read in one transaction, so it is one moment's truth.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/consul/format.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/lock_record.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/ledger/store.h"

namespace semaphored::consul {

struct StoredTicket {
  TicketPtr ticket;
  uint64_t index = 0;  // Of its key.
};

struct Folder {
  std::string name;
  Document document;            // If has_document.
  uint64_t document_index = 0;  // 0: there is none.
  LockRecord record;            // If has_record and it is understood.
  std::string record_value;     // As it was read or written.
  uint64_t record_index = 0;    // 0: there is none.
  uint64_t record_made = 0;
  bool record_understood = true;  // Or there is none.
  // Foreign sessions that have an entry with a session here, and are thus alive, with the index at
  // which it was made.
  std::map<std::string, uint64_t> contenders;
  // Keys of contenders that have no session any more, with the indices at which they stand.
  std::map<std::string, uint64_t> dead_contenders;
  // Places of the document whose entries are gone: a person or a program has ended the session.
  std::set<std::string> lost_places;
  // As their keys have them; some readings leave them out.
  absl::flat_hash_map<Id, StoredTicket> tickets;
  std::vector<std::string> garbled_tickets;  // Keys that are not understood.
  // OK: the document is understood, or there is none. Otherwise nothing else in here counts.
  absl::Status damage;
  // The document is understood, and its tickets are not those that it speaks of: that is damage too
  // (folder_tickets.h).
  bool tickets_damaged = false;
  // The store's number of the reading that last found record, contenders and document like this. 0: none.
  uint64_t reading = 0;
  // Why nothing can be granted; OK: it can. FindTrouble sets it.
  absl::Status trouble;

  bool has_document() const { return document_index != 0; }
  bool has_record() const { return record_index != 0; }
  // 0: there is no such semaphore.
  uint64_t revision() const;
  // The record may be written: what stands there is ours to change, or agrees with this limit.
  bool MayWriteRecord(uint32_t limit) const {
    return record_understood && (trouble.ok() || record.limit == limit);
  }
  // After a change of the record, the limit or the contenders. `record_status`: how the record was
  // understood.
  void FindTrouble(const absl::Status& record_status);
  // Those of them that hold a permit.
  std::set<std::string> ForeignHolders() const;
  // What the record is to be while we hold `held` permits under this limit. REQUIRES: as many
  // places.
  LockRecord WantedRecord(uint32_t limit, uint32_t held) const;
  // For room that foreign clients may make. Offers are served by room only while there are tickets.
  bool WaitsForRoom() const;
  // The record, or our places, are not as they should be, and can be mended.
  bool NeedsMending() const;
  // What people or other clients have done to the permits that we hold, for the log. Empty:
  // nothing; what needs mending is what dead clients have left. REQUIRES: NeedsMending().
  std::string WhatWasDone() const;
};

// `entries`: those under Keys::Folder, Keys::Document, Keys::Pages and Keys::Tickets of this name;
// others are passed over. `known`: as it was before, or nullptr; what has not changed is not read
// again.
Folder ReadFolder(const Keys& keys, const std::string& name, absl::Span<const Entry> entries,
                  const Folder* known, const ClientNumber& client_number);

// The same but for the document: no foreign client has come or gone, and no place was lost. Entries
// of `now` may have been read without the document.
bool SameOutside(const Folder& before, const Folder& now);

// As the ledger sees it: foreign holders are leases, and those who contend without holding are
// waiters, in the order in which they came, as far as it is known of ours. REQUIRES: revision() is
// not 0.
ledger::LoadedSemaphore ToLoaded(const Folder& folder);

}  // namespace semaphored::consul
