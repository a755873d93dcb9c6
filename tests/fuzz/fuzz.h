// What the fuzz targets share. Each target is one file <name>_fuzz.cc with LLVMFuzzerTestOneInput,
// and has its corpus in corpus/<name>/. Under clang the target searches with libFuzzer; elsewhere
// it only replays the files it is given (replay_main.cc), so that the corpora run in every test
// command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Stays when assertions are compiled out. The message is the broken promise itself.
#define FUZZ_CHECK(promise)                                                      \
  do {                                                                           \
    if (!(promise)) {                                                            \
      std::fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #promise); \
      std::abort();                                                              \
    }                                                                            \
  } while (false)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
