# A machine without the libraries must learn all their packages at once. Hiding what pkg-config and
# CMake find makes such a machine of this one.
file(REMOVE_RECURSE "${WORK_DIR}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env PKG_CONFIG_LIBDIR=${WORK_DIR}/nothing
          "${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${WORK_DIR}" -G Ninja
          "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON
          -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(status EQUAL 0)
  message(FATAL_ERROR "The configuration went through without its libraries:\n${output}")
endif()
string(REGEX REPLACE "[ \n]+" " " words "${output}")
foreach(part "apt-get install" liburing-dev libsqlite3-dev libcli11-dev catch2 "./dev build install")
  string(FIND "${words}" "${part}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "The message does not name '${part}':\n${output}")
  endif()
endforeach()
