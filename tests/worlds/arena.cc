#include "tests/worlds/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace semaphored::worlds {
namespace {

// Reserved; only what is used is memory.
constexpr size_t kBytes = size_t{64} << 20;
constexpr size_t kUnit = 16;
constexpr size_t kSmallClasses = 64;  // Of 16, 32, … 1024 bytes; above that powers of two.
constexpr size_t kClasses = kSmallClasses + 32;

size_t ClassOf(size_t bytes) {
  const size_t units = (bytes + kUnit - 1) / kUnit;
  if (units <= kSmallClasses) return units == 0 ? 0 : units - 1;
  return kSmallClasses + static_cast<size_t>(std::bit_width(units - 1)) - 7;
}

size_t BytesOf(size_t size_class) {
  if (size_class < kSmallClasses) return (size_class + 1) * kUnit;
  return (kUnit * kSmallClasses * 2) << (size_class - kSmallClasses);
}

[[noreturn]] void Stop(const char* why) {
  std::fputs(why, stderr);
  std::abort();
}

thread_local Arena* inside = nullptr;
// What is deleted anywhere is looked for there.
Arena* the_arena = nullptr;

}  // namespace

// What is before each piece of memory.
struct Arena::Block {
  // Of one that is in use: its class. Of one that is free: the next free one of its class.
  union {
    uint64_t size_class;
    Block* next;
  };
  uint64_t unused;  // What follows has the alignment of any object.
};

struct Arena::Head {
  static_assert(sizeof(Block) == kUnit);

  char* top;
  Block* free[kClasses];
};

Arena::Arena()
    : begin_(static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
      head_(reinterpret_cast<Head*>(begin_)) {
  if (begin_ == MAP_FAILED) Stop("an arena cannot be reserved\n");
  if (the_arena != nullptr) Stop("there is an arena already\n");
  the_arena = this;
  head_->top = begin_ + (sizeof(Head) + kUnit - 1) / kUnit * kUnit;
}

Arena::~Arena() {
  the_arena = nullptr;
  munmap(begin_, kBytes);
}

Arena::Inside::Inside(Arena* arena) : before_(inside) { inside = arena; }
Arena::Inside::~Inside() { inside = before_; }

void Arena::Save(std::string* snapshot) const {
  snapshot->assign(begin_, static_cast<size_t>(head_->top - begin_));
}

void Arena::Restore(const std::string& snapshot) {
  std::memcpy(begin_, snapshot.data(), snapshot.size());
}

void* Arena::Allocate(size_t bytes) {
  const size_t size_class = ClassOf(bytes);
  Block*& free = head_->free[size_class];
  Block* block = free;
  if (block != nullptr) {
    free = block->next;
  } else {
    const size_t size = sizeof(Block) + BytesOf(size_class);
    if (static_cast<size_t>(begin_ + kBytes - head_->top) < size) Stop("an arena is full\n");
    block = reinterpret_cast<Block*>(head_->top);
    head_->top += size;
  }
  block->size_class = size_class;
  return block + 1;
}

bool Arena::Has(const void* memory) const { return memory >= begin_ && memory < begin_ + kBytes; }

void Arena::Free(void* memory) {
  Block* block = static_cast<Block*>(memory) - 1;
  Block*& free = head_->free[block->size_class];
  block->next = free;
  free = block;
}

}  // namespace semaphored::worlds

// ---- what replaces the program's own ----

namespace {

void* New(size_t bytes) {
  if (semaphored::worlds::inside != nullptr) return semaphored::worlds::inside->Allocate(bytes);
  void* memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Delete(void* memory) noexcept {
  using semaphored::worlds::the_arena;
  if (the_arena != nullptr && the_arena->Has(memory)) return the_arena->Free(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return New(bytes); }
void* operator new[](size_t bytes) { return New(bytes); }
void operator delete(void* memory) noexcept { Delete(memory); }
void operator delete[](void* memory) noexcept { Delete(memory); }
void operator delete(void* memory, size_t) noexcept { Delete(memory); }
void operator delete[](void* memory, size_t) noexcept { Delete(memory); }
