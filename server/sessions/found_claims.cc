#include "server/sessions/found_claims.h"

#include <algorithm>

namespace semaphored {
namespace {

using State = ClaimRecord::State;

}  // namespace

// What ended while the session was hosted elsewhere. What was asked for stays, though it may have
// been answered meanwhile: its semaphore's lane is not the one that told `claims`, and may be ahead
// of it.
void FoundClaims::DropOthers(SessionRecord* record, const absl::btree_set<Id>& known,
                             const Adoptions::Changes& changes,
                             const std::vector<ClaimInfo>& claims) {
  absl::btree_set<Id> stand;
  for (const ClaimInfo& info : claims) stand.insert(RowOf(info).id);
  for (const Id& id : known) {
    if (stand.contains(id)) continue;
    // The claim left the session meanwhile. If its record is here, the claim has come back.
    if (changes.HasLeft(id)) continue;
    ClaimRecord* claim = parts_.claims->Find(id);
    if (claim != nullptr && claim->session == record) parts_.ends->Drop(claim);
  }
}

void FoundClaims::Add(SessionRecord* record, const std::vector<ClaimInfo>& claims) {
  for (const ClaimInfo& info : claims) {
    const Claim& row = RowOf(info);
    const Id id = row.id;
    ClaimRecord* claim = parts_.claims->Find(id);
    const bool known = claim != nullptr;
    // It has moved to another session since.
    if (known && claim->session != record) continue;
    // Its semaphore's lane reported the grant before the session's lane reported the wait.
    if (known && claim->has_lease() && !info.lease) continue;
    const bool moves = info.lease && info.lease->moved_from != 0;
    // The lane has granted it since: the move is over.
    if (known && moves && claim->state == State::kHeld && claim->life.epoch >= row.epoch) continue;
    if (!known) claim = parts_.claims->Add(id, info.semaphore, record);
    claim->remembered = true;
    // This daemon knows when this move is over.
    const bool same_move = moves && claim->move != nullptr && claim->life.epoch == row.epoch;
    if (!same_move) parts_.moves->End(claim);
    claim->life.epoch = std::max(claim->life.epoch, row.epoch);
    claim->lease = info.lease;
    claim->offers = info.lease ? !info.lease->ticket.empty() : info.waiter->works;
    claim->ticket = info.ticket;
    claim->state = !info.lease ? State::kWaiting : moves ? State::kMoving : State::kHeld;
    if (moves && !same_move)
      parts_.grants->BecomeMoving(claim, info.lease, parts_.vouching->MoveOverAt(*info.lease));
    parts_.grants->Found(claim);
    if (record->charge != nullptr) Grants::ChargeTenant(claim, record->charge->tenant());
    parts_.recalls->Arm(claim);
    if (!known && info.lease) parts_.recalls->ArmLongestHold(*claim);
  }
  parts_.vouching->Bound(record);
}

}  // namespace semaphored
