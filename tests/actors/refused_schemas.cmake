# What the generator says of schemas that flatc may take, and that can't become C++.
cmake_minimum_required(VERSION 3.25)
set(tables "namespace n; table A { x:int; } table B { y:int; }")

function(expect_refused why text)
  file(MAKE_DIRECTORY "${WORK_DIR}")
  file(WRITE "${WORK_DIR}/service.fbs" "${text}")
  execute_process(COMMAND "${GENERATOR}" generate service.fbs --out out --flatc "${FLATC}"
                  WORKING_DIRECTORY "${WORK_DIR}"
                  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(status EQUAL 0)
    message(FATAL_ERROR "This was taken, and should not have been:\n${text}")
  endif()
  string(FIND "${said}" "${why}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "'${why}' is not in what was said of\n${text}\n\n${said}")
  endif()
endfunction()

expect_refused("methods Add and add of n.S would both be add()"
               "${tables} rpc_service S { Add(A):B; add(A):B; }")
expect_refused("methods GetHTTPUrl and get_http_url of n.S would both be get_http_url()"
               "${tables} rpc_service S { GetHTTPUrl(A):B; get_http_url(A):B; }")
expect_refused("methods Add and TellAdd of n.S would both be tell_add()"
               "${tables} rpc_service S { Add(A):B; TellAdd(A):B; }")
expect_refused("methods TryAdd and Add of n.S would both be try_add()"
               "${tables} rpc_service S { TryAdd(A):B; Add(A):B (oneway); }")
expect_refused("a table or struct and a service are both called n.A"
               "${tables} rpc_service A { Add(B):B; }")
expect_refused("n.BFields is what is made for n.B in C++"
               "${tables} table BFields { z:int; } rpc_service S { Add(A):B; }")
expect_refused("n.SRef is what is made for n.S in C++"
               "${tables} table SRef { z:int; } rpc_service S { Add(A):B; }")
expect_refused("the namespace hf" "namespace hf; table A { x:int; } rpc_service S { Add(A):A; }")
# flatc reads a copy, and is quoted with the place in the schema itself.
expect_refused("${WORK_DIR}/service.fbs:2:30: error: expecting: ; instead got: }"
               "// A comment.\nnamespace a; table A { x:int }")
expect_refused("${WORK_DIR}/service.fbs:1:96: error: expecting: ; instead got: }"
               "${tables} rpc_service S { Add(A):B; } table C { x:int }")

file(REMOVE_RECURSE "${WORK_DIR}/out")
execute_process(COMMAND "${GENERATOR}" RESULT_VARIABLE status ERROR_VARIABLE said)
if(NOT status EQUAL 2 OR NOT said MATCHES "a command is missing; there is: generate")
  message(FATAL_ERROR "Without a command it ended with ${status} and said: ${said}")
endif()

# Names that C++ or the classes beside have taken are made into others.
file(WRITE "${WORK_DIR}/service.fbs"
     "${tables} table C { typeid:int; wchar_t:int; } rpc_service S { Reference(A):B; Destination(A):B; }")
execute_process(COMMAND "${GENERATOR}" generate "${WORK_DIR}/service.fbs" --out "${WORK_DIR}/out"
                        --flatc "${FLATC}" COMMAND_ERROR_IS_FATAL ANY)
if(EXISTS "${WORK_DIR}/out/service")
  message(FATAL_ERROR "Scratch files are where the program of service.fbs may be meant to go")
endif()
file(READ "${WORK_DIR}/out/service.fbs.hpp" header)
foreach(name reference_ destination_ typeid_ wchar_t_)
  if(NOT header MATCHES "[^a-z_]${name}[^a-z_]")
    message(FATAL_ERROR "No ${name} is in what was made:\n${header}")
  endif()
endforeach()
