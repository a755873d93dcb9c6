// Memory that can be put back as it was. What is allocated in it keeps its address, so that a copy of its
// bytes is a copy of all objects in it, with whatever they point to.
#pragma once

#include <cstddef>
#include <string>

namespace semaphored::worlds {

// Used by one thread; one at a time.
class Arena {
 public:
  Arena();
  // What is still in it is not destroyed.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // While it lives, all that this thread allocates with `new` comes from the arena. What is deleted goes
  // back to where it came from, inside and outside.
  //
  // What is allocated inside and used after Restore is lost. So a static object that is first used inside must
  // not allocate: those of the ledger are empty. Ends the process when the arena is full.
  class Inside {
   public:
    explicit Inside(Arena* arena);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Arena* const before_;
  };

  // REQUIRES of both: not inside.
  void Save(std::string* snapshot) const;
  // The arena is as it was when `snapshot` was saved from it.
  void Restore(const std::string& snapshot);

  // For operator new and operator delete.
  void* Allocate(size_t bytes);
  bool Has(const void* memory) const;
  void Free(void* memory);

 private:
  struct Block;
  struct Head;  // At the beginning of the arena, so that it is saved with all else.

  char* const begin_;
  Head* const head_;
};

}  // namespace semaphored::worlds
