# What does not fit is refused when a project is configured, naming what is there and what is needed.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
set(prefix "${WORK_DIR}/home/ada/hyperframes")
set(root "${WORK_DIR}/mismatches")
file(REMOVE_RECURSE "${root}")

# refused(NAME "find_package's arguments" "PART;PART" [cmake options]): PARTs stand in the message.
function(refused name arguments parts)
  file(WRITE "${root}/${name}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(${name} LANGUAGES CXX)
find_package(hyperframes ${arguments})
")
  execute_process(
    COMMAND ${ARGN} "${CMAKE_COMMAND}" -G Ninja "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
            "-DCMAKE_PREFIX_PATH=${prefix}" -S "${root}/${name}" -B "${root}/${name}/build" ${options}
    RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(status EQUAL 0)
    message(FATAL_ERROR "find_package(hyperframes ${arguments}) was satisfied, against: ${parts}")
  endif()
  string(REGEX REPLACE "[ \n]+" " " words "${text}")
  foreach(part IN LISTS parts)
    expect("${words}" "${part}" "The refusal does not say what is wrong")
  endforeach()
endfunction()

refused(newer "9.9 REQUIRED" "9.9;version: 0.1")
set(asio "")
if(EXISTS "${prefix}/include/hyperframes/actors/asio.hpp")
  set(asio ", dataset, ps, asio")
endif()
refused(component "REQUIRED COMPONENTS actors telepathy"
        "telepathy: there is no such component;runtime, net, gpu, actors${asio}")

# Neither of these has anything but a version.
set(fake "${root}/fake")
file(WRITE "${fake}/FlatBuffersConfig.cmake" "")
file(WRITE "${fake}/FlatBuffersConfigVersion.cmake"
     "set(PACKAGE_VERSION 1.2.3)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
file(WRITE "${fake}/fmtConfig.cmake" "")
file(WRITE "${fake}/fmtConfigVersion.cmake"
     "set(PACKAGE_VERSION 1.2.3)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
run(flatc --version)
string(REGEX MATCH "[0-9.]+" flatbuffers "${output}")
set(options "-DFlatBuffers_DIR=${fake}")
refused(flatbuffers "REQUIRED COMPONENTS actors"
        "FlatBuffers 1.2.3 was found, in ${fake};was built with FlatBuffers ${flatbuffers}")
set(options "-Dfmt_DIR=${fake}")
refused(fmt "REQUIRED COMPONENTS runtime" "fmt 1.2.3 was found, in ${fake};was built with fmt")
set(options "")
refused(liburing "REQUIRED COMPONENTS runtime" "apt-get install liburing-dev"
        "${CMAKE_COMMAND}" -E env "PKG_CONFIG_LIBDIR=${fake}")

file(WRITE "${fake}/flatc" "#!/bin/sh\necho flatc version 1.2.3\n")
file(CHMOD "${fake}/flatc" PERMISSIONS OWNER_READ OWNER_EXECUTE)
foreach(flatc "${fake}/flatc" "${fake}/nothing")
  execute_process(
    COMMAND "${prefix}/bin/hyperframes_protocol_generator" generate
            "${SOURCE_DIR}/tests/packages/two_actors/counter.fbs" --out "${root}/out" --flatc "${flatc}"
    RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(status EQUAL 0)
    message(FATAL_ERROR "The generator ran with ${flatc}")
  endif()
  expect("${text}" "${flatc}" "The generator does not name the flatc that it tried")
  expect("${text}" "${flatbuffers}" "The generator does not name the version that it needs")
endforeach()

find_program(GXX_12 g++-12)
if(GXX_12)
  set(CXX_COMPILER "${GXX_12}")
  refused(gcc12 "REQUIRED" "GCC 12;miscompiles coroutines;-DCMAKE_CXX_COMPILER=clang++-19")
endif()
