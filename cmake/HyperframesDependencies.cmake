# Finds what the project builds on. What is required and missing ends the configuration with one
# message that names every package; what is optional is left out. hyperframes_print_features()
# prints one table of what is on, what is off and why.

option(HYPERFRAMES_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HYPERFRAMES_BENCH "Build the benchmarks" OFF)
option(HYPERFRAMES_FUZZ "Build the libFuzzer targets (Clang only)" OFF)
option(HYPERFRAMES_HEADER_CHECKS "Compile each header alone" OFF)

# hyperframes_feature(asio OFF "the asio reactor is not built" "1.22.1"): one row of the table; the
# last argument, what was found, may be left out.
function(hyperframes_feature name on why)
  set(found "-")
  if(ARGC GREATER 3 AND NOT "${ARGV3}" STREQUAL "")
    set(found "${ARGV3}")
  endif()
  string(REPLACE ";" "," row "${name}|${on}|${found}|${why}")
  set_property(GLOBAL APPEND PROPERTY HYPERFRAMES_FEATURES "${row}")
endfunction()

# Not a function: what find_package() sets is wanted by the caller.
set(hyperframes_missing_names "")
set(hyperframes_missing_packages "")
macro(hyperframes_note_required name found version package use)
  if(${found})
    hyperframes_feature("${name}" ON "${use}" "${version}")
  else()
    list(APPEND hyperframes_missing_names "${name}")
    list(APPEND hyperframes_missing_packages ${package})
  endif()
endmacro()

# hyperframes_note_link(fmt::fmt "hyperframes_find_package(fmt ...)" fmt libfmt-dev): what whoever
# links a static library of ours needs too, because ours links that target: a line for the package's
# configuration, a module of pkg-config, a Debian package. Headers alone need none of it.
function(hyperframes_note_link target find module package)
  set_property(GLOBAL PROPERTY "HYPERFRAMES_LINK_${target}" "${find}|${module}|${package}")
endfunction()
set(hyperframes_header_only CLI11::CLI11 Eigen3::Eigen nlohmann_json::nlohmann_json
    hyperframes_flatbuffers_headers)

# Target PkgConfig::HYPERFRAMES_SQLITE for SQLITE: a project that adds this one, or finds it
# installed, may have a PkgConfig::SQLITE of its own.
macro(hyperframes_require_module name module package use)
  pkg_check_modules(HYPERFRAMES_${name} QUIET IMPORTED_TARGET GLOBAL "${module}")
  hyperframes_note_required("${module}" HYPERFRAMES_${name}_FOUND "${HYPERFRAMES_${name}_VERSION}"
                            ${package} "${use}")
  string(REGEX REPLACE "([<>=]+)" " \\1 " hyperframes_requirement "${module}")
  hyperframes_note_link(PkgConfig::HYPERFRAMES_${name}
                        "hyperframes_find_module(HYPERFRAMES_${name} \"${module}\" ${package})"
                        "${hyperframes_requirement}" ${package})
endmacro()

macro(hyperframes_require_package name package use)
  find_package(${name} ${ARGN} QUIET)
  hyperframes_note_required(${name} ${name}_FOUND "${${name}_VERSION}" ${package} "${use}")
endmacro()

# A project that adds this one links what the libraries link.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)
if(NOT PKG_CONFIG_FOUND)
  message(FATAL_ERROR "pkg-config was not found. On Debian: apt-get install pkg-config; "
                      "or let ./dev build install all that is missing.")
endif()

hyperframes_require_module(LIBURING "liburing>=2.3" liburing-dev "the uring reactor")
hyperframes_require_package(FlatBuffers libflatbuffers-dev "messages and protocols")
find_program(FLATC_EXECUTABLE flatc)
if(FLATC_EXECUTABLE)
  execute_process(COMMAND "${FLATC_EXECUTABLE}" --version OUTPUT_VARIABLE flatc_version
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "^flatc version " "" flatc_version "${flatc_version}")
endif()
hyperframes_note_required(flatc FLATC_EXECUTABLE "${flatc_version}" flatbuffers-compiler
                          "generates code at build time")
