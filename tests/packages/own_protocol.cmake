# The lines of CMake that the installation prints, with a schema of one's own.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
file(READ "${WORK_DIR}/usage" usage)
follow_cmake_lines("${usage}" "${WORK_DIR}/home/ada/hyperframes")
