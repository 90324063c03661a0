# The Debian packages hold what an installation does, ask for the packages that it needs, and serve a
# project from where they are unpacked.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
find_program(DPKG_DEB dpkg-deb)
find_program(SHLIBDEPS dpkg-shlibdeps)
if(NOT DPKG_DEB OR NOT SHLIBDEPS)
  message("SKIPPED: dpkg-deb or dpkg-shlibdeps is not installed; on Debian: apt-get install dpkg-dev file")
  return()
endif()
file(REMOVE_RECURSE "${WORK_DIR}/debian")
run("${CPACK_COMMAND}" -G DEB --config "${BUILD_DIR}/CPackConfig.cmake" -B "${WORK_DIR}/debian")
file(GLOB development "${WORK_DIR}/debian/libhyperframes-dev_*.deb")
file(GLOB programs "${WORK_DIR}/debian/hyperframes_*.deb")
if(NOT development OR NOT programs)
  message(FATAL_ERROR "cpack made no libhyperframes-dev or no hyperframes:\n${output}")
endif()

run("${DPKG_DEB}" --field "${development}" Depends)
set(depends "${output}")
foreach(package liburing-dev libfmt-dev libspdlog-dev libssl-dev libyaml-cpp-dev libsqlite3-dev
        libxxhash-dev libflatbuffers-dev flatbuffers-compiler pkg-config)
  expect("${depends}" "${package}" "libhyperframes-dev does not depend on what it needs")
endforeach()
run("${DPKG_DEB}" --field "${programs}" Depends)
expect("${output}" "liburing2" "hyperframes does not depend on what it links")
# This machine has what is needed to build, so the packages must be installable on it. A plain user's
# PATH may lack the folders of root's programs, which dpkg looks for even then.
set(ENV{PATH} "$ENV{PATH}:/usr/local/sbin:/usr/sbin:/sbin")
run(dpkg --dry-run --force-not-root --install "${development}" "${programs}")

run("${DPKG_DEB}" --extract "${development}" "${WORK_DIR}/debian/root")
run("${DPKG_DEB}" --extract "${programs}" "${WORK_DIR}/debian/root")
check_programs("${WORK_DIR}/debian/root/usr")
consume(debian_consumer "${WORK_DIR}/debian/root/usr" runtime,net main.cpp "answer 42")
