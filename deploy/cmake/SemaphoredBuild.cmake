# What every target of this project has in common, and the two helpers that declare them.

# Sets language, warnings, sanitizers, ccache and output folders for the whole tree.
macro(semaphored_common_settings)
  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_CXX_EXTENSIONS OFF)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_THREAD_PREFER_PTHREAD ON)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC looks for garbage from 128 MB on, which takes a twelfth of the build; a file of ours needs up to 800 MB anyway.
    add_compile_options(--param=ggc-min-heapsize=300000)
  endif()
  # Line tables are enough for a profile and a backtrace, and a third of the size of -g.
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -fno-omit-frame-pointer -DNDEBUG")
  set(CMAKE_C_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")
  if(SEMAPHORED_SANITIZE)
    # A finding is a backtrace: line tables are enough. Optimizing would double the time of the build, which is longer
    # than that of the tests.
    set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1 -fno-omit-frame-pointer")
  endif()
  set(CMAKE_C_FLAGS_DEBUG "${CMAKE_CXX_FLAGS_DEBUG}")

  set(semaphored_bin_dir ${PROJECT_BINARY_DIR}/bin)

  if(SEMAPHORED_SANITIZE)
    add_compile_options(-fsanitize=${SEMAPHORED_SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${SEMAPHORED_SANITIZE})
    if(SEMAPHORED_SANITIZE MATCHES undefined)
      # Checks of each access, which take 40 % of the compilation and find least: a null pointer ends the process anyway, and
      # what a pointer to an object that has ended does AddressSanitizer sees.
      add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
    endif()
  endif()
  if(SEMAPHORED_LIBFUZZER)
    # Coverage for the fuzzer to steer by; only the fuzz targets link the fuzzer itself.
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()

  # ccache keeps a precompiled header's users only if it may trust the header's own time stamps.
  find_program(SEMAPHORED_CCACHE ccache)
  if(SEMAPHORED_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        ${SEMAPHORED_CCACHE})
    set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
    endif()
  endif()
endmacro()

# The rules for code that is ours: warnings, and includes by path from the root.
function(semaphored_own_code target)
  target_compile_options(${target} PRIVATE -Wall -Wextra
    $<$<BOOL:${SEMAPHORED_WERROR}>:-Werror>
    # GCC 12 sees an overlap in its own std::string when it inlines the assignment of a literal (its bug 105651).
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict>)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
endfunction()

# semaphored_library(name DIRS folder... [LINK library...]): a static library of all *.cc in the folders.
# Without sources there is no target, and a list file that checks `if(TARGET name)` leaves out what needs it.
function(semaphored_library target)
  cmake_parse_arguments(ARG "" "" "DIRS;LINK" ${ARGN})
  set(sources)
  foreach(dir IN LISTS ARG_DIRS)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cc)
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  if(NOT sources)
    message(STATUS "${target}: no sources, left out")
    return()
  endif()
  add_library(${target} STATIC ${sources})
  semaphored_own_code(${target})
  target_link_libraries(${target} PUBLIC ${ARG_LINK})
endfunction()

# semaphored_program(name SOURCES file... LINK library...): a program for people, into <build>/bin.
function(semaphored_program target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  foreach(library IN LISTS ARG_LINK)
    if(library MATCHES "^semaphore" AND NOT TARGET ${library})
      message(STATUS "${target}: ${library} is absent, left out")
      return()
    endif()
  endforeach()
  if(NOT ARG_SOURCES)
    message(STATUS "${target}: no sources, left out")
    return()
  endif()
  add_executable(${target} ${ARG_SOURCES})
  semaphored_own_code(${target})
  target_link_libraries(${target} PRIVATE ${ARG_LINK})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${semaphored_bin_dir})
endfunction()

# Lets targets use the precompiled header of another one, which has what most of their files include.
function(semaphored_reuse_pch from)
  foreach(target IN LISTS ARGN)
    if(TARGET ${target})
      target_precompile_headers(${target} REUSE_FROM ${from})
      # The header was made with -fPIC; a program's own -fPIE would not fit it.
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC ${semaphored_pch_options})
    endif()
  endforeach()
endfunction()

# With a precompiled header GCC 12 warns of overflows in its own std::string.
set(semaphored_pch_options
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")

# Lets a target read what nearly all of its files include only once: a third of its compilation with GCC. Further
# arguments are headers of its own, in <>. Each file pays for all of them, so the best choice is measured: a header in
# which much is inline takes as long to load as to read. What a file needs it includes all the same, as clang-tidy is
# run without.
function(semaphored_use_pch target)
  if(NOT TARGET ${target})
    return()
  endif()
  target_compile_options(${target} PRIVATE ${semaphored_pch_options})
  target_precompile_headers(${target} PRIVATE
    <algorithm> <chrono> <functional> <map> <memory> <optional> <string> <utility> <variant> <vector>
    <absl/container/btree_map.h> <absl/container/btree_set.h> <absl/container/flat_hash_map.h>
    <absl/container/flat_hash_set.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
    <absl/types/span.h> ${ARGN})
endfunction()

# The same for a test program, which the compiler does not optimize: that takes less time than it saves. A program that
# computes for long says OPTIMIZED.
function(semaphored_use_test_pch target)
  cmake_parse_arguments(ARG "OPTIMIZED" "" "" ${ARGN})
  if(NOT TARGET ${target})
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT ARG_OPTIMIZED)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  semaphored_use_pch(${target} <catch2/catch_test_macros.hpp> ${ARG_UNPARSED_ARGUMENTS})
endfunction()
