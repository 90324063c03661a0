# Prints how to build with what was just installed; tests follow these lines. Run by `cmake --install`,
# with version, compiler, bin, lib, pkg_config and shared set. Silent where others install: a package's
# maker, or somebody who moves the tree elsewhere.
cmake_policy(VERSION 3.25)
if(DEFINED ENV{DESTDIR} OR CMAKE_INSTALL_PREFIX MATCHES "_CPack_Packages")
  return()
endif()
set(prefix "${CMAKE_INSTALL_PREFIX}")
cmake_path(GET compiler FILENAME compiler)
set(run_path "")
if(shared)
  set(run_path " -Wl,-rpath,${prefix}/${lib}")
endif()
message(NOTICE "
Installed. To build with it in CMake, configure with -DCMAKE_PREFIX_PATH=${prefix}, and:

     find_package(hyperframes ${version} REQUIRED COMPONENTS actors)
     target_link_libraries(my_service PRIVATE hyperframes::actors)
     hyperframes_protocol(my_service counter.fbs)

Without CMake:

     export PKG_CONFIG_PATH=${prefix}/${pkg_config}
     ${prefix}/${bin}/hyperframes_protocol_generator generate counter.fbs --out .
     ${compiler} -std=c++20 -I. main.cpp counter.fbs.cpp \$(pkg-config --cflags --libs hyperframes-actors)${run_path} -o my_service
")
