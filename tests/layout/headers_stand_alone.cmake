# The header checks of cmake/HyperframesTargets.cmake, on a planted project: a header that leans on
# what was included before it must fail the build, and must pass once it includes what it uses.
set(source "${WORK_DIR}/source")
file(REMOVE_RECURSE "${WORK_DIR}")
file(WRITE "${source}/CMakeLists.txt" "
cmake_minimum_required(VERSION 3.25)
project(planted LANGUAGES CXX)
set(HYPERFRAMES_HEADER_CHECKS ON)
add_library(hyperframes_flags INTERFACE)
include(\"${SOURCE_DIR}/cmake/HyperframesTargets.cmake\")
add_subdirectory(runtime)
")
file(WRITE "${source}/cmake/empty.cpp" "")
file(WRITE "${source}/runtime/CMakeLists.txt" "hyperframes_library(runtime)\n")

function(build_with header expected)
  file(WRITE "${source}/runtime/planted.hpp" "${header}")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${source}" -B "${WORK_DIR}/build" -G Ninja
            "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "The planted project does not configure:\n${output}")
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK_DIR}/build"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(expected STREQUAL "fails" AND status EQUAL 0)
    message(FATAL_ERROR "A header that does not compile alone was accepted.")
  elseif(expected STREQUAL "passes" AND NOT status EQUAL 0)
    message(FATAL_ERROR "A header that compiles alone was refused:\n${output}")
  endif()
endfunction()
build_with("#pragma once\ninline std::string name() { return {}; }\n" fails)
build_with("#pragma once\n#include <string>\ninline std::string name() { return {}; }\n" passes)
