# Shapes that every folder shares.

include("${CMAKE_CURRENT_LIST_DIR}/HyperframesPrecompile.cmake")  # headers that are parsed once a build

# <hyperframes/runtime/task.hpp> resolves in the tree as it does once installed.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include")
file(CREATE_LINK "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/include/hyperframes" SYMBOLIC)

# hyperframes_library(net DEPENDS runtime PRIVATE fmt::fmt EXCLUDE /tool/): library hyperframes_net,
# alias hyperframes::net, of every .cpp below the current folder that no EXCLUDE pattern matches.
# Shared where BUILD_SHARED_LIBS says so, and installed with its headers, but for those that an
# OWN_HEADERS pattern matches; an INTERNAL one is neither.
function(hyperframes_library name)
  cmake_parse_arguments(ARG "INTERNAL" "" "DEPENDS;PRIVATE;EXCLUDE;OWN_HEADERS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  foreach(pattern IN LISTS ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  if(NOT sources)
    set(sources "${PROJECT_SOURCE_DIR}/cmake/empty.cpp")
  endif()
  set(type "")
  if(ARG_INTERNAL)
    set(type STATIC)
  endif()
  add_library(hyperframes_${name} ${type} ${sources})
  add_library(hyperframes::${name} ALIAS hyperframes_${name})
  set_target_properties(hyperframes_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(hyperframes_${name} PUBLIC cxx_std_20)
  target_include_directories(hyperframes_${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>" "$<INSTALL_INTERFACE:include>")
  foreach(dependency IN LISTS ARG_DEPENDS)
    target_link_libraries(hyperframes_${name} PUBLIC hyperframes::${dependency})
  endforeach()
  target_link_libraries(hyperframes_${name} PRIVATE $<BUILD_INTERFACE:hyperframes_flags>)
  foreach(dependency IN LISTS ARG_PRIVATE)
    if(dependency IN_LIST hyperframes_header_only)
      set(dependency "$<BUILD_INTERFACE:${dependency}>")
    endif()
    target_link_libraries(hyperframes_${name} PRIVATE "${dependency}")
  endforeach()
  if(HYPERFRAMES_OPTIMIZE AND name IN_LIST hyperframes_simulated)
    target_compile_options(hyperframes_${name} PRIVATE -O1)
  endif()
  hyperframes_share_library(hyperframes_${name})
  hyperframes_precompile(hyperframes_${name} library)
  if(HYPERFRAMES_INSTALL AND NOT ARG_INTERNAL)
    # An empty pattern among them would match every header.
    set(not_installed ${ARG_EXCLUDE} ${ARG_OWN_HEADERS})
    hyperframes_install_library(${name} "${ARG_DEPENDS}" "${ARG_PRIVATE}" "${not_installed}")
  endif()
  if(HYPERFRAMES_FUZZ)
    # libFuzzer steers by the edges that instrumented code reports.
    target_compile_options(hyperframes_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(HYPERFRAMES_HEADER_CHECKS)
    hyperframes_check_headers(${name} "${ARG_EXCLUDE}" "${ARG_PRIVATE}")
  endif()
endfunction()

# A shared library exports the project's own names, not those of templates that it happens to use.
# Nothing here is stable before version 1: each minor version is another library to the loader.
function(hyperframes_share_library target)
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "SHARED_LIBRARY")
    return()
  endif()
  set(version "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  set(script "${PROJECT_BINARY_DIR}/exported_names.map")
  set(names "hyperframes::*; ")
  foreach(of "vtable for" "VTT for" "construction vtable for" "typeinfo for" "typeinfo name for"
             "guard variable for" "TLS wrapper function for" "TLS init function for"
             "virtual thunk to" "non-virtual thunk to")
    string(REPLACE " " "?" of "${of}")  # a space would end the pattern
    string(APPEND names "${of}?hyperframes::*; ")
  endforeach()
  file(CONFIGURE OUTPUT "${script}" @ONLY CONTENT
       "HYPERFRAMES_@version@ { global: extern \"C++\" { @names@}; local: *; };\n")
  set_target_properties(${target} PROPERTIES VERSION "${PROJECT_VERSION}" SOVERSION "${version}"
                        DEFINE_SYMBOL "" INSTALL_RPATH "$ORIGIN" LINK_DEPENDS "${script}")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${script}")
  if(NOT HYPERFRAMES_SANITIZE AND NOT HYPERFRAMES_FUZZ)
    target_link_options(${target} PRIVATE "LINKER:-z,defs")  # what it needs, it links itself
  endif()
endfunction()

# Proves that each header compiles alone. One that the .cpp of its name includes first is proven by
# that; every other one gets a source file that holds nothing but its include.
function(hyperframes_check_headers name exclude private)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.hpp")
  foreach(pattern IN LISTS exclude)
    list(FILTER headers EXCLUDE REGEX "${pattern}")
  endforeach()
  set(sources "")
  foreach(header IN LISTS headers)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    string(REGEX REPLACE "\\.hpp$" ".cpp" own_source "${header}")
    set(first_include "")
    if(EXISTS "${own_source}")
      file(STRINGS "${own_source}" first_include REGEX "^ *# *include" LIMIT_COUNT 1)
    endif()
    if(first_include STREQUAL "#include <hyperframes/${path}>")
      continue()
    endif()
    set(source "${PROJECT_BINARY_DIR}/header_checks/${path}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include <hyperframes/${path}>\n")
    list(APPEND sources "${source}")
  endforeach()
  if(sources)
    add_library(hyperframes_${name}_headers OBJECT ${sources})
    target_link_libraries(hyperframes_${name}_headers PRIVATE hyperframes::${name}
                          hyperframes_flags ${private})
    # Only what the compiler says of them matters, so they carry no debug information.
    target_compile_options(hyperframes_${name}_headers PRIVATE -g0)
  endif()
endfunction()

# hyperframes_test(net LINK hyperframes::net LABELS threads): executable net_tests of every .cpp in
# the current folder, one ctest entry a test case, labelled net and threads. A case with the Catch2 tag
# [long] has the label long as well, and is left to ./dev test --all; one with the tag [plain] is left
# out under sanitizers: what it calls other cases call too, and it would compute for minutes, or start
# many processes. Suites with the label threads, which these layers' have anyhow, run under
# ThreadSanitizer too: the target threads_tests builds them.
# Of a suite with THREADED_CASES only those with the Catch2 tag [threads] do, and ThreadSanitizer's
# build has only the files with such cases. It also goes without the files of ONE_THREAD, whose cases
# simulate all shards on one thread, or have none. TIMEOUT: the seconds that a case may take, if not 120.
set_property(GLOBAL PROPERTY HYPERFRAMES_THREADED_SUITES runtime net actors)
set(HYPERFRAMES_SANITIZER_SLOWDOWN 3)  # stretches time limits and the runtime's own timing promises
function(hyperframes_test name)
  cmake_parse_arguments(ARG "THREADED_CASES" "TIMEOUT" "LINK;LABELS;ONE_THREAD" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(HYPERFRAMES_SANITIZE STREQUAL "thread")
    list(TRANSFORM ARG_ONE_THREAD PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    list(REMOVE_ITEM sources ${ARG_ONE_THREAD})
  endif()
  if(ARG_THREADED_CASES AND HYPERFRAMES_SANITIZE STREQUAL "thread")
    hyperframes_keep_threaded(sources)
  endif()
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_tests ${sources})
  target_link_libraries(${name}_tests PRIVATE hyperframes_flags Catch2::Catch2WithMain ${ARG_LINK})
  # Lines are what a failed test is looked up by; types would cost a quarter of the time to compile.
  target_compile_options(${name}_tests PRIVATE $<$<CONFIG:Debug>:-g1>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name}_tests PRIVATE -include "${PROJECT_SOURCE_DIR}/tests/catch_once.hpp")
  endif()

  hyperframes_precompile(${name}_tests test)

  if(NOT TARGET threads_tests)
    add_custom_target(threads_tests)
  endif()
  get_property(threaded GLOBAL PROPERTY HYPERFRAMES_THREADED_SUITES)
  if("${name}" IN_LIST threaded OR "threads" IN_LIST ARG_LABELS)
    add_dependencies(threads_tests ${name}_tests)
    list(APPEND ARG_LABELS threads)
  endif()
  set(labels ${name} ${ARG_LABELS})
  list(REMOVE_DUPLICATES labels)

  set(timeout_s 120)
  if(ARG_TIMEOUT)
    set(timeout_s ${ARG_TIMEOUT})
  endif()
  set(quick "~[long]")
  if(HYPERFRAMES_SANITIZE)
    string(APPEND quick "~[plain]")
    math(EXPR timeout_s "${timeout_s} * ${HYPERFRAMES_SANITIZER_SLOWDOWN}")
  endif()
  if(ARG_THREADED_CASES)
    add_dependencies(threads_tests ${name}_tests)
    hyperframes_discover(${name} quick "${quick}~[threads]" "${labels}" ${timeout_s})
    hyperframes_discover(${name} threads "${quick}[threads]" "${labels};threads" ${timeout_s})
  else()
    hyperframes_discover(${name} quick "${quick}" "${labels}" ${timeout_s})
  endif()
  hyperframes_discover(${name} long "[long]" "${labels};long" 3600)
endfunction()

# Keeps those of the files that have a case with the tag [threads].
function(hyperframes_keep_threaded list)
  set(kept "")
  foreach(source IN LISTS ${list})
    file(STRINGS "${source}" cases REGEX "\\[threads\\]" LIMIT_COUNT 1)
    if(cases)
      list(APPEND kept "${source}")
    endif()
  endforeach()
  set(${list} "${kept}" PARENT_SCOPE)
endfunction()

# catch_discover_tests() can set one label only, so what it found gets its labels by a script of
# ours that ctest reads after Catch2's.
function(hyperframes_discover name extent spec labels timeout_s)
  set(list ${name}_${extent}_tests)
  catch_discover_tests(${name}_tests TEST_SPEC "${spec}" TEST_LIST ${list}
                       TEST_PREFIX "${name}: " DISCOVERY_MODE PRE_TEST
                       PROPERTIES TIMEOUT ${timeout_s})
  set(script "${CMAKE_CURRENT_BINARY_DIR}/${list}_labels.cmake")
  set(environment "")
  if(HYPERFRAMES_SANITIZE)
    set(environment "HYPERFRAMES_TIME_SCALE=${HYPERFRAMES_SANITIZER_SLOWDOWN}"
        "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan_suppressions.txt")
  endif()
  file(CONFIGURE OUTPUT "${script}" @ONLY CONTENT [==[
foreach(test IN LISTS @list@)
  set_tests_properties("${test}" PROPERTIES LABELS "@labels@" ENVIRONMENT "@environment@")
endforeach()
]==])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${script}")
endfunction()

# hyperframes_fuzz(frame LINK hyperframes::net): libFuzzer executable fuzz_frame of fuzz_frame.cpp
# in the current folder. Two ctest entries labelled `fuzz`: one replays corpus/fuzz_frame/, one
# fuzzes for 10 s from there. What makes it fail is kept in the build folder, and its path printed.
function(hyperframes_fuzz name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  set(target fuzz_${name})
  add_executable(${target} ${target}.cpp)
  target_link_libraries(${target} PRIVATE hyperframes_flags ${ARG_LINK})
  target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)

  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${target}")
  set(found "${CMAKE_CURRENT_BINARY_DIR}/${target}")
  file(MAKE_DIRECTORY "${found}/new")
  set(seeds "")
  if(EXISTS "${corpus}")
    set(seeds "${corpus}")
    add_test(NAME "fuzz: ${name} replays its corpus"
             COMMAND ${target} -runs=0 -timeout=10 "-artifact_prefix=${found}/" "${corpus}")
    set_tests_properties("fuzz: ${name} replays its corpus"
                         PROPERTIES LABELS fuzz TIMEOUT 120)
  endif()
  add_test(NAME "fuzz: ${name} survives 10 s of new input"
           COMMAND ${target} -max_total_time=10 -timeout=10 -rss_limit_mb=4096 -print_final_stats=1
                   "-artifact_prefix=${found}/" "${found}/new" ${seeds})
  set_tests_properties("fuzz: ${name} survives 10 s of new input"
                       PROPERTIES LABELS fuzz TIMEOUT 120)
endfunction()
