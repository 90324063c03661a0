# What the project can do without. Each feature is a row of the table, with what was found or the
# reason why it is left out.

# hyperframes_note_optional(CUDA CUDAToolkit_FOUND 12.4 "the CUDA toolkit" "device memory"): a library
# that is looked for already, while no part of this version uses it.
function(hyperframes_note_optional name is_found version package use)
  if(${is_found})
    hyperframes_feature(${name} OFF "${use}: not in this version" "${version}")
  else()
    hyperframes_feature(${name} OFF "${use}: not in this version")
  endif()
endfunction()

# Only the headers: the library is loaded when a program first asks for it.
pkg_check_modules(HYPERFRAMES_VERBS QUIET libibverbs)
if(HYPERFRAMES_VERBS_FOUND)
  hyperframes_feature(RDMA ON "links through queue pairs, where the host has them"
                      "${HYPERFRAMES_VERBS_VERSION}")
else()
  hyperframes_feature(RDMA OFF "no libibverbs-dev: rdma:// and auto:// do without")
endif()

find_package(CUDAToolkit QUIET)
hyperframes_note_optional(CUDA CUDAToolkit_FOUND "${CUDAToolkit_VERSION}" "the CUDA toolkit"
                          "device memory")

find_package(pybind11 CONFIG QUIET)
hyperframes_note_optional(Python pybind11_FOUND "${pybind11_VERSION}" pybind11-dev
                          "the Python module")

# The pages of a node, and the tools that read them. Private to the sources that include it.
set(HYPERFRAMES_HTTP "")
pkg_check_modules(HYPERFRAMES_HTTPLIB QUIET IMPORTED_TARGET GLOBAL cpp-httplib)
if(HYPERFRAMES_HTTPLIB_FOUND)
  set(HYPERFRAMES_HTTP PkgConfig::HYPERFRAMES_HTTPLIB)
  hyperframes_note_link(PkgConfig::HYPERFRAMES_HTTPLIB
    "hyperframes_find_module(HYPERFRAMES_HTTPLIB \"cpp-httplib\" libcpp-httplib-dev)"
    cpp-httplib libcpp-httplib-dev)
  hyperframes_feature(HTTP ON "a node's metrics and actors; hyperframes actors, hyperframes top"
                      "${HYPERFRAMES_HTTPLIB_VERSION}")
else()
  hyperframes_feature(HTTP OFF "no libcpp-httplib-dev: nodes show no metrics, actors and top can't ask")
endif()
# hyperframes_uses_http(detail/http_server.cpp): sources that do without it where it is not there.
function(hyperframes_uses_http)
  if(HYPERFRAMES_HTTP)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS HYPERFRAMES_HTTP=1)
  endif()
endfunction()

find_path(ASIO_INCLUDE_DIR asio.hpp)
set(asio_version "")
if(ASIO_INCLUDE_DIR)
  file(STRINGS "${ASIO_INCLUDE_DIR}/asio/version.hpp" asio_version REGEX "// [0-9]+\\.[0-9]+\\.[0-9]+")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" asio_version "${asio_version}")
endif()
set(HYPERFRAMES_ASIO OFF)
if(NOT ASIO_INCLUDE_DIR)
  hyperframes_feature(asio OFF "libasio-dev is not installed: no driver where io_uring is refused, and no embedding")
elseif(asio_version VERSION_LESS 1.22.1)
  hyperframes_feature(asio OFF "1.22.1 or newer is needed" "${asio_version}")
else()
  set(HYPERFRAMES_ASIO ON)
  hyperframes_feature(asio ON "the driver where io_uring is refused, and embedding" "${asio_version}")
  # Whoever shares an io_context with the library compiles asio as the library did.
  add_library(hyperframes_asio_flags INTERFACE)
  target_include_directories(hyperframes_asio_flags SYSTEM INTERFACE
                             "$<BUILD_INTERFACE:${ASIO_INCLUDE_DIR}>")
  target_compile_definitions(hyperframes_asio_flags INTERFACE
    HYPERFRAMES_HAS_ASIO=1 ASIO_STANDALONE=1
    # asio 1.22 does not know them of Clang.
    "$<$<CXX_COMPILER_ID:Clang>:ASIO_HAS_CO_AWAIT=1>"
    "$<$<CXX_COMPILER_ID:Clang>:ASIO_HAS_STD_COROUTINE=1>")
endif()

if(HYPERFRAMES_FUZZ AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "HYPERFRAMES_FUZZ needs libFuzzer, which only Clang has. "
                      "Configure with -DCMAKE_CXX_COMPILER=clang++-19 or -DHYPERFRAMES_FUZZ=OFF.")
endif()

# hyperframes_note_switch(tests HYPERFRAMES_TESTS): a switch of the build.
function(hyperframes_note_switch name variable)
  if(${variable})
    hyperframes_feature("${name}" ON "${variable}=${${variable}}")
  else()
    hyperframes_feature("${name}" OFF "${variable}=${${variable}}")
  endif()
endfunction()
hyperframes_note_switch(tests HYPERFRAMES_TESTS)
hyperframes_note_switch("header checks" HYPERFRAMES_HEADER_CHECKS)
hyperframes_note_switch(sanitizers HYPERFRAMES_SANITIZE)
hyperframes_note_switch("fuzz targets" HYPERFRAMES_FUZZ)
hyperframes_note_switch(benches HYPERFRAMES_BENCH)
hyperframes_note_switch("headers parsed once" HYPERFRAMES_PRECOMPILE)
hyperframes_note_switch("simulated at -O1" HYPERFRAMES_OPTIMIZE)
if(CCACHE_PROGRAM)
  hyperframes_feature(ccache ON "short rebuilds")
else()
  hyperframes_feature(ccache OFF "not installed")
endif()
if(HYPERFRAMES_HAS_LLD)
  hyperframes_feature(lld ON "short links")
else()
  hyperframes_feature(lld OFF "not installed, or not with this compiler")
endif()
