# The compilers that this project is correct on, its flags, its sanitizer switch and its cache.

include(HyperframesCompilerCheck)
hyperframes_check_compiler(hyperframes_problem)
if(hyperframes_problem)
  message(FATAL_ERROR "${hyperframes_problem}")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
  endif()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
endif()

set(HYPERFRAMES_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
option(HYPERFRAMES_OPTIMIZE "In a debug build, compile with -O1 what the simulator runs" OFF)
set(hyperframes_simulated runtime net actors dataset ps sim)
option(HYPERFRAMES_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})

add_library(hyperframes_flags INTERFACE)
target_compile_options(hyperframes_flags INTERFACE -Wall -Wextra -Wpedantic -Wno-unused-parameter
  -Wnon-virtual-dtor -Wimplicit-fallthrough $<$<BOOL:${HYPERFRAMES_WERROR}>:-Werror>)

if(HYPERFRAMES_SANITIZE)
  # Reports need line numbers only, and full debug information would double the build time.
  add_compile_options(-fsanitize=${HYPERFRAMES_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HYPERFRAMES_SANITIZE})
  if(HYPERFRAMES_SANITIZE MATCHES "undefined")
    # A report that does not end the process would let its test pass.
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND HYPERFRAMES_SANITIZE MATCHES "thread")
    # GCC warns that it does not model fences; the rings use none.
    target_compile_options(hyperframes_flags INTERFACE -Wno-tsan)
  endif()
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  include(CheckLinkerFlag)
  check_linker_flag(CXX "-fuse-ld=lld" HYPERFRAMES_HAS_LLD)
  if(HYPERFRAMES_HAS_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the source folder, so that every clone and build folder shares its hits.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros
      ${CCACHE_PROGRAM})
endif()
