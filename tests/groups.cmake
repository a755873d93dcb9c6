# What .ci/run checks under the sanitizers, as groups of cases; all cases: tests/deep.sh sanitizers.
set(no_engine "~[postgres]~[consul]~[dynamodb]~[rabbitmq]")
# Cases of the contract that use most of an engine: what it stores, what several daemons and lanes do to it. (The walks
# restart the daemon, too.)
set(telling history_cases queue_cases shared_cases ticket_walk_cases walk_cases)

# groups_of_contract(tag [fixture]): the telling cases on the engine with this tag.
function(groups_of_contract tag)
  set(spec)
  foreach(file IN LISTS telling)
    list(APPEND spec "[${tag}][#${file}]")
  endforeach()
  list(JOIN spec "," spec)
  semaphored_group("contract ${tag}" contract_tests "${spec}" ${ARGN})
endfunction()

if(SEMAPHORED_SANITIZE STREQUAL "thread")
  semaphored_group("threads" thread_tests "${no_engine}")
  foreach(engine postgres consul dynamodb rabbitmq)
    semaphored_group("threads ${engine}" thread_tests "[${engine}]" ${engine})
  endforeach()
else()
  semaphored_group("unit" unit_tests "${no_engine}")
  foreach(engine postgres consul dynamodb rabbitmq)
    semaphored_group("unit ${engine}" unit_tests "[${engine}]" ${engine})
    groups_of_contract(${engine} ${engine})
  endforeach()
  groups_of_contract(rabbitmq-slots rabbitmq)
  semaphored_group("contract sqlite-disk" contract_tests "[sqlite-disk]")
  # What takes longest begins first.
  if(SEMAPHORED_SANITIZE)
    set_tests_properties("group: contract dynamodb" "group: unit" "group: contract sqlite-disk" PROPERTIES COST 100)
  endif()
endif()
