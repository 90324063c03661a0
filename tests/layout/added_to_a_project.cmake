# What the README's first quick start promises: a project that adds this folder gets the libraries and
# hyperframes_protocol(), and neither the programs nor the tests. Building it would build the libraries
# once more, so this looks at what there is to build.
set(source "${WORK_DIR}/source")
file(REMOVE_RECURSE "${WORK_DIR}")
file(WRITE "${source}/counter.fbs" "
namespace counter;
struct Addition { delta:long; }
struct Total { value:long; }
rpc_service Counter { Add(Addition):Total; }
")
file(WRITE "${source}/main.cpp" "#include <counter.fbs.hpp>\nint main() {}\n")
file(WRITE "${source}/CMakeLists.txt" "
cmake_minimum_required(VERSION 3.25)
project(my_service LANGUAGES CXX)
add_subdirectory(\"${SOURCE_DIR}\" hyperframes)
add_executable(my_service main.cpp)
target_link_libraries(my_service PRIVATE hyperframes::actors)
hyperframes_protocol(my_service counter.fbs)
")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "This failed in a project that adds Hyperframes: ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
run("${CMAKE_COMMAND}" -S "${source}" -B "${WORK_DIR}/build" -G Ninja
    "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" -DCMAKE_BUILD_TYPE=Debug)
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build" -- -t targets all)
foreach(wanted my_service_protocol/counter.fbs.hpp libhyperframes_actors.a my_service)
  if(NOT output MATCHES "${wanted}: ")
    message(FATAL_ERROR "In a project that adds Hyperframes there is no ${wanted} to build:\n${output}")
  endif()
endforeach()
foreach(program hyperframes_server example_counter net_tests hyperframes_bench)
  if(output MATCHES "${program}: ")
    message(FATAL_ERROR "A project that adds Hyperframes would build ${program} too:\n${output}")
  endif()
endforeach()
