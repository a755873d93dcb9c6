// The calls of the standard services under way. They need no token, so they have a bound of their own, beyond which
// the connection with most of them loses them: a new one is always served.
#pragma once

#include <cstddef>
#include <list>
#include <string>

#include "adapters/common/rare_line.h"
#include "server/base/clock.h"

namespace semaphored {

// On the reactor's thread.
class StandardCalls {
 public:
  // One of them.
  class Member {
   public:
    // It is to end now, and no longer among them.
    virtual void OnTooMany() = 0;
    // Which calls are of one connection.
    virtual std::string Connection() const = 0;

   protected:
    ~Member() = default;

   private:
    friend class StandardCalls;
    bool listed_ = false;
    std::list<Member*>::iterator place_;
  };

  // While there are more than `most`, the connection that has most loses its own; this call may be one of these.
  void Add(Member* call, SteadyTime now, size_t most);
  // Without effect if it is none of them.
  void Remove(Member* call);
  size_t size() const { return calls_.size(); }

 private:
  void CutOffTheMost(SteadyTime now, size_t most);

  std::list<Member*> calls_;  // The oldest first.
  RareLine line_;
};

}  // namespace semaphored
