# What the README's first quick start promises: a project that adds this folder gets the libraries and
# hyperframes_protocol(), and neither the programs nor the tests. The libraries themselves are not
# built once more: the plan of the build must know them.
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
    "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}")
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build" --target my_service_protocol/counter.fbs.hpp)
if(NOT EXISTS "${WORK_DIR}/build/my_service_protocol/counter.fbs.hpp")
  message(FATAL_ERROR "hyperframes_protocol() made no header in a project that adds Hyperframes.")
endif()
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build" -- -t targets all)
string(FIND "${output}" "libhyperframes_actors.a" library)
if(library EQUAL -1 OR output MATCHES "hyperframes_server|example_counter")
  message(FATAL_ERROR "Such a project should build the libraries and no program:\n${output}")
endif()
