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
    find_program(FLATC_EXECUTABLE flatc REQUIRED)
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
    # A folder for each schema: two of them may include the same third one.
    set(folder "${out}/${stem}")
    set(header "${out}/${file}.hpp")
    set(source "${out}/${file}.cpp")
    set(flatc_header "${out}/${stem}_fb_generated.h")
    file(MAKE_DIRECTORY "${folder}")
    add_custom_command(
      OUTPUT "${header}" "${source}" "${flatc_header}"
      COMMAND hyperframes::protocol_generator prepare "${schema}" --out "${folder}"
              ${include_options} --dependency-file "${folder}/${stem}.d" --target "${header}"
      COMMAND "${FLATC_EXECUTABLE}" --binary --schema --bfbs-comments --bfbs-builtins
              --bfbs-filenames "${folder}" -I "${folder}" -o "${folder}" "${folder}/${file}"
      COMMAND hyperframes::protocol_generator emit "${schema}" --out "${folder}"
      COMMAND "${FLATC_EXECUTABLE}" --cpp --scoped-enums -I "${folder}" -o "${folder}"
              "${folder}/${stem}_fb.fbs"
      COMMAND "${CMAKE_COMMAND}" -E copy "${folder}/${file}.hpp" "${folder}/${file}.cpp"
              "${folder}/${stem}_fb_generated.h" "${out}"
      DEPENDS "${schema}" hyperframes::protocol_generator
      DEPFILE "${folder}/${stem}.d"
      COMMENT "Making C++ of ${file}"
      VERBATIM)
    target_sources(${target} PRIVATE "${source}" "${header}" "${flatc_header}")
    # It contains flatc's code, whose warnings nobody here can mend.
    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-w")
  endforeach()
  target_include_directories(${target} SYSTEM BEFORE PUBLIC "$<BUILD_INTERFACE:${out}>")
endfunction()