hyperframes_require_module(CRYPTO "libcrypto>=3" libssl-dev "proofs of the peers' shared key")
hyperframes_require_module(SSL "libssl>=3" libssl-dev "sessions over TLS 1.3")
hyperframes_require_package(Eigen3 libeigen3-dev "dense algebra of the models")
hyperframes_require_module(SQLITE sqlite3 libsqlite3-dev "the embedded coordinator")
hyperframes_require_module(XXHASH libxxhash libxxhash-dev "hashes of shard files")
hyperframes_require_package(CLI11 libcli11-dev "command lines")
hyperframes_require_package(yaml-cpp libyaml-cpp-dev "model and service files")
hyperframes_require_package(nlohmann_json nlohmann-json3-dev "reports and indexes")
hyperframes_require_package(spdlog libspdlog-dev "logs")
hyperframes_require_package(fmt libfmt-dev "text")
# Older yaml-cpp has no namespace.
set(HYPERFRAMES_YAML yaml-cpp)
if(TARGET yaml-cpp::yaml-cpp)
  set(HYPERFRAMES_YAML yaml-cpp::yaml-cpp)
endif()
# hyperframes_note_linked_package(fmt::fmt fmt 1 libfmt-dev): what was compiled against it fits only
# versions with the same first digit.
function(hyperframes_note_linked_package target name digits package)
  hyperframes_note_link(${target}
    "hyperframes_find_package(${name} \"${${name}_VERSION}\" ${digits} ${package})" ${name} ${package})
endfunction()
hyperframes_note_linked_package(fmt::fmt fmt 1 libfmt-dev)
hyperframes_note_linked_package(spdlog::spdlog spdlog 2 libspdlog-dev)
hyperframes_note_linked_package(${HYPERFRAMES_YAML} yaml-cpp 2 libyaml-cpp-dev)
hyperframes_note_link(Threads::Threads "hyperframes_find_package(Threads \"\" 0 libc6-dev)" "" libc6-dev)
if(HYPERFRAMES_TESTS)
  hyperframes_require_package(Catch2 catch2/bookworm-backports "the tests" 3)
endif()

if(hyperframes_missing_names)
  list(JOIN hyperframes_missing_names ", " names)
  list(JOIN hyperframes_missing_packages " " packages)
  message(FATAL_ERROR "Not found: ${names}.\nOn Debian: apt-get install ${packages}\n"
                      "or let ./dev build install all that is missing.")
endif()
if(FlatBuffers_VERSION AND NOT FlatBuffers_VERSION VERSION_EQUAL flatc_version)
  message(FATAL_ERROR
    "flatc is ${flatc_version} and the FlatBuffers headers are ${FlatBuffers_VERSION}: code from one "
    "does not compile with the other. Install both from one place; on Debian: "
    "apt-get install flatbuffers-compiler libflatbuffers-dev, or set -DFLATC_EXECUTABLE=...")
endif()

# Generated code includes FlatBuffers' headers; nothing of its library is needed.
add_library(hyperframes_flatbuffers_headers INTERFACE)
target_include_directories(hyperframes_flatbuffers_headers SYSTEM INTERFACE
  "$<TARGET_PROPERTY:flatbuffers::flatbuffers,INTERFACE_INCLUDE_DIRECTORIES>")

include(HyperframesOptional)

# One row a feature: name, on or off, what was found, and what for or why not.
function(hyperframes_print_features)
  get_property(rows GLOBAL PROPERTY HYPERFRAMES_FEATURES)
  list(PREPEND rows "feature|state|found|what for, or why not")
  set(width_0 0)
  set(width_1 0)
  set(width_2 0)
  foreach(row IN LISTS rows)
    string(REPLACE "|" ";" cells "${row}")
    foreach(column 0 1 2)
      list(GET cells ${column} cell)
      string(LENGTH "${cell}" length)
      if(length GREATER width_${column})
        set(width_${column} ${length})
      endif()
    endforeach()
  endforeach()
  set(table "")
  foreach(row IN LISTS rows)
    string(REPLACE "|" ";" cells "${row}")
    set(line "")
    foreach(column 0 1 2)
      list(POP_FRONT cells cell)
      string(LENGTH "${cell}" length)
      math(EXPR pad "${width_${column}} - ${length} + 2")
      string(REPEAT " " ${pad} space)
      if(column EQUAL 1)
        string(TOLOWER "${cell}" cell)
      endif()
      string(APPEND line "${cell}${space}")
    endforeach()
    string(APPEND table "  ${line}${cells}\n")
  endforeach()
  message(NOTICE "Hyperframes ${PROJECT_VERSION}, ${CMAKE_CXX_COMPILER_ID} "
                 "${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}\n${table}")
endfunction()
