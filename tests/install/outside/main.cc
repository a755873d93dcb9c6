// What somebody else's program looks like: takes one of two permits, looks at it, gives it back.
#include <semaphore/client.h>
#include <semaphore/v1/semaphore.grpc.pb.h>

#include <cstdio>
#include <semaphore>  // The folder of the same name must not hide the standard header.

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::counting_semaphore<1> standard(1);
  standard.acquire();
  semaphore::v1::Lease generated;
  generated.set_lease_id("the generated messages are installed too");

  auto client = semaphore::Client::Create({.endpoints = {argv[1]}});
  if (!client.ok()) {
    std::fprintf(stderr, "create: %s\n", client.status().ToString().c_str());
    return 1;
  }
  auto permit = (*client)->Acquire("outside/check", {.limit = 2});
  if (!permit.ok()) {
    std::fprintf(stderr, "acquire: %s\n", permit.status().ToString().c_str());
    return 1;
  }
  std::printf("slot %u, token %llu\n", permit->slots()[0],
              static_cast<unsigned long long>(permit->token()));
  if (permit->slots()[0] != 1 || permit->token() == 0 || !permit->held()) return 1;
  const absl::Status released = permit->Release();
  if (!released.ok()) std::fprintf(stderr, "release: %s\n", released.ToString().c_str());
  return released.ok() ? 0 : 1;
}
