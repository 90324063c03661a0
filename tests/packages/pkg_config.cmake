# The lines for the shell that the installation prints: pkg-config and no CMake.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
file(READ "${WORK_DIR}/usage" usage)
follow_shell_lines("${usage}")
set(ENV{PKG_CONFIG_PATH} "${WORK_DIR}/home/ada/hyperframes/lib/pkgconfig")
foreach(part runtime net gpu actors dataset ps)
  run(pkg-config --print-errors --exists hyperframes-${part})
endforeach()
