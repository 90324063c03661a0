# With HYPERFRAMES_PRECOMPILE the standard library and Catch2 are parsed once a build and not once a
# source file, where they are half of the work. Only the presets of sanitizers use it: the others
# show that each file includes what it needs.

option(HYPERFRAMES_PRECOMPILE "Parse the standard library's headers once a build" OFF)
set(hyperframes_standard_headers <algorithm> <array> <atomic> <charconv> <chrono> <condition_variable>
    <coroutine> <cstring> <deque> <exception> <filesystem> <fstream> <functional> <iostream> <map>
    <memory> <mutex> <optional> <random> <ranges> <set> <shared_mutex> <span> <sstream> <string>
    <thread> <tuple> <unordered_map> <variant> <vector>)

# hyperframes_precompile(hyperframes_net library): for a target that is a `library`, or a `test` of
# Catch2. Both kinds are compiled alike, each with headers of its own.
function(hyperframes_precompile target kind)
  if(NOT HYPERFRAMES_PRECOMPILE)
    return()
  endif()
  set(from hyperframes_precompiled_${kind})
  if(NOT TARGET ${from})
    hyperframes_add_precompiled(${from} ${kind})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${from})
endfunction()

function(hyperframes_add_precompiled name kind)
  set(headers ${hyperframes_standard_headers})
  if(kind STREQUAL "test")
    list(APPEND headers <catch2/catch_test_macros.hpp> <catch2/generators/catch_generators.hpp>)
    add_executable(${name} EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/cmake/empty.cpp")
    target_link_libraries(${name} PRIVATE Catch2::Catch2WithMain)
  else()
    add_library(${name} STATIC EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/cmake/empty.cpp")
    if(HYPERFRAMES_FUZZ)
      target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
  endif()
  target_link_libraries(${name} PRIVATE hyperframes_flags)
  target_precompile_headers(${name} PRIVATE ${headers})
  hyperframes_sum_precompiled(${name} "${headers}")
endfunction()

# What clang writes of them names the build folder, so no two would share what ccache keeps. It
# takes a sum in a file beside it for the whole, which here is that of all the text.
function(hyperframes_sum_precompiled name headers)
  get_target_property(folder ${name} BINARY_DIR)
  string(JOIN "\n#include " text "" ${headers})
  file(CONFIGURE OUTPUT "${folder}/${name}.hpp" CONTENT "${text}\n" @ONLY)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -E -P "${folder}/${name}.hpp"
                  OUTPUT_VARIABLE parsed COMMAND_ERROR_IS_FATAL ANY)
  string(SHA256 sum "${parsed}")
  file(CONFIGURE OUTPUT "${folder}/CMakeFiles/${name}.dir/cmake_pch.hxx.pch.sum" CONTENT "${sum}\n")
endfunction()

if(HYPERFRAMES_PRECOMPILE)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "HYPERFRAMES_PRECOMPILE is for Clang: with another compiler leave it off")
  endif()
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  # CMake would name the header too, which does nothing more, and by a path that ccache leaves absolute:
  # no two build folders would share what it keeps.
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -include-pch -Xclang <PCH_FILE>)
endif()
