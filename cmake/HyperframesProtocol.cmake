# hyperframes_protocol(my_service counter.fbs INCLUDE schemas): makes C++ of FlatBuffers schemas, in
# the build folder, and adds it to the target.
#
# For counter.fbs the target, and what links it, can include <counter.fbs.hpp>. Schemas that it
# includes need a hyperframes_protocol() of their own, in this target or in one that it links.
# Works in this tree and from an installed package.
function(hyperframes_protocol target)
  cmake_parse_arguments(ARG "" "" "INCLUDE" ${ARGN})
  if(NOT TARGET ${target})
    message(FATAL_ERROR "hyperframes_protocol(${target} ...): there is no target ${target}. "
                        "Call add_library() or add_executable() first.")
  endif()
  if(NOT ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "hyperframes_protocol(${target}): name at least one .fbs file.")
  endif()
  if(NOT FLATC_EXECUTABLE)
    find_program(FLATC_EXECUTABLE flatc)
    if(NOT FLATC_EXECUTABLE)
      message(FATAL_ERROR "hyperframes_protocol(${target} ...) needs FlatBuffers' compiler, flatc, and "
                          "found none. On Debian: apt-get install flatbuffers-compiler; or set "
                          "-DFLATC_EXECUTABLE=... to its path.")
    endif()
  endif()

  set(out "${CMAKE_CURRENT_BINARY_DIR}/${target}_protocol")
  set(include_options "")
  foreach(folder IN LISTS ARG_INCLUDE)
    cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    list(APPEND include_options -I "${folder}")
  endforeach()

  foreach(schema IN LISTS ARG_UNPARSED_ARGUMENTS)
    cmake_path(ABSOLUTE_PATH schema BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    cmake_path(GET schema FILENAME file)
    cmake_path(GET schema STEM LAST_ONLY stem)
    set(header "${out}/${file}.hpp")
    set(source "${out}/${file}.cpp")
    set(flatc_header "${out}/${stem}_fb_generated.h")
    add_custom_command(
      OUTPUT "${header}" "${source}" "${flatc_header}"
      COMMAND hyperframes::protocol_generator generate "${schema}" --out "${out}" ${include_options}
              --flatc "${FLATC_EXECUTABLE}" --dependency-file "${out}/${stem}.d"
      DEPENDS "${schema}" hyperframes::protocol_generator
      DEPFILE "${out}/${stem}.d"
      COMMENT "Making C++ of ${file}"
      VERBATIM)
    target_sources(${target} PRIVATE "${source}" "${header}" "${flatc_header}")
    # It contains flatc's code, whose warnings nobody here can mend.
    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-w")
  endforeach()
  target_include_directories(${target} SYSTEM BEFORE PUBLIC "$<BUILD_INTERFACE:${out}>")
  # What is made includes FlatBuffers' headers; nothing of its library is needed.
  target_include_directories(${target} SYSTEM PUBLIC
    "$<BUILD_INTERFACE:$<TARGET_PROPERTY:flatbuffers::flatbuffers,INTERFACE_INCLUDE_DIRECTORIES>>")
endfunction()
