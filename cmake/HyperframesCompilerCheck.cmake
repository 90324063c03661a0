# hyperframes_check_compiler(problem): says in `problem` why this compiler can't be used, and what to
# do; leaves it empty for one that this project is correct on. In this tree and from an installed
# package.
function(hyperframes_check_compiler problem_variable)
  set(problem "")
  set(version "${CMAKE_CXX_COMPILER_VERSION}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND version VERSION_LESS 14)
    string(CONCAT problem
      "GCC ${version} miscompiles coroutines: an aggregate or a capturing lambda "
      "passed inside a co_await expression is destroyed twice.\n"
      "Use Clang 19 or newer, or GCC 14 or newer.")
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND version VERSION_LESS 19)
    set(problem "Clang ${version} is older than 19, the oldest that Hyperframes is tested with.")
  endif()
  if(problem AND PROJECT_NAME STREQUAL "hyperframes")
    string(APPEND problem " On Debian 12:\n"
      "  apt-get install clang-19 && cmake --preset release -DCMAKE_CXX_COMPILER=clang++-19\n"
      "or let ./dev do both.")
  elseif(problem)
    string(APPEND problem " On Debian 12:\n"
      "  apt-get install clang-19, and configure with -DCMAKE_CXX_COMPILER=clang++-19")
  endif()
  set(${problem_variable} "${problem}" PARENT_SCOPE)
endfunction()
