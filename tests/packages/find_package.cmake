# Somebody's project finds an installed Hyperframes, moved since: the layers that it names, also where it
# builds without assertions against libraries that have them; and the parameter server's, whose headers
# include C++ that is made on the spot.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
set(prefix "${WORK_DIR}/home/ada/hyperframes")
consume(layers "${prefix}" runtime,net main.cpp "answer 42 for tcp://127.0.0.1:6000"
        -DCMAKE_CXX_FLAGS=-DNDEBUG)
if(EXISTS "${prefix}/include/hyperframes/actors/asio.hpp")
  consume(server "${prefix}" asio main.cpp "answer 42 for tcp://127.0.0.1:6000")
endif()
consume(trainer "${prefix}" ps trainer.cpp "width 1 of 1 field")
