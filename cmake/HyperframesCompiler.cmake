# The compilers that this project is correct on, its flags, and its sanitizer switch.

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR
    "GCC ${CMAKE_CXX_COMPILER_VERSION} miscompiles coroutines: an aggregate or a capturing lambda "
    "passed inside a co_await expression is destroyed twice.\n"
    "Use Clang 19 or newer, or GCC 14 or newer. On Debian 12:\n"
    "  apt-get install clang-19 && cmake --preset release -DCMAKE_CXX_COMPILER=clang++-19\n"
    "or let ./dev do both.")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 19)
  message(FATAL_ERROR
    "Clang ${CMAKE_CXX_COMPILER_VERSION} is older than 19, the oldest this project is tested with.\n"
    "On Debian 12: apt-get install clang-19 && cmake --preset release "
    "-DCMAKE_CXX_COMPILER=clang++-19\nor let ./dev do both.")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(HYPERFRAMES_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
option(HYPERFRAMES_WERROR "Treat warnings as errors" ON)

add_library(hyperframes_flags INTERFACE)
target_compile_options(hyperframes_flags INTERFACE -Wall -Wextra -Wpedantic -Wno-unused-parameter
  -Wnon-virtual-dtor -Wimplicit-fallthrough $<$<BOOL:${HYPERFRAMES_WERROR}>:-Werror>)
if(HYPERFRAMES_SANITIZE)
  add_compile_options(-fsanitize=${HYPERFRAMES_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HYPERFRAMES_SANITIZE})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()
