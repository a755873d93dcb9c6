# semaphored_test_program(name SOURCES file... LINK library...): a Catch2 program, if there are sources
# and all of the libraries that it needs.
function(semaphored_test_program target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_SOURCES)
    message(STATUS "${target}: no sources, left out")
    return()
  endif()
  foreach(library IN LISTS ARG_LINK)
    if(library MATCHES "^semaphore" AND NOT TARGET ${library})
      message(STATUS "${target}: ${library} is absent, left out")
      return()
    endif()
  endforeach()
  add_executable(${target} ${ARG_SOURCES})
  semaphored_own_code(${target})
  target_link_libraries(${target} PRIVATE ${ARG_LINK} Catch2::Catch2WithMain)
  # Eight files as one: most of a test's compilation is what its headers instantiate. What the files define for
  # themselves must differ in name, also in unnamed namespaces.
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SEMAPHORED_JOIN_TESTS} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# semaphored_discover(name label timeout_s [property value]...): one ctest entry for each case of the program.
function(semaphored_discover target label timeout_s)
  if(TARGET ${target})
    catch_discover_tests(${target} TEST_PREFIX "${label}: " DISCOVERY_MODE PRE_TEST
      PROPERTIES LABELS ${label} TIMEOUT ${timeout_s} ${ARGN})
  endif()
endfunction()

# semaphored_group(name program spec [fixture...]): under a sanitizer, one ctest entry for all cases that Catch2's
# `spec` selects, with the label group. One process for each case takes longer than most cases.
function(semaphored_group name target spec)
  if(NOT SEMAPHORED_SANITIZE OR NOT TARGET ${target})
    return()
  endif()
  set(environment AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test)
  foreach(engine IN LISTS ARGN)
    string(TOUPPER ${engine} variable)
    list(APPEND environment SEMAPHORED_TEST_${variable}_URL_FILE=${PROJECT_BINARY_DIR}/engines/${engine}/url)
  endforeach()
  # -#: the name of a case's file, without its ending, is a tag. A part of the spec without a case is a failure.
  add_test(NAME "group: ${name}" COMMAND ${target} -\# -w UnmatchedTestSpec "${spec}")
  set_tests_properties("group: ${name}" PROPERTIES LABELS group TIMEOUT 900
    FIXTURES_REQUIRED "${ARGN}" ENVIRONMENT "${environment}")
endfunction()
