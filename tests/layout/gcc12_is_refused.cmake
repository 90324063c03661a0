# GCC 12 miscompiles coroutines, so the configuration must end with what to do about it.
find_program(GXX_12 g++-12)
if(NOT GXX_12)
  message("SKIPPED: g++-12 is not installed; on Debian 12: apt-get install g++-12")
  return()
endif()
file(REMOVE_RECURSE "${WORK_DIR}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${WORK_DIR}" -G Ninja "-DCMAKE_CXX_COMPILER=${GXX_12}"
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(status EQUAL 0)
  message(FATAL_ERROR "g++ 12 was accepted:\n${output}")
endif()
string(REGEX REPLACE "[ \n]+" " " words "${output}")
foreach(part "GCC 12" "miscompiles coroutines" "Use Clang 19 or newer, or GCC 14 or newer"
        "apt-get install clang-19 && cmake --preset release")
  string(FIND "${words}" "${part}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "The refusal of g++ 12 does not say '${part}':\n${output}")
  endif()
endforeach()
