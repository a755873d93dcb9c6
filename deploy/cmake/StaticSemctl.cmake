# semctl_static: semctl for the tarball, with everything but glibc in it, so that it runs where none of its libraries is
# installed. gRPC's CMake package knows its shared libraries only.
set(definitions ${CMAKE_CURRENT_SOURCE_DIR}/semctl/definitions_parse.cc)
# Debian has no static toml++; as headers only one file needs it.
add_executable(semctl_static EXCLUDE_FROM_ALL
  $<FILTER:$<TARGET_OBJECTS:semctl>,EXCLUDE,/definitions_parse\\.cc> ${definitions})
semaphored_own_code(semctl_static)
target_compile_definitions(semctl_static PRIVATE TOML_HEADER_ONLY=1)
target_include_directories(semctl_static SYSTEM PRIVATE
  $<TARGET_PROPERTY:semaphored_messages,INTERFACE_INCLUDE_DIRECTORIES>)
# By name, so that none is linked in the way that its CMake target says.
get_filename_component(library_dir "${SQLite3_LIBRARIES}" DIRECTORY)
file(GLOB absl_archives ${library_dir}/libabsl_*.a)
target_link_options(semctl_static PRIVATE -static-libstdc++ -static-libgcc)
target_link_libraries(semctl_static PRIVATE
  $<TARGET_FILE:semaphore_client> $<TARGET_FILE:semaphored_proto> $<TARGET_FILE:semaphored_messages>
  -Wl,-Bstatic -Wl,--start-group grpc++ grpc gpr upb address_sorting re2 cares ssl crypto z protobuf ${absl_archives}
  -Wl,--end-group -Wl,-Bdynamic Threads::Threads ${CMAKE_DL_LIBS} m)
add_dependencies(semctl_static semaphore_client semaphored_proto semaphored_messages)
set_target_properties(semctl_static PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${semaphored_bin_dir})
