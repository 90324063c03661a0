# Installs what was built, for the other scripts.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
file(REMOVE_RECURSE "${WORK_DIR}")
install_and_move("${BUILD_DIR}")
file(WRITE "${WORK_DIR}/usage" "${usage}")
check_installed("${prefix}")
check_programs("${prefix}")
