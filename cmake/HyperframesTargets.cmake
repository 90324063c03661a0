# Shapes that every folder shares.

# <hyperframes/runtime/task.hpp> resolves in the tree as it does once installed.
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/include")
file(CREATE_LINK "${CMAKE_SOURCE_DIR}" "${CMAKE_BINARY_DIR}/include/hyperframes" SYMBOLIC)

# hyperframes_library(net DEPENDS runtime PRIVATE fmt::fmt): library hyperframes_net, alias
# hyperframes::net, of every .cpp below the current folder.
function(hyperframes_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;PRIVATE;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  foreach(pattern IN LISTS ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  if(NOT sources)
    set(sources "${CMAKE_SOURCE_DIR}/cmake/empty.cpp")
  endif()
  add_library(hyperframes_${name} ${sources})
  add_library(hyperframes::${name} ALIAS hyperframes_${name})
  set_target_properties(hyperframes_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(hyperframes_${name} PUBLIC cxx_std_20)
  target_include_directories(hyperframes_${name} PUBLIC
    "$<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>" "$<INSTALL_INTERFACE:include>")
  foreach(dependency IN LISTS ARG_DEPENDS)
    target_link_libraries(hyperframes_${name} PUBLIC hyperframes::${dependency})
  endforeach()
  target_link_libraries(hyperframes_${name} PRIVATE $<BUILD_INTERFACE:hyperframes_flags> ${ARG_PRIVATE})
endfunction()

# hyperframes_test(runtime LINK hyperframes::runtime): executable runtime_tests of every .cpp in
# the current folder, one ctest entry a test case.
function(hyperframes_test name)
  cmake_parse_arguments(ARG "" "" "LINK;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_tests ${sources})
  target_link_libraries(${name}_tests PRIVATE hyperframes_flags Catch2::Catch2WithMain ${ARG_LINK})
  catch_discover_tests(${name}_tests TEST_PREFIX "${name}: " DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS "${name};${ARG_LABELS}" TIMEOUT 120)
endfunction()
