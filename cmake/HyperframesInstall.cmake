# What `cmake --install` puts into a prefix, for others to build on: libraries, public headers,
# programs, the protocol generator, a package for find_package() and files for pkg-config. All of it
# finds the rest from where it lies, so the prefix may be moved.
#
# Install components: `development` is what one builds with, `libraries` the shared libraries,
# `programs` what one runs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HYPERFRAMES_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/hyperframes")
set(HYPERFRAMES_PKG_CONFIG_DIR "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
set(HYPERFRAMES_SCHEMA_DIR "${CMAKE_INSTALL_DATADIR}/hyperframes/schemas")
foreach(folder BINDIR LIBDIR INCLUDEDIR DATADIR)
  if(HYPERFRAMES_INSTALL AND IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    message(FATAL_ERROR "CMAKE_INSTALL_${folder} is ${CMAKE_INSTALL_${folder}}; it must be relative, "
                        "or an installed Hyperframes could not be moved. The prefix is set by "
                        "cmake --install ... --prefix FOLDER.")
  endif()
endforeach()
if(HYPERFRAMES_INSTALL AND BUILD_SHARED_LIBS)
  file(RELATIVE_PATH hyperframes_bin_to_lib "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set(CMAKE_INSTALL_RPATH "$ORIGIN/${hyperframes_bin_to_lib}")
endif()

function(hyperframes_install_program target)
  if(HYPERFRAMES_INSTALL)
    install(TARGETS ${target} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)
  endif()
endfunction()

# Called by hyperframes_library(): `name` is also the component of find_package(hyperframes).
function(hyperframes_install_library name depends private exclude)
  set(components "")
  foreach(dependency IN LISTS depends)
    get_property(below GLOBAL PROPERTY HYPERFRAMES_NEEDS_${dependency})
    list(APPEND components ${below} ${dependency})
  endforeach()
  list(REMOVE_DUPLICATES components)
  set_property(GLOBAL PROPERTY HYPERFRAMES_NEEDS_${name} "${components}")
  set_property(GLOBAL APPEND PROPERTY HYPERFRAMES_COMPONENTS ${name})

  install(TARGETS hyperframes_${name} EXPORT hyperframes-${name}
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT libraries
                  NAMELINK_COMPONENT development)
  install(EXPORT hyperframes-${name} NAMESPACE hyperframes:: COMPONENT development
          DESTINATION "${HYPERFRAMES_PACKAGE_DIR}" FILE hyperframes-${name}-targets.cmake)
  hyperframes_install_headers("${exclude}")

  # Whoever links a shared library needs nothing of what that links.
  set(finds "")
  set(modules "")
  foreach(target IN LISTS private)
    if(target IN_LIST hyperframes_header_only OR target MATCHES "^\\$<BUILD_INTERFACE:" OR BUILD_SHARED_LIBS)
      continue()
    endif()
    get_property(link GLOBAL PROPERTY "HYPERFRAMES_LINK_${target}")
    if(NOT link)
      message(FATAL_ERROR "hyperframes::${name} links ${target}, and nothing says how whoever links an "
                          "installed hyperframes::${name} finds it: call hyperframes_note_link() in "
                          "HyperframesDependencies.cmake, or add it to hyperframes_header_only.")
    endif()
    string(REPLACE "|" ";" link "${link}")
    list(GET link 0 find)
    list(GET link 1 module)
    list(GET link 2 package)
    string(APPEND finds "${find}\n")
    if(module)
      list(APPEND modules "${module}")
    endif()
    set_property(GLOBAL APPEND PROPERTY HYPERFRAMES_DEBIAN_PACKAGES ${package})
  endforeach()
  hyperframes_install_component_file(${name} "${components}" "${finds}")
  hyperframes_install_pkg_config(${name} "${depends}" "${modules}")
endfunction()

# Headers are looked for when they are installed: of detail/ those go along that others include.
function(hyperframes_install_headers exclude)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}"
             OUTPUT_VARIABLE folder)
  install(CODE "
    set(source \"${PROJECT_SOURCE_DIR}\")
    set(folder \"${folder}\")
    set(exclude [==[${exclude}]==])
    set(destination \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/hyperframes\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/package/InstallHeaders.cmake\")"
    COMPONENT development)
endfunction()

function(hyperframes_install_component_file name components finds)
  set(file "${PROJECT_BINARY_DIR}/package/hyperframes-${name}-needs.cmake")
  file(CONFIGURE OUTPUT "${file}" @ONLY CONTENT "# What component @name@ needs.\n@finds@")
  set_property(GLOBAL APPEND_STRING PROPERTY HYPERFRAMES_NEEDS_LINES
               "set(hyperframes_needs_${name} ${components})\n")
  install(FILES "${file}" DESTINATION "${HYPERFRAMES_PACKAGE_DIR}" COMPONENT development)
endfunction()

# Two libraries of one name can't lie in one folder, so each prefix has them shared or static. Static
# ones need what they link in any case, so that `pkg-config --libs` is enough for both.
function(hyperframes_install_pkg_config name depends modules)
  set(requires "")
  foreach(dependency IN LISTS depends)
    list(APPEND requires "hyperframes-${dependency} = ${PROJECT_VERSION}")
  endforeach()
  list(APPEND requires ${modules})
  set(headers_of "")
  set(variables "")
  if(name STREQUAL "actors")
    # For its headers, which generated code includes.
    set(headers_of "flatbuffers = ${flatc_version}")
    set(variables "protocol_generator=\${prefix}/${CMAKE_INSTALL_BINDIR}/hyperframes_protocol_generator")
  endif()
  set(cflags "-I\${includedir} -pthread")
  set(libs "-L\${libdir} -lhyperframes_${name} -pthread")
  hyperframes_write_pkg_config()
endfunction()

# For hyperframes::asio, which is flags alone. No such file can ask for the compiler: what is defined
# for Clang only, other compilers define themselves.
function(hyperframes_install_asio_pkg_config)
  set(name asio)
  set(requires "hyperframes-actors = ${PROJECT_VERSION}")
  set(headers_of "")
  set(variables "")
  get_target_property(cflags hyperframes_asio_flags INTERFACE_COMPILE_DEFINITIONS)
  list(TRANSFORM cflags REPLACE "^\\$<.*:(.*)>$" "\\1")
  list(TRANSFORM cflags PREPEND "-D")
  list(JOIN cflags " " cflags)
  set(libs "")
  hyperframes_write_pkg_config()
endfunction()

# Of the caller's name, requires, headers_of, variables, cflags and libs.
macro(hyperframes_write_pkg_config)
  file(RELATIVE_PATH prefix "/${HYPERFRAMES_PKG_CONFIG_DIR}" "/")
  string(REGEX REPLACE "/$" "" prefix "${prefix}")
  list(JOIN requires ", " requires)
  set(file "${PROJECT_BINARY_DIR}/package/hyperframes-${name}.pc")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/package/hyperframes.pc.in" "${file}" @ONLY)
  install(FILES "${file}" DESTINATION "${HYPERFRAMES_PKG_CONFIG_DIR}" COMPONENT development)
endmacro()

# hyperframes_install_schema(ps ps.fbs): a schema whose C++ the headers of a component include. Its
# user makes that C++, as it asserts FlatBuffers' exact version.
function(hyperframes_install_schema name schema)
  if(HYPERFRAMES_INSTALL)
    install(FILES "${schema}" DESTINATION "${HYPERFRAMES_SCHEMA_DIR}" COMPONENT development)
    set_property(GLOBAL APPEND_STRING PROPERTY HYPERFRAMES_NEEDS_LINES
                 "set(hyperframes_schemas_of_${name} ${schema})\n")
  endif()
endfunction()

# At the very end, when all libraries are known.
function(hyperframes_install_package)
  get_property(components GLOBAL PROPERTY HYPERFRAMES_COMPONENTS)
  get_property(needs GLOBAL PROPERTY HYPERFRAMES_NEEDS_LINES)
  set(comes_along "")  # components that another one's files make
  if(TARGET hyperframes_asio)
    set(comes_along asio)
  endif()
  set(config "${PROJECT_BINARY_DIR}/package/hyperframes-config.cmake")
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/package/hyperframes-config.cmake.in" "${config}"
    INSTALL_DESTINATION "${HYPERFRAMES_PACKAGE_DIR}" PATH_VARS HYPERFRAMES_SCHEMA_DIR)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/hyperframes-config-version.cmake"
    VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)
  install(FILES "${config}" "${PROJECT_BINARY_DIR}/package/hyperframes-config-version.cmake"
          "${PROJECT_SOURCE_DIR}/cmake/HyperframesCompilerCheck.cmake"
          "${PROJECT_SOURCE_DIR}/cmake/HyperframesProtocol.cmake"
          DESTINATION "${HYPERFRAMES_PACKAGE_DIR}" COMPONENT development)
  install(TARGETS hyperframes_protocol_generator EXPORT hyperframes-actors
          RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT development)
  install(CODE "
    set(version \"${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}\")
    set(compiler \"${CMAKE_CXX_COMPILER}\")
    set(bin \"${CMAKE_INSTALL_BINDIR}\")
    set(pkg_config \"${HYPERFRAMES_PKG_CONFIG_DIR}\")
    set(shared \"${BUILD_SHARED_LIBS}\")
    set(lib \"${CMAKE_INSTALL_LIBDIR}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/package/Usage.cmake\")"
    COMPONENT development)
  if(PROJECT_IS_TOP_LEVEL)
    include(HyperframesPackaging)
  endif()
endfunction()
