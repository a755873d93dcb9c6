# Installs semaphore_client so that `find_package(semaphored)` and `semaphored::client` work elsewhere.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/semaphored)

target_include_directories(semaphore_client SYSTEM INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS semaphore_client EXPORT semaphoredTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT semaphoredTargets NAMESPACE semaphored:: DESTINATION ${package_dir})

# In the tree our headers are included by path from the root, "client/semaphore/client.h"; installed,
# the same file is <semaphore/client.h>. The includes between them are rewritten on the way.
# These are public; the rest of client/semaphore/ is the library's own.
set(client_headers client.h clock.h errors.h security.h)
set(staged_dir ${PROJECT_BINARY_DIR}/installed_headers/semaphore)
file(REMOVE_RECURSE ${staged_dir})
foreach(name IN LISTS client_headers)
  set(header ${PROJECT_SOURCE_DIR}/client/semaphore/${name})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(READ ${header} text)
  string(REPLACE "#include \"client/semaphore/" "#include \"semaphore/" text "${text}")
  string(REPLACE "#include \"proto/semaphore/" "#include \"semaphore/" text "${text}")
  file(WRITE ${staged_dir}/${name} "${text}")
endforeach()
install(DIRECTORY ${staged_dir} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/deploy/cmake/semaphoredConfig.cmake.in
  ${PROJECT_BINARY_DIR}/semaphoredConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/semaphoredConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/semaphoredConfig.cmake
              ${PROJECT_BINARY_DIR}/semaphoredConfigVersion.cmake
  DESTINATION ${package_dir})
