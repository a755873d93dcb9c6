// A long queue: the waiters who are last stand on pages, which are written once. Every commit that
// changes one of them writes the document, so that its index is the condition for all.
#include <algorithm>
#include <utility>

#include "adapters/consul/commit.h"
#include "adapters/consul/format.h"

namespace semaphored::consul {

namespace {

// In the document itself, which is written with each commit.
constexpr size_t kWaitersInDocument = Page::kWaiters + 1;
// A revision gives so many numbers for pages.
constexpr int kNumberBits = 4;

}  // namespace

void ConsulStore::Writer::WritePages(Planned* planned) {
  Document& document = planned->folder.document;
  const Keys& keys = store_->keys_;
  const std::string& name = planned->folder.name;
  std::erase_if(document.pages, [&](const auto& each) {
    if (!each.second.empty() || !TakeRoom()) return false;
    request_.Delete(keys.Page(name, each.first));
    return true;
  });
  // A semaphore has its revision when it has been made.
  const bool fills = transaction_ != nullptr && !planned->is_new;
  uint64_t number = (document.row.revision + 1) << kNumberBits;
  const uint64_t end = number + (uint64_t{1} << kNumberBits);
  // Without room the document grows meanwhile.
  while (fills && document.waiters.size() >= kWaitersInDocument && number < end && TakeRoom()) {
    std::vector<WaiterPtr> last;
    last.reserve(document.waiters.size());
    for (const auto& [id, waiter] : document.waiters) last.push_back(waiter);
    std::ranges::nth_element(last, last.begin() + Page::kWaiters - 1,
                             [](const WaiterPtr& a, const WaiterPtr& b) {
                               return ledger::PlaceOf(*b) < ledger::PlaceOf(*a);
                             });
    last.resize(Page::kWaiters);
    for (const WaiterPtr& waiter : last) document.waiters.erase(waiter->id);
    request_.Set(keys.Page(name, number), WritePage(last, store_->name_of_));
    document.pages[number++].waiters = std::move(last);
  }
  Own(About::kSemaphore, name);
}

}  // namespace semaphored::consul
